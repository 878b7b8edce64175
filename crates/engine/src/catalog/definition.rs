//! The definition of a container: the body that a client sends, checked and
//! with the service's defaults filled in.

use perihelion_model::json::{Object, Value, object};
use perihelion_model::partition_key::{HashVersion, KeyKind, KeyPath, LEVELS_MAX, PartitionKeyDefinition};

use perihelion_wire::status;

use super::Container;
use crate::refusal::{Layer, Refusal};

/// The most unique keys of a container; the service documents ten.
const UNIQUE_KEYS_MAX: usize = 10;

/// The API versions that differ in the definitions they accept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ApiVersion {
    /// Before 2020-07-15: without hierarchical keys.
    Old,
    /// From 2020-07-15 on: with hierarchical keys.
    Current,
}

/// A container body, checked and with its defaults filled in.
#[derive(Debug, Clone)]
pub struct ParsedDefinition {
    /// The `id`.
    pub name: String,
    /// The whole definition, in the service's order.
    pub definition: Object,
    /// The paths and the hash version of the partition key.
    pub partition_key: PartitionKeyDefinition,
    /// The paths of each unique key.
    pub unique_keys: Vec<Vec<KeyPath>>,
    /// The default TTL, as in [`Container::default_ttl`].
    pub default_ttl: Option<i64>,
}

/// Optional members of the definition that are stored as the client sent them.
const COPIED_MEMBERS: [&str; 7] = [
    "analyticalStorageTtl",
    "computedProperties",
    "changeFeedPolicy",
    "vectorEmbeddingPolicy",
    "fullTextPolicy",
    "materializedViewDefinition",
    "clientEncryptionPolicy",
];

impl ParsedDefinition {
    /// Checks a body and rewrites it in the service's order, without unknown
    /// members.
    pub fn parse(body: Object, api_version: ApiVersion) -> Result<Self, Refusal> {
        let name = resource_name(&body)?;
        let partition_key = parse_partition_key(body.get("partitionKey"), api_version)?;
        let unique_keys = parse_unique_keys(body.get("uniqueKeyPolicy"))?;
        let default_ttl = parse_ttl(body.get("defaultTtl"))?;

        let mut definition = Object::new();
        definition.set("id", name.as_str().into());
        definition.set("indexingPolicy", indexing_policy(body.get("indexingPolicy"))?);
        definition.set("partitionKey", partition_key_body(&partition_key));
        if let Some(ttl) = default_ttl {
            definition.set("defaultTtl", ttl.into());
        }
        if !unique_keys.is_empty() {
            definition.set("uniqueKeyPolicy", body.get("uniqueKeyPolicy").cloned().unwrap_or(Value::Null));
        }
        let resolution = object([
            ("mode", "LastWriterWins".into()),
            ("conflictResolutionPath", "/_ts".into()),
            ("conflictResolutionProcedure", "".into()),
        ]);
        definition
            .set("conflictResolutionPolicy", with_defaults(body.get("conflictResolutionPolicy"), resolution));
        let geospatial = object([("type", "Geography".into())]);
        definition.set("geospatialConfig", body.get("geospatialConfig").cloned().unwrap_or(geospatial));
        for member in COPIED_MEMBERS {
            if let Some(value) = body.get(member)
                && *value != Value::Null
            {
                definition.set(member, value.clone());
            }
        }
        Ok(ParsedDefinition { name, definition, partition_key, unique_keys, default_ttl })
    }
}

/// The given members, and the default of each member that is not given.
fn with_defaults(given: Option<&Value>, defaults: Value) -> Value {
    let (Some(Value::Object(given)), Value::Object(mut merged)) = (given, defaults.clone()) else {
        return defaults;
    };
    for (name, value) in given.iter() {
        merged.set(name, value.clone());
    }
    Value::Object(merged)
}

/// The characters that a resource name must not contain.
const NAME_CHARACTERS_REFUSED: [char; 4] = ['/', '\\', '?', '#'];
/// The most characters of a resource name, as in the service.
const NAME_CHARACTERS_MAX: usize = 255;

