//! The inputs of a query besides its text: parameters, the container's vectors, and the time
//! at which it is evaluated.

use std::collections::HashMap;

use perihelion_model::json::Value;

/// Named values for `@name` in a statement. A name that is not listed, or
/// listed without a value, is undefined.
#[derive(Debug, Clone, Default)]
pub struct Parameters {
    values: HashMap<String, Option<Value>>,
    embeddings: Vec<VectorEmbedding>,
    /// Whether `embeddings` may lack a path of the container.
    may_lack_embeddings: bool,
    is_planar: bool,
    /// The most constant patterns of RegexMatch; `None` means `regex::CONSTANT_PATTERNS_MAX`.
    patterns_max: Option<usize>,
}

/// A path of the container's vector embedding policy, with its distance function.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VectorEmbedding {
    /// The names of the path.
    names: Vec<String>,
    function: DistanceFunction,
}

/// How two vectors are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum DistanceFunction {
    /// The cosine of the angle between the vectors; higher is more similar.
    #[default]
    Cosine,
    /// The sum of the products; higher is more similar.
    DotProduct,
    /// The distance of the points; lower is more similar.
    Euclidean,
}

impl DistanceFunction {
    /// Every function with its name.
    const NAMES: [(DistanceFunction, &'static str); 3] = [
        (DistanceFunction::Cosine, "cosine"),
        (DistanceFunction::DotProduct, "dotproduct"),
        (DistanceFunction::Euclidean, "euclidean"),
    ];

    /// The function of that name, in any letter case.
    pub fn by_name(name: &str) -> Option<Self> {
        let found = Self::NAMES.iter().find(|(_, known)| known.eq_ignore_ascii_case(name));
        found.map(|(function, _)| *function)
    }

    pub(crate) fn name(self) -> &'static str {
        Self::NAMES.iter().find(|(function, _)| *function == self).map_or("", |(_, name)| name)
    }
}

impl VectorEmbedding {
    /// The distance function of a path such as `/text/vector`.
    pub fn new(path: &str, function: DistanceFunction) -> Self {
        let names = path.split('/').skip(1).map(|name| name.trim_matches('"').to_owned());
        VectorEmbedding { names: names.collect(), function }
    }
}

/// Why a parameter list is refused. The messages are the service's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ParameterError {
    /// The list is not an array of objects with a name.
    Malformed,
    /// The name does not have the form `@identifier`.
    InvalidName(String),
    /// The name is in the list twice.
    Duplicate(String),
}

impl std::fmt::Display for ParameterError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            ParameterError::Malformed => {
                f.write_str("Invalid query. Parameters should be an array of objects with a name.")
            }
            ParameterError::InvalidName(name) => write!(
                f,
                "Invalid query. Specified parameter name '{name}' is invalid. Parameter names should be in \
                 the format of symbol '@' followed by a valid identifier. E.g. @param1"
            ),
            ParameterError::Duplicate(name) => {
                write!(f, "Invalid query. Specified duplicate parameter name '{name}'.")
            }
        }
    }
}

impl std::error::Error for ParameterError {}

impl Parameters {
    /// No parameters.
    pub fn none() -> Self {
        Parameters::default()
    }

    /// Parses the request's `parameters` member: `[{"name":"@p","value":…}]`.
    /// Null means an absent list.
    pub fn from_json(list: Value) -> Result<Self, ParameterError> {
        let items = match list {
            Value::Null => Vec::new(),
            Value::Array(items) => items,
            _ => return Err(ParameterError::Malformed),
        };
        let mut values = HashMap::with_capacity(items.len());
        for item in items {
            let (name, value) = read_parameter(item)?;
            if values.contains_key(&name) {
                return Err(ParameterError::Duplicate(name));
            }
            values.insert(name, value);
        }
        Ok(Parameters { values, ..Parameters::default() })
    }

    /// The same parameters for a container with these vectors. VectorDistance without a distance
    /// function uses the function of its path.
    #[must_use]
    pub fn with_embeddings(self, embeddings: Vec<VectorEmbedding>) -> Self {
        Parameters { embeddings, may_lack_embeddings: false, ..self }
    }

    /// The same parameters for a container that has at least these vectors. Others may have been
    /// added after the caller read the container. A statement that sorts by the distance of a path
    /// that is not listed is refused, because the order depends on the distance function.
    #[must_use]
    pub fn with_known_embeddings(self, embeddings: Vec<VectorEmbedding>) -> Self {
        Parameters { embeddings, may_lack_embeddings: true, ..self }
    }

    /// The same parameters for a statement with at most this many constant patterns of RegexMatch.
    #[must_use]
    pub(crate) fn with_patterns_max(self, patterns_max: usize) -> Self {
        Parameters { patterns_max: Some(patterns_max), ..self }
    }

    /// The most constant patterns of RegexMatch; `None` means `regex::CONSTANT_PATTERNS_MAX`.
    pub(crate) fn patterns_max(&self) -> Option<usize> {
        self.patterns_max
    }

    /// Whether the container may have vectors that are not known here.
    pub(crate) fn may_lack_embeddings(&self) -> bool {
        self.may_lack_embeddings
    }

    /// The same parameters for a container whose `geospatialConfig` is *Geometry* (`true`), or
    /// *Geography*, the default.
    #[must_use]
    pub fn with_planar_geometry(self, is_planar: bool) -> Self {
        Parameters { is_planar, ..self }
    }

    /// Whether GeoJSON has coordinates of a plane.
    pub(crate) fn is_planar(&self) -> bool {
        self.is_planar
    }

    /// The distance function of a path.
    pub(crate) fn distance_function<'n>(
        &self,
        names: impl Iterator<Item = &'n str> + Clone,
    ) -> Option<DistanceFunction> {
        let is_path = |embedding: &&VectorEmbedding| embedding.names.iter().eq(names.clone());
        self.embeddings.iter().find(is_path).map(|embedding| embedding.function)
    }

    /// The value of `@name`; the `@` is part of the name.
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.values.get(name)?.as_ref()
    }

    /// Whether there are no parameters.
    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }
}

fn read_parameter(item: Value) -> Result<(String, Option<Value>), ParameterError> {
    let Value::Object(mut object) = item else { return Err(ParameterError::Malformed) };
    let Some(Value::String(name)) = object.remove("name") else { return Err(ParameterError::Malformed) };
    if !is_parameter_name(&name) {
        return Err(ParameterError::InvalidName(name));
    }
    Ok((name, object.remove("value")))
}

fn is_parameter_name(name: &str) -> bool {
    let Some(identifier) = name.strip_prefix('@') else { return false };
    let mut bytes = identifier.bytes();
    bytes.next().is_some_and(|first| first.is_ascii_alphabetic() || first == b'_')
        && bytes.all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

/// The time at which a statement is evaluated: the same for all rows. The
/// caller provides it, because this crate does not read a clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Now {
    /// Units of 100 ns since 1970-01-01.
    ticks: i64,
}

const TICKS_PER_MILLISECOND: i64 = 10_000;

impl Now {
    /// The time that is this many milliseconds after 1970-01-01.
    pub fn from_unix_milliseconds(milliseconds: i64) -> Self {
        Now { ticks: milliseconds.saturating_mul(TICKS_PER_MILLISECOND) }
    }

    /// The time that is this many ticks (100 ns) after 1970-01-01.
    pub fn from_unix_ticks(ticks: i64) -> Self {
        Now { ticks }
    }

    /// The ticks (100 ns) since 1970-01-01.
    pub fn unix_ticks(self) -> i64 {
        self.ticks
    }

    pub(crate) fn ticks(self) -> i64 {
        self.ticks
    }
}
