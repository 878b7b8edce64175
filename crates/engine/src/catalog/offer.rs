//! An offer: the throughput of a database or a container.

use perihelion_model::json::{Object, Value, object};

use super::record::{text_member, u32_member, u64_member};

/// The throughput of a database or a container.
#[derive(Debug, Clone)]
pub struct Offer {
    /// The number of the offer, unique in the account.
    pub number: u32,
    /// The `_self` of the database or container.
    pub resource: String,
    /// The `_rid` of the database or container.
    pub resource_rid: String,
    /// The throughput.
    pub throughput: Throughput,
    /// The highest throughput that was ever set.
    pub throughput_max_ever: u64,
    /// Whether the throughput is the default: the container was created without a throughput, in a
    /// database without an offer. Such an offer does not throttle.
    pub is_default: bool,
    /// The `_etag`.
    pub etag: String,
    /// The `_ts`.
    pub timestamp: u64,
}

/// A throughput in request units per second, fixed or up to a ceiling.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Throughput {
    /// A fixed throughput.
    Manual(u64),
    /// A throughput that scales with the load.
    Autoscale {
        /// The ceiling.
        max: u64,
        /// By how many per cent the service raises the ceiling when the container
        /// splits. The engine stores and returns it, but never raises the ceiling.
        increment_percent: Option<u64>,
    },
}

impl Throughput {
    /// The throughput that is enforced: for autoscale the ceiling.
    pub fn request_units(self) -> u64 {
        match self {
            Throughput::Manual(units) | Throughput::Autoscale { max: units, .. } => units,
        }
    }

    fn to_content(self) -> Object {
        let mut content = Object::new();
        match self {
            Throughput::Manual(units) => content.set("offerThroughput", units.into()),
            Throughput::Autoscale { max, increment_percent } => {
                // The least throughput of an autoscale container is a tenth of its ceiling.
                content.set("offerThroughput", (max / 10).into());
                let mut settings = Object::new();
                settings.set("maxThroughput", max.into());
                if let Some(increment_percent) = increment_percent {
                    let policy = object([("incrementPercent", increment_percent.into())]);
                    settings.set("autoUpgradePolicy", object([("throughputPolicy", policy)]));
                }
                content.set("offerAutopilotSettings", Value::Object(settings));
            }
        }
        content
    }

    /// Reads the `content` of an offer.
    pub fn from_content(content: &Value) -> Option<Self> {
        match content.get("offerAutopilotSettings").and_then(Self::from_settings) {
            Some(autoscale) => Some(autoscale),
            None => u64_member(content, "offerThroughput").map(Throughput::Manual),
        }
    }

    /// Reads autoscale settings, from an offer or from a header.
    pub fn from_settings(settings: &Value) -> Option<Self> {
        let policy = settings.get("autoUpgradePolicy").and_then(|policy| policy.get("throughputPolicy"));
        let increment_percent = policy.and_then(|policy| u64_member(policy, "incrementPercent"));
        Some(Throughput::Autoscale { max: u64_member(settings, "maxThroughput")?, increment_percent })
    }
}

impl Offer {
    /// The `_rid`: the low three bytes of the number as four characters of base64, with
    /// `-` for `/`.
    pub fn rid(&self) -> String {
        use base64::Engine as _;
        let bytes = self.number.to_be_bytes();
        base64::engine::general_purpose::STANDARD.encode(&bytes[1..]).replace('/', "-")
    }

    /// The body as the service returns it.
    pub fn body(&self) -> Value {
        let mut content = self.throughput.to_content();
        content.set("offerIsRUPerMinuteThroughputEnabled", false.into());
        content.set(
            "offerMinimumThroughputParameters",
            object([
                ("maxThroughputEverProvisioned", self.throughput_max_ever.into()),
                ("maxConsumedStorageEverInKB", 0u64.into()),
            ]),
        );
        object([
            ("resource", self.resource.as_str().into()),
            ("offerType", "Invalid".into()),
            ("offerResourceId", self.resource_rid.as_str().into()),
            ("offerVersion", "V2".into()),
            ("content", Value::Object(content)),
            ("id", self.rid().into()),
            ("_rid", self.rid().into()),
            ("_self", format!("offers/{}/", self.rid()).into()),
            ("_etag", self.etag.as_str().into()),
            ("_ts", self.timestamp.into()),
        ])
    }

    pub(crate) fn to_record(&self) -> Value {
        object([
            ("number", u64::from(self.number).into()),
            ("resource", self.resource.as_str().into()),
            ("resourceRid", self.resource_rid.as_str().into()),
            ("content", Value::Object(self.throughput.to_content())),
            ("maxEver", self.throughput_max_ever.into()),
            ("default", self.is_default.into()),
            ("etag", self.etag.as_str().into()),
            ("timestamp", self.timestamp.into()),
        ])
    }

    pub(super) fn from_record(record: &Value) -> Option<Self> {
        Some(Offer {
            number: u32_member(record, "number")?,
            resource: text_member(record, "resource")?,
            resource_rid: text_member(record, "resourceRid")?,
            throughput: Throughput::from_content(record.get("content")?)?,
            throughput_max_ever: u64_member(record, "maxEver")?,
            // Earlier builds did not write the member.
            is_default: record.get("default").and_then(Value::as_bool).unwrap_or(false),
            etag: text_member(record, "etag")?,
            timestamp: u64_member(record, "timestamp")?,
        })
    }
}
