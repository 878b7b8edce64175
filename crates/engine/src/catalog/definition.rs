//! The definition of a container: the body that a client sends, checked and
//! with the service's defaults filled in.

use std::sync::Arc;

use perihelion_model::json::{Object, Value, object};
use perihelion_model::partition_key::{HashVersion, KeyKind, KeyPath, LEVELS_MAX, PartitionKeyDefinition};

use perihelion_query::ComputedProperties;
use perihelion_wire::status;

use super::{Container, new_definition, search_policies};
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
    /// The computed properties.
    pub computed: Arc<ComputedProperties>,
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
    /// Checks a client's body and rewrites it in the service's order, without unknown
    /// members.
    pub fn parse(body: Object, api_version: ApiVersion) -> Result<Self, Refusal> {
        new_definition::check(&body)?;
        let computed = parse_computed_properties(&body)?;
        Self::read(body, api_version, computed)
    }

    /// Reads the definition in a record. Earlier versions stored computed properties unchecked. If
    /// one of them is not valid, none of them has an effect.
    pub(super) fn from_record(body: Object) -> Result<Self, Refusal> {
        let computed = parse_computed_properties(&body).unwrap_or_default();
        Self::read(body, ApiVersion::Current, computed)
    }

    /// Reads a body, of a client or of the store.
    fn read(body: Object, api_version: ApiVersion, computed: ComputedProperties) -> Result<Self, Refusal> {
        let name = resource_name(&body)?;
        let partition_key = parse_partition_key(body.get("partitionKey"), api_version)?;
        let unique_keys = parse_unique_keys(body.get("uniqueKeyPolicy"))?;
        let default_ttl = parse_ttl(body.get("defaultTtl"))?;

        let mut definition = Object::new();
        definition.set("id", name.as_str().into());
        definition.set("indexingPolicy", indexing_policy(body.get("indexingPolicy"))?);
        definition.set("partitionKey", partition_key_body(&partition_key, body.get("partitionKey")));
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
        let computed = Arc::new(computed);
        Ok(ParsedDefinition { name, definition, partition_key, unique_keys, default_ttl, computed })
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

/// The `id` in the body of a database, container, script, user or permission, checked.
pub(crate) fn resource_name(body: &Object) -> Result<String, Refusal> {
    let Some(name) = body.get("id").and_then(Value::as_str) else {
        return Err(Refusal::bad_request(
            "The input content is invalid because the required properties - 'id; ' - are missing.",
        ));
    };
    if name.is_empty() || name.chars().count() > NAME_CHARACTERS_MAX {
        return Err(Refusal::invalid_name(name, NAME_CHARACTERS_MAX));
    }
    if name.ends_with(' ') {
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

fn partition_key_body(definition: &PartitionKeyDefinition, given: Option<&Value>) -> Value {
    let mut body = Object::new();
    body.set("paths", Value::Array(definition.paths.iter().map(|path| path.text.as_str().into()).collect()));
    body.set("kind", if definition.kind == KeyKind::Hash { "Hash".into() } else { "MultiHash".into() });
    // A version 1 key is returned with `version` only if the client named it. Clients read a
    // missing version as 1.
    let is_named = given.is_some_and(|given| given.get("version").is_some_and(|value| *value != Value::Null));
    match definition.version {
        HashVersion::V2 => body.set("version", 2i64.into()),
        HashVersion::V1 if is_named => body.set("version", 1i64.into()),
        HashVersion::V1 => {}
    }
    Value::Object(body)
}

/// The computed properties of a body. Each has a name of its own, and a statement that computes a
/// value from one document.
fn parse_computed_properties(body: &Object) -> Result<ComputedProperties, Refusal> {
    let invalid = |what: &str| {
        Refusal::bad_request(format!("The computed properties of the container are invalid: {what}"))
    };
    let properties = match body.get("computedProperties") {
        None | Some(Value::Null) => return Ok(ComputedProperties::default()),
        Some(Value::Array(properties)) => properties,
        Some(_) => return Err(Refusal::invalid_input()),
    };
    let text =
        |property: &'_ Value, name: &str| property.get(name).and_then(Value::as_str).map(str::to_owned);
    let pairs: Option<Vec<(String, String)>> =
        properties.iter().map(|property| Some((text(property, "name")?, text(property, "query")?))).collect();
    let pairs = pairs.ok_or_else(|| invalid("each one needs the texts 'name' and 'query'."))?;
    let pairs: Vec<(&str, &str)> =
        pairs.iter().map(|(name, query)| (name.as_str(), query.as_str())).collect();
    let computed = ComputedProperties::parse(&pairs).map_err(|what| invalid(&what))?;
    // A computed property must not hide a part of the partition key: a filter on that name would
    // choose the partitions to read by the documents' own values, and not by the computed values.
    let key_paths = body.get("partitionKey").and_then(|key| key.get("paths")).and_then(Value::as_array);
    let steps = key_paths
        .into_iter()
        .flatten()
        .filter_map(|path| KeyPath::parse(path.as_str()?)?.steps.into_iter().next());
    match steps.into_iter().find(|step| computed.contains(step)) {
        Some(step) => Err(invalid(&format!("the name '{step}' is part of the partition key."))),
        None => Ok(computed),
    }
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
            "The unique key policy is invalid: it has at most 10 keys, each with 'paths' such as /email.",
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
    let (included, mut excluded) = (paths_of(given, "includedPaths"), paths_of(given, "excludedPaths"));
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

/// The included or excluded paths of a policy. The service drops the legacy member `indexes`
/// of a path, which says the kind and precision of its index.
fn paths_of(policy: &Object, member: &str) -> Vec<Value> {
    let mut paths = policy.get(member).and_then(Value::as_array).unwrap_or_default().to_vec();
    for path in &mut paths {
        if let Value::Object(path) = path {
            path.remove("indexes");
        }
    }
    paths
}

/// Refuses a new definition of a container that changes its id, its partition key, its
/// unique keys, or an existing vector or vector index.
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
        // The recorded charge.
        .with_charge(1.24));
    }
    search_policies::check_replacement(&old.definition, &new.definition)
}
