//! Provisioned throughput: what a database or container has, and changing it.
//!
//! The service keeps throughput in *offers*, resources of their own that name
//! the database or container by its `_rid`; nothing of that shows outside.

use bytes::Bytes;
use http::HeaderValue;
use perihelion_driver::operation::{Operation, Scope, Target, Verb};
use perihelion_driver::{Driver, OperationOptions};
use perihelion_wire::headers;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::Error;
use crate::answer::{decode, encode};
use crate::feed;

/// Request units per second: a fixed number, or a ceiling up to which the
/// service scales by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Throughput {
    /// So many, always; in steps of 100, at least 400.
    Manual(u32),
    /// Between a tenth of the ceiling and the ceiling; in steps of 1000.
    Autoscale {
        /// The ceiling.
        max: u32,
    },
}

/// What a database or container has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct ProvisionedThroughput {
    /// Request units per second.
    pub throughput: Throughput,
    /// Whether the service is still working on a change.
    pub is_pending: bool,
}

impl Throughput {
    /// So many request units per second, always.
    pub fn manual(units: u32) -> Self {
        Throughput::Manual(units)
    }

    /// Up to so many request units per second.
    pub fn autoscale(max: u32) -> Self {
        Throughput::Autoscale { max }
    }

    /// Asks for it when a database or container is created.
    pub(crate) fn apply(self, operation: Operation) -> Operation {
        let text = |text: String| HeaderValue::from_str(&text).expect("digits and JSON of digits are ASCII");
        match self {
            Throughput::Manual(units) => {
                operation.with_header(headers::OFFER_THROUGHPUT, text(units.to_string()))
            }
            Throughput::Autoscale { max } => operation
                .with_header(headers::OFFER_AUTOPILOT_SETTINGS, text(format!("{{\"maxThroughput\":{max}}}"))),
        }
    }

    fn is_autoscale(self) -> bool {
        matches!(self, Throughput::Autoscale { .. })
    }
}

/// An offer. What is not named here goes back as it came.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Offer {
    id: String,
    content: Content,
    #[serde(flatten)]
    other: Map<String, Value>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Content {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    offer_throughput: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    offer_autopilot_settings: Option<Value>,
    #[serde(flatten)]
    other: Map<String, Value>,
}

/// The throughput of the resource with that `_rid`; `None` when it has none of
/// its own.
pub(crate) async fn read(driver: &Driver, rid: &str) -> Result<Option<ProvisionedThroughput>, Error> {
    match find(driver, rid).await? {
        None => Ok(None),
        // Only the offer itself, read by its id, tells whether it is settled.
        Some(offer) => {
            let operation =
                Operation::new(Verb::Read, Target::offer(&offer.id), Scope::Unpartitioned, Bytes::new());
            exchange(driver, operation).await.map(|(_, provisioned)| Some(provisioned))
        }
    }
}

/// Changes the throughput of the resource with that `_rid`, which must have
/// one. A change between fixed and scaling takes two steps: the service turns
/// the one into the other at a value of its own, then takes ours.
pub(crate) async fn replace(
    driver: &Driver,
    rid: &str,
    wanted: Throughput,
) -> Result<ProvisionedThroughput, Error> {
    let mut offer = find(driver, rid).await?.ok_or_else(|| {
        Error::input(
            "there is no throughput to replace: it is shared with the database, or the account is serverless",
        )
    })?;
    if offer.throughput()?.is_autoscale() != wanted.is_autoscale() {
        let header = match wanted {
            Throughput::Manual(_) => headers::MIGRATE_OFFER_TO_MANUAL,
            Throughput::Autoscale { .. } => headers::MIGRATE_OFFER_TO_AUTOPILOT,
        };
        let operation = replacing(&offer)?.with_header(header, HeaderValue::from_static("true"));
        let (migrated, provisioned) = exchange(driver, operation).await?;
        if provisioned.throughput == wanted {
            return Ok(provisioned);
        }
        offer = migrated;
    }
    offer.content.set(wanted);
    exchange(driver, replacing(&offer)?).await.map(|(_, provisioned)| provisioned)
}

async fn find(driver: &Driver, rid: &str) -> Result<Option<Offer>, Error> {
    let query = json!({
        "query": "SELECT * FROM root WHERE root.offerResourceId = @rid",
        "parameters": [{"name": "@rid", "value": rid}],
    });
    let operation = Operation::new(Verb::Query, Target::offers(), Scope::Unpartitioned, encode(&query)?);
    Ok(feed::collect::<Offer>(driver, operation).await?.into_iter().next())
}

fn replacing(offer: &Offer) -> Result<Operation, Error> {
    Ok(Operation::new(Verb::Replace, Target::offer(&offer.id), Scope::Unpartitioned, encode(offer)?))
}

async fn exchange(driver: &Driver, operation: Operation) -> Result<(Offer, ProvisionedThroughput), Error> {
    let response = driver.execute(&operation, &OperationOptions::default()).await?;
    let offer: Offer = decode(&response.body, &"an offer")?;
    let is_pending = response
        .header(&headers::OFFER_REPLACE_PENDING)
        .is_some_and(|pending| pending.eq_ignore_ascii_case("true"));
    let throughput = offer.throughput()?;
    Ok((offer, ProvisionedThroughput { throughput, is_pending }))
}

impl Offer {
    fn throughput(&self) -> Result<Throughput, Error> {
        let units = |units: i64| u32::try_from(units).ok();
        let content = &self.content;
        match &content.offer_autopilot_settings {
            Some(settings) => settings
                .get("maxThroughput")
                .and_then(Value::as_i64)
                .and_then(units)
                .map(|max| Throughput::Autoscale { max }),
            None => content.offer_throughput.and_then(units).map(Throughput::Manual),
        }
        .ok_or_else(|| Error::answer(format!("offer {} states no throughput", self.id)))
    }
}

impl Content {
    fn set(&mut self, wanted: Throughput) {
        match wanted {
            Throughput::Manual(units) => {
                self.offer_throughput = Some(i64::from(units));
                self.offer_autopilot_settings = None;
            }
            Throughput::Autoscale { max } => {
                self.offer_throughput = None;
                self.offer_autopilot_settings = Some(json!({ "maxThroughput": max }));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offer(content: &str) -> Offer {
        serde_json::from_str(&format!(r#"{{"id":"x","offerVersion":"V2","content":{content}}}"#)).unwrap()
    }

    #[test]
    fn offers_state_a_fixed_number_or_a_ceiling() {
        assert_eq!(offer(r#"{"offerThroughput":400}"#).throughput().unwrap(), Throughput::manual(400));
        let scaling = r#"{"offerThroughput":400,"offerAutopilotSettings":{"maxThroughput":4000}}"#;
        assert_eq!(offer(scaling).throughput().unwrap(), Throughput::autoscale(4000));
        assert!(offer("{}").throughput().is_err());
        assert!(offer(r#"{"offerThroughput":-1}"#).throughput().is_err());
    }

    #[test]
    fn a_change_keeps_what_it_does_not_concern() {
        let mut offer = offer(r#"{"offerThroughput":400,"offerIsRUPerMinuteThroughputEnabled":false}"#);
        offer.content.set(Throughput::autoscale(5000));
        assert_eq!(
            serde_json::to_value(&offer).unwrap(),
            json!({"id": "x", "offerVersion": "V2", "content": {
                "offerAutopilotSettings": {"maxThroughput": 5000},
                "offerIsRUPerMinuteThroughputEnabled": false,
            }})
        );
    }
}