/// The `id` in the body of a database, container or script, checked.
pub(crate) fn resource_name(body: &Object) -> Result<String, Refusal> {
    let Some(name) = body.get("id").and_then(Value::as_str) else {
        return Err(Refusal::bad_request(
            "The input content is invalid because the required properties - 'id; ' - are missing.",
        ));
    };
    if name.is_empty() || name.ends_with(' ') || name.chars().count() > NAME_CHARACTERS_MAX {
        return Err(Refusal::invalid_input());
    }
    if name.contains(NAME_CHARACTERS_REFUSED) || name.chars().any(char::is_control) {
        return Err(Refusal::gateway(
            status::BAD_REQUEST,
            "The input name presented contains invalid character.",
        ));
    }
    Ok(name.to_owned())
}

fn parse_partition_key(
    body: Option<&Value>,
    api_version: ApiVersion,
) -> Result<PartitionKeyDefinition, Refusal> {
    let Some(body) = body.and_then(Value::as_object) else {
        return Err(Refusal::gateway(
            status::BAD_REQUEST,
            "Shared throughput collection should have a partition key",
        ));
    };
    let paths: Option<Vec<KeyPath>> = body
        .get("paths")
        .and_then(Value::as_array)
        .and_then(|paths| paths.iter().map(|path| KeyPath::parse(path.as_str()?)).collect());
    let Some(paths) = paths.filter(|paths| !paths.is_empty() && paths.len() <= LEVELS_MAX) else {
        return Err(Refusal::bad_request(
            "The partition key definition is invalid: 'paths' must be one to three paths such as /tenant/id.",
        ));
    };
    let kind_text = body.get("kind").and_then(Value::as_str).unwrap_or("Hash");
    let kind = match kind_text {
        "Hash" => KeyKind::Hash,
        "MultiHash" if api_version == ApiVersion::Current => KeyKind::MultiHash,
        _ => {
            return Err(Refusal::bad_request(format!(
                "The 'kind' value '{kind_text}' specified in the partition key definition is invalid. Please choose 'Hash' partition type."
            )));
        }
    };
    if kind == KeyKind::Hash && paths.len() > 1 {
        return Err(Refusal::bad_request(
            "Too many partition key paths specified: a 'Hash' partition key has exactly one.",
        ));
    }
    let version = match (body.get("version").and_then(Value::as_i64), kind) {
        (Some(2), _) | (None, KeyKind::MultiHash) => HashVersion::V2,
        (Some(1) | None, KeyKind::Hash) => HashVersion::V1,
        _ => return Err(Refusal::bad_request("The partition key definition has an unknown 'version'.")),
    };
    Ok(PartitionKeyDefinition { paths, kind, version })
}

fn partition_key_body(definition: &PartitionKeyDefinition) -> Value {
    let mut body = Object::new();
    body.set("paths", Value::Array(definition.paths.iter().map(|path| path.text.as_str().into()).collect()));
    body.set("kind", if definition.kind == KeyKind::Hash { "Hash".into() } else { "MultiHash".into() });
    // A version 1 key is returned without `version`, which clients read as 1.
    if definition.version == HashVersion::V2 {
        body.set("version", 2i64.into());
    }
    Value::Object(body)
}

/// The paths of each unique key; empty without a policy.
fn parse_unique_keys(body: Option<&Value>) -> Result<Vec<Vec<KeyPath>>, Refusal> {
    let keys = match body.and_then(|policy| policy.get("uniqueKeys")) {
        None | Some(Value::Null) => return Ok(Vec::new()),
        Some(keys) => keys.as_array(),
    };
    let parsed: Option<Vec<Vec<KeyPath>>> = keys.and_then(|keys| {
        keys.iter()
            .map(|key| {
                key.get("paths")?.as_array()?.iter().map(|path| KeyPath::parse(path.as_str()?)).collect()
            })
            .collect()
    });
    match parsed {
        Some(keys) if keys.len() <= UNIQUE_KEYS_MAX && keys.iter().all(|paths| !paths.is_empty()) => Ok(keys),
        _ => Err(Refusal::bad_request(
            "The unique key policy is invalid: each key needs 'paths' such as /email.",
        )),
    }
}

