//! Fault rules as JSON. Members that also exist in the server's fault rules
//! (`docs/management.md`) have the same names and meanings here. The form is strict: an unknown
//! member, a wrong type and two effects in one rule are errors.

use std::fmt;
use std::time::Duration;

use http::{HeaderName, HeaderValue};
use perihelion_wire::operation::OperationKind;
use perihelion_wire::transport::Endpoint;
use serde::Deserialize;
use serde::de::{Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::Value;

use super::answer::InjectedAnswer;
use super::rule::{BadFaultRule, FaultRule, Protocol, When};
use crate::operation::ResourceKind;
use crate::region::Region;

/// Parses one rule, or an array of rules.
pub(super) fn parse(text: &str) -> Result<Vec<FaultRule>, BadFaultRule> {
    let Rules(rules) = serde_json::from_str(text).map_err(|error| {
        BadFaultRule(format!("the text is not a fault rule or an array of fault rules: {error}"))
    })?;
    rules.into_iter().map(RuleJson::into_rule).collect()
}

impl FaultRule {
    /// Parses a rule from JSON. `docs/fault-injection.md` lists the members.
    pub fn from_json(text: &str) -> Result<FaultRule, BadFaultRule> {
        let rule: RuleJson = serde_json::from_str(text)
            .map_err(|error| BadFaultRule(format!("the text is not a fault rule: {error}")))?;
        let rule = rule.into_rule()?;
        rule.check()?;
        Ok(rule)
    }
}

/// One rule or several.
struct Rules(Vec<RuleJson>);

impl<'de> Deserialize<'de> for Rules {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct OneOrSeveral;
        impl<'de> Visitor<'de> for OneOrSeveral {
            type Value = Rules;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object or an array of objects")
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Rules, A::Error> {
                let rule = RuleJson::deserialize(serde::de::value::MapAccessDeserializer::new(map))?;
                Ok(Rules(vec![rule]))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Rules, A::Error> {
                let mut rules = Vec::new();
                while let Some(rule) = seq.next_element()? {
                    rules.push(rule);
                }
                Ok(Rules(rules))
            }
        }
        deserializer.deserialize_any(OneOrSeveral)
    }
}

/// The members of a rule.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct RuleJson {
    #[serde(default, deserialize_with = "present")]
    name: Option<String>,
    #[serde(default, deserialize_with = "present")]
    enabled: Option<bool>,
    #[serde(default, deserialize_with = "operation")]
    operation: Option<OperationKind>,
    #[serde(default, deserialize_with = "present")]
    resource: Option<ResourceJson>,
    #[serde(default, deserialize_with = "present")]
    database: Option<String>,
    #[serde(default, deserialize_with = "present")]
    container: Option<String>,
    #[serde(default, deserialize_with = "range")]
    range: Option<String>,
    #[serde(default, deserialize_with = "present")]
    region: Option<String>,
    #[serde(default, deserialize_with = "endpoint")]
    endpoint: Option<Endpoint>,
    #[serde(default, deserialize_with = "present")]
    shard: Option<u64>,
    #[serde(default, deserialize_with = "present")]
    protocol: Option<ProtocolJson>,
    #[serde(default, deserialize_with = "present")]
    skip: Option<u64>,
    #[serde(default, deserialize_with = "present")]
    probability: Option<f64>,
    #[serde(default, deserialize_with = "present")]
    count: Option<u64>,
    #[serde(default, deserialize_with = "present")]
    start_after_ms: Option<u64>,
    #[serde(default, deserialize_with = "present")]
    end_after_ms: Option<u64>,
    #[serde(default, deserialize_with = "present")]
    delay_ms: Option<u64>,
    #[serde(default, deserialize_with = "present")]
    status: Option<u16>,
    #[serde(default, deserialize_with = "present")]
    sub_status: Option<u32>,
    #[serde(default, deserialize_with = "present")]
    retry_after_ms: Option<u64>,
    #[serde(default, deserialize_with = "present")]
    headers: Option<serde_json::Map<String, Value>>,
    #[serde(default, deserialize_with = "present")]
    body: Option<Value>,
    #[serde(default, deserialize_with = "present")]
    when: Option<WhenJson>,
    #[serde(default, deserialize_with = "present")]
    reset: Option<WhenJson>,
    #[serde(default, deserialize_with = "present")]
    drop: Option<WhenJson>,
    #[serde(default, deserialize_with = "present")]
    silence: Option<WhenJson>,
    #[serde(default, deserialize_with = "present")]
    garbage: Option<WhenJson>,
    #[serde(default, deserialize_with = "present")]
    truncate_body_bytes: Option<usize>,
    #[serde(default, deserialize_with = "present")]
    body_bytes_per_second: Option<u64>,
    #[serde(default, deserialize_with = "present")]
    connect: Option<ConnectJson>,
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum ResourceJson {
    Account,
    Database,
    Container,
    Item,
    Range,
    Offer,
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum ProtocolJson {
    Http1,
    Http2,
}

#[derive(Deserialize, Clone, Copy)]
#[serde(rename_all = "lowercase")]
enum WhenJson {
    Before,
    After,
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum ConnectJson {
    Refuse,
    Hang,
}

impl From<WhenJson> for When {
    fn from(when: WhenJson) -> When {
        match when {
            WhenJson::Before => When::Before,
            WhenJson::After => When::After,
        }
    }
}

impl From<ResourceJson> for ResourceKind {
    fn from(resource: ResourceJson) -> ResourceKind {
        match resource {
            ResourceJson::Account => ResourceKind::Account,
            ResourceJson::Database => ResourceKind::Database,
            ResourceJson::Container => ResourceKind::Container,
            ResourceJson::Item => ResourceKind::Item,
            ResourceJson::Range => ResourceKind::Range,
            ResourceJson::Offer => ResourceKind::Offer,
        }
    }
}

impl RuleJson {
    fn into_rule(mut self) -> Result<FaultRule, BadFaultRule> {
        let answer = self.take_answer()?;
        let RuleJson { reset, drop, silence, garbage, connect, .. } = &self;
        let effects = [
            ("status", answer.is_some()),
            ("reset", reset.is_some()),
            ("drop", drop.is_some()),
            ("silence", silence.is_some()),
            ("garbage", garbage.is_some()),
            ("truncateBodyBytes", self.truncate_body_bytes.is_some()),
            ("bodyBytesPerSecond", self.body_bytes_per_second.is_some()),
            ("connect", connect.is_some()),
        ];
        let effects: Vec<&str> =
            effects.iter().filter(|(_, is_set)| *is_set).map(|(name, _)| *name).collect();
        if effects.len() > 1 {
            return Err(BadFaultRule(format!(
                "a fault rule has one effect besides a delay, and this one has {}; write a rule for each",
                effects.join(" and ")
            )));
        }
        let mut rule = FaultRule::new();
        if let Some(answer) = answer {
            rule = rule.with_answer(answer);
        }
        if let Some(when) = reset {
            rule = rule.with_reset((*when).into());
        }
        if let Some(when) = drop {
            rule = rule.with_drop((*when).into());
        }
        if let Some(when) = silence {
            rule = rule.with_silence((*when).into());
        }
        if let Some(when) = garbage {
            rule = rule.with_garbage((*when).into());
        }
        if let Some(bytes) = self.truncate_body_bytes {
            rule = rule.with_truncated_body(bytes);
        }
        if let Some(rate) = self.body_bytes_per_second {
            rule = rule.with_slow_body(rate);
        }
        match connect {
            Some(ConnectJson::Refuse) => rule = rule.with_refused_connections(),
            Some(ConnectJson::Hang) => rule = rule.with_hanging_connections(),
            None => {}
        }
        Ok(self.apply_other_members(rule))
    }

    /// Takes the members of an injected answer.
    fn take_answer(&mut self) -> Result<Option<InjectedAnswer>, BadFaultRule> {
        let (headers, body) = (self.headers.take(), self.body.take());
        let Some(status) = self.status else {
            let given = [
                ("subStatus", self.sub_status.is_some()),
                ("retryAfterMs", self.retry_after_ms.is_some()),
                ("headers", headers.is_some()),
                ("body", body.is_some()),
                ("when", self.when.is_some()),
            ];
            return match given.iter().find(|(_, is_given)| *is_given) {
                Some((name, _)) => Err(BadFaultRule(format!("`{name}` needs a `status`"))),
                None => Ok(None),
            };
        };
        let mut answer = InjectedAnswer::new(status);
        answer.sub_status = self.sub_status;
        answer.retry_after = self.retry_after_ms.map(Duration::from_millis);
        if let Some(when) = self.when {
            answer = answer.with_when(when.into());
        }
        for (name, value) in headers.unwrap_or_default() {
            let parsed = HeaderName::try_from(&name)
                .ok()
                .zip(value.as_str().and_then(|text| HeaderValue::from_str(text).ok()));
            let Some((header, value)) = parsed else {
                return Err(BadFaultRule(format!(
                    "`headers`: `{name}` is not a header name, or its value is not a text for a header"
                )));
            };
            answer = answer.with_header(header, value);
        }
        Ok(Some(match body {
            Some(Value::String(text)) => answer.with_body(text),
            Some(value) => answer.with_body(value.to_string()),
            None => answer,
        }))
    }

    /// Sets everything in the rule except its effect.
    fn apply_other_members(self, mut rule: FaultRule) -> FaultRule {
        rule.name = self.name;
        rule.is_enabled = self.enabled.unwrap_or(true);
        rule.delay = Duration::from_millis(self.delay_ms.unwrap_or(0));
        let conditions = &mut rule.conditions;
        conditions.operation = self.operation;
        conditions.resource = self.resource.map(Into::into);
        conditions.database = self.database;
        conditions.container = self.container;
        conditions.range = self.range;
        conditions.region = self.region.map(Region::new);
        conditions.endpoint = self.endpoint;
        conditions.shard = self.shard;
        conditions.protocol = self.protocol.map(|protocol| match protocol {
            ProtocolJson::Http1 => Protocol::Http1,
            ProtocolJson::Http2 => Protocol::Http2,
        });
        let schedule = &mut rule.schedule;
        schedule.skip = self.skip.unwrap_or(0);
        schedule.probability = self.probability.unwrap_or(1.0);
        schedule.count = self.count;
        schedule.start_after = Duration::from_millis(self.start_after_ms.unwrap_or(0));
        schedule.end_after = self.end_after_ms.map(Duration::from_millis);
        rule
    }
}

/// Reads a member that is present in the text. Refuses `null`.
fn present<'de, D: Deserializer<'de>, T: Deserialize<'de>>(deserializer: D) -> Result<Option<T>, D::Error> {
    T::deserialize(deserializer).map(Some)
}

fn operation<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<OperationKind>, D::Error> {
    let name = String::deserialize(deserializer)?;
    if name == "any" {
        return Ok(None);
    }
    OperationKind::parse(&name).map(Some).ok_or_else(|| {
        let known: Vec<&str> = OperationKind::ALL.iter().map(|operation| operation.name()).collect();
        D::Error::custom(format!("`{name}` is not an operation; use any, {}", known.join(", ")))
    })
}

/// The id of a range, as a number or as text: the service writes ids of ranges as text.
fn range<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    match Value::deserialize(deserializer)? {
        Value::String(id) => Ok(Some(id)),
        Value::Number(id) if id.is_u64() => Ok(Some(id.to_string())),
        _ => Err(D::Error::custom("`range` must be the id of a partition key range, such as \"0\"")),
    }
}

fn endpoint<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Endpoint>, D::Error> {
    let text = String::deserialize(deserializer)?;
    Endpoint::parse(&text).map(Some).map_err(|error| D::Error::custom(format!("`endpoint`: {error}")))
}
