//! The account document, as the service answers `GET /`. Unknown members are ignored.

use serde::Deserialize;

use super::Consistency;

/// The members of the account document that the driver uses.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct AccountDocument {
    pub(super) readable_locations: Option<Vec<LocationDocument>>,
    pub(super) writable_locations: Option<Vec<LocationDocument>>,
    pub(super) enable_multiple_write_locations: Option<bool>,
    pub(super) user_consistency_policy: Option<ConsistencyPolicy>,
    pub(super) disable_cross_regional_hedging: Option<bool>,
    pub(super) thin_client_readable_locations: Option<Vec<LocationDocument>>,
    pub(super) thin_client_writable_locations: Option<Vec<LocationDocument>>,
    pub(super) enable_per_partition_failover_behavior: Option<bool>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct LocationDocument {
    pub(super) name: String,
    pub(super) database_account_endpoint: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ConsistencyPolicy {
    pub(super) default_consistency_level: Option<String>,
}

/// The account's consistency. An unknown or missing level counts as session: requests
/// then carry session tokens, which the service ignores at other levels.
pub(super) fn parse_consistency(policy: Option<ConsistencyPolicy>) -> Consistency {
    let level = policy.and_then(|policy| policy.default_consistency_level).unwrap_or_default();
    match level.as_str() {
        "Strong" => Consistency::Strong,
        "BoundedStaleness" => Consistency::BoundedStaleness,
        "ConsistentPrefix" => Consistency::ConsistentPrefix,
        "Eventual" => Consistency::Eventual,
        _ => Consistency::Session,
    }
}
