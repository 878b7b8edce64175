//! Reads and changes the provisioned throughput of databases and containers.
//!
//! The service keeps throughput in *offers*: resources that refer to the database
//! or container by its `_rid`. The public interface does not show offers.

use bytes::Bytes;
use http::HeaderValue;
use perihelion_driver::operation::{Operation, Scope, Target, Verb};
use perihelion_driver::{Driver, OperationOptions};
use perihelion_wire::headers;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::Error;
use crate::feed;
use crate::response::{decode, encode, unreadable_write};

/// Request units per second: a fixed number, or a maximum up to which the service
/// scales.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Throughput {
    /// A fixed number: a multiple of 100, at least 400.
    Manual(u32),
    /// The service scales between a tenth of the maximum and the maximum.
    Autoscale {
        /// The maximum: a multiple of 1000.
        max: u32,
    },
}

/// The throughput of a database or container.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct ProvisionedThroughput {
    /// Request units per second.
    pub throughput: Throughput,
    /// Whether a change is still being applied by the service.
    pub is_pending: bool,
}

impl Throughput {
    /// A fixed number of request units per second.
    pub fn manual(units: u32) -> Self {
        Throughput::Manual(units)
    }

    /// Up to this number of request units per second.
    pub fn autoscale(max: u32) -> Self {
        Throughput::Autoscale { max }
    }

    /// Adds the throughput to the request that creates a database or container.
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

/// An offer. Members that this type does not name are in `other` and are sent back.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Offer {
    id: String,
    content: OfferContent,
    #[serde(flatten)]
    other: Map<String, Value>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct OfferContent {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    offer_throughput: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    offer_autopilot_settings: Option<Value>,
    #[serde(flatten)]
    other: Map<String, Value>,
}

/// The throughput of the resource with this `_rid`; `None` when the resource has no
/// throughput of its own.
pub(crate) async fn read(driver: &Driver, rid: &str) -> Result<Option<ProvisionedThroughput>, Error> {
    match find_offer(driver, rid).await? {
        None => Ok(None),
        // Only a point read of the offer says whether a change is pending.
        Some(offer) => {
            let operation =
                Operation::new(Verb::Read, Target::offer(&offer.id), Scope::Unpartitioned, Bytes::new());
            send(driver, operation).await.map(|(_, provisioned)| Some(provisioned))
        }
    }
}

/// Changes the throughput of the resource with this `_rid`. The resource must have its own
/// throughput. A change between manual and autoscale takes up to two requests. The first
/// request migrates the offer, and the service chooses its new throughput. The second request
/// sets the wanted throughput, unless the service has chosen it already.
pub(crate) async fn replace(
    driver: &Driver,
    rid: &str,
    wanted: Throughput,
) -> Result<ProvisionedThroughput, Error> {
    let mut offer = find_offer(driver, rid).await?.ok_or_else(|| {
        Error::input(
            "the resource has no throughput of its own: it shares the database's, or the account is serverless",
        )
    })?;
    if offer.throughput()?.is_autoscale() != wanted.is_autoscale() {
        let header = match wanted {
            Throughput::Manual(_) => headers::MIGRATE_OFFER_TO_MANUAL,
            Throughput::Autoscale { .. } => headers::MIGRATE_OFFER_TO_AUTOPILOT,
        };
        let operation = replace_operation(&offer)?.with_header(header, HeaderValue::from_static("true"));
        let (migrated, provisioned) = send(driver, operation).await?;
        if provisioned.throughput == wanted {
            return Ok(provisioned);
        }
        offer = migrated;
    }
    offer.content.set_throughput(wanted);
    send(driver, replace_operation(&offer)?).await.map(|(_, provisioned)| provisioned)
}

/// The offer of the resource with this `_rid`.
async fn find_offer(driver: &Driver, rid: &str) -> Result<Option<Offer>, Error> {
    let query = json!({
        "query": "SELECT * FROM root WHERE root.offerResourceId = @rid",
        "parameters": [{"name": "@rid", "value": rid}],
    });
    let operation = Operation::new(Verb::Query, Target::offers(), Scope::Unpartitioned, encode(&query)?);
    Ok(feed::collect::<Offer>(driver, operation).await?.into_iter().next())
}

fn replace_operation(offer: &Offer) -> Result<Operation, Error> {
    Ok(Operation::new(Verb::Replace, Target::offer(&offer.id), Scope::Unpartitioned, encode(offer)?))
}

/// Sends an operation whose response is an offer. If the response to a replace cannot be read, the
/// error is ambiguous.
async fn send(driver: &Driver, operation: Operation) -> Result<(Offer, ProvisionedThroughput), Error> {
    let response = driver.execute(&operation, &OperationOptions::default()).await?;
    let (offer, throughput) = match decode_offer(&response.body) {
        Ok(decoded) => decoded,
        Err(error) if operation.verb.is_read() => return Err(error.with_diagnostics(response.diagnostics)),
        Err(error) => return Err(unreadable_write(&error, response)),
    };
    let is_pending = response
        .header(&headers::OFFER_REPLACE_PENDING)
        .is_some_and(|pending| pending.eq_ignore_ascii_case("true"));
    Ok((offer, ProvisionedThroughput { throughput, is_pending }))
}

fn decode_offer(body: &[u8]) -> Result<(Offer, Throughput), Error> {
    let offer: Offer = decode(body, &"an offer")?;
    let throughput = offer.throughput()?;
    Ok((offer, throughput))
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
        .ok_or_else(|| Error::answer(format!("offer {} has no throughput", self.id)))
    }
}

impl OfferContent {
    fn set_throughput(&mut self, wanted: Throughput) {
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
    fn offers_have_manual_or_autoscale_throughput() {
        assert_eq!(offer(r#"{"offerThroughput":400}"#).throughput().unwrap(), Throughput::manual(400));
        let scaling = r#"{"offerThroughput":400,"offerAutopilotSettings":{"maxThroughput":4000}}"#;
        assert_eq!(offer(scaling).throughput().unwrap(), Throughput::autoscale(4000));
        assert!(offer("{}").throughput().is_err());
        assert!(offer(r#"{"offerThroughput":-1}"#).throughput().is_err());
    }

    #[test]
    fn a_change_keeps_the_other_members_of_an_offer() {
        let mut offer = offer(r#"{"offerThroughput":400,"offerIsRUPerMinuteThroughputEnabled":false}"#);
        offer.content.set_throughput(Throughput::autoscale(5000));
        assert_eq!(
            serde_json::to_value(&offer).unwrap(),
            json!({"id": "x", "offerVersion": "V2", "content": {
                "offerAutopilotSettings": {"maxThroughput": 5000},
                "offerIsRUPerMinuteThroughputEnabled": false,
            }})
        );
    }
}