/// The `defaultTtl` in seconds: -1, or at least 1; `None` when there is none.
fn parse_ttl(value: Option<&Value>) -> Result<Option<i64>, Refusal> {
    match value {
        None | Some(Value::Null) => Ok(None),
        Some(value) => match value.as_i64() {
            Some(ttl) if ttl == -1 || (1..=i64::from(i32::MAX)).contains(&ttl) => Ok(Some(ttl)),
            _ => Err(Refusal::bad_request(
                "The value of 'defaultTtl' must be -1 or a positive number of seconds below 2147483648.",
            )),
        },
    }
}

/// The indexing policy with the service's defaults for the mode, `automatic` and the
/// paths. The service also excludes `_etag`, even in a policy that the client sent. A
/// policy with the mode `none` has no paths.
fn indexing_policy(given: Option<&Value>) -> Result<Value, Refusal> {
    const ETAG_PATH: &str = "/\"_etag\"/?";
    let empty = Object::new();
    let given = match given {
        None | Some(Value::Null) => &empty,
        Some(Value::Object(given)) => given,
        Some(_) => return Err(Refusal::bad_request("The indexing policy is invalid: it must be an object.")),
    };
    let mode = given.get("indexingMode").and_then(Value::as_str).unwrap_or("consistent").to_lowercase();
    if !["consistent", "none", "lazy"].contains(&mode.as_str()) {
        return Err(Refusal::bad_request(format!("The indexing mode '{mode}' is unknown.")));
    }
    let mut policy = Object::new();
    policy.set("indexingMode", mode.as_str().into());
    // `automatic` is always true when there is an index, even if the client sent
    // `false`: the Rust SDK sends `false` by default, and its own tests expect `true`
    // back.
    let is_automatic = mode != "none" || given.get("automatic").and_then(Value::as_bool).unwrap_or(true);
    policy.set("automatic", is_automatic.into());
    if mode == "none" {
        policy.set("includedPaths", Value::Array(Vec::new()));
        policy.set("excludedPaths", Value::Array(Vec::new()));
        return Ok(Value::Object(policy));
    }
    let path = |text: &str| object([("path", text.into())]);
    let included = given.get("includedPaths").and_then(Value::as_array).unwrap_or_default().to_vec();
    let mut excluded = given.get("excludedPaths").and_then(Value::as_array).unwrap_or_default().to_vec();
    let names = |paths: &[Value], text: &str| {
        paths.iter().any(|path| path.get("path").and_then(Value::as_str) == Some(text))
    };
    let included = if included.is_empty() && !names(&excluded, "/*") { vec![path("/*")] } else { included };
    if !names(&excluded, ETAG_PATH) {
        excluded.push(path(ETAG_PATH));
    }
    policy.set("includedPaths", Value::Array(included));
    policy.set("excludedPaths", Value::Array(excluded));
    for member in ["compositeIndexes", "spatialIndexes", "vectorIndexes", "fullTextIndexes"] {
        match given.get(member) {
            None | Some(Value::Null) => {}
            Some(Value::Array(items)) if items.is_empty() => {}
            Some(value) => policy.set(member, value.clone()),
        }
    }
    Ok(Value::Object(policy))
}

/// Refuses a new definition of a container that changes its id, its partition key or
/// its unique keys.
pub(crate) fn check_replacement(old: &Container, new: &ParsedDefinition) -> Result<(), Refusal> {
    if new.name != old.name {
        return Err(Refusal::bad_request("The container's id cannot be changed."));
    }
    if new.partition_key.paths != old.partition_key.paths || new.partition_key.kind != old.partition_key.kind
    {
        return Err(Refusal::bad_request("Document collection partition key cannot be changed."));
    }
    if new.unique_keys != old.unique_keys {
        return Err(Refusal::new(
            status::FORBIDDEN,
            Layer::Backend,
            "The unique index cannot be modified. To change the unique index, remove the collection and re-create a new one.",
        )
        .with_charge(1.24));
    }
    Ok(())
}
