//! The search policies of a container: vector embeddings, vector indexes, full-text paths and
//! full-text indexes.
//!
//! They are stored as the client sent them. A request that creates or replaces a container is
//! refused where the service refuses it, with the service's texts. Records in the store are not
//! checked, because an earlier version stored the policies unchecked. Distances and scores are
//! computed from the documents: queries do not use these indexes.

use perihelion_model::json::{Object, Value};
use perihelion_query::{DistanceFunction, VectorEmbedding};

use crate::refusal::Refusal;

/// The most dimensions of a vector.
const DIMENSIONS_MAX: i64 = 4096;

/// The most bytes to which an index may compress a vector. A vector with fewer dimensions is
/// limited to one byte for each dimension.
const QUANTIZATION_BYTES_MAX: i64 = 512;

/// The languages of full-text policies.
const LANGUAGES: [&str; 7] = ["en-US", "de-DE", "es-ES", "fr-FR", "it-IT", "pt-BR", "pt-PT"];

/// The distance functions of the vectors in a definition. Entries that are not valid are left
/// out.
pub(crate) fn embeddings(definition: &Object) -> Vec<VectorEmbedding> {
    let entries = list(definition.get("vectorEmbeddingPolicy"), "vectorEmbeddings");
    let embedding = |entry: &Value| {
        let function = DistanceFunction::by_name(text(entry, "distanceFunction")?)?;
        Some(VectorEmbedding::new(text(entry, "path")?, function))
    };
    entries.iter().filter_map(embedding).collect()
}

/// Checks the search policies of a definition.
pub(crate) fn check(definition: &Object) -> Result<(), Refusal> {
    let embeddings = list(definition.get("vectorEmbeddingPolicy"), "vectorEmbeddings");
    embeddings.iter().try_for_each(check_embedding)?;
    let indexing = definition.get("indexingPolicy");
    list(indexing, "vectorIndexes").iter().try_for_each(|index| check_vector_index(index, embeddings))?;
    let full_text = definition.get("fullTextPolicy");
    full_text.map_or(Ok(()), check_full_text_policy)?;
    let paths = list(full_text, "fullTextPaths");
    let indexes = list(indexing, "fullTextIndexes").iter().enumerate();
    indexes.into_iter().try_for_each(|(number, index)| check_full_text_index(number, index, paths))
}

/// Refuses a replacement that changes a vector or a vector index in place.
pub(crate) fn check_replacement(old: &Object, new: &Object) -> Result<(), Refusal> {
    let changes = |old: &[Value], new: &[Value]| {
        old.iter().any(|entry| {
            let same_path = |other: &&Value| other.get("path") == entry.get("path");
            new.iter().find(same_path).is_some_and(|other| other != entry)
        })
    };
    let entries =
        |definition: &Object, policy: &str, member: &str| list(definition.get(policy), member).to_vec();
    let (policy, member) = ("vectorEmbeddingPolicy", "vectorEmbeddings");
    if changes(&entries(old, policy, member), &entries(new, policy, member)) {
        return refuse("Paths in existing embedding policy cannot be modified in Collection Replace.");
    }
    let (policy, member) = ("indexingPolicy", "vectorIndexes");
    if changes(&entries(old, policy, member), &entries(new, policy, member)) {
        return refuse("Paths in existing vector indexing policy cannot be modified in Collection Replace.");
    }
    Ok(())
}

fn check_embedding(entry: &Value) -> Result<(), Refusal> {
    let path = text(entry, "path").unwrap_or_default();
    if !path.starts_with('/') {
        return refuse(format!("The Vector Embedding Policy has an invalid Path:{path}."));
    }
    let data_type = text(entry, "dataType").unwrap_or_default();
    if !is_one_of(&["float32", "float16", "int8", "uint8"], data_type) {
        return refuse(format!("The Vector Embedding Policy has an invalid DataType:{data_type}."));
    }
    let dimensions = entry.get("dimensions").and_then(Value::as_i64).unwrap_or_default();
    if dimensions < 1 {
        return refuse(format!(
            "The Vector Embedding Policy has Dimensions:{dimensions} which is less than the minimum supported value 1."
        ));
    }
    if dimensions > DIMENSIONS_MAX {
        return refuse(format!(
            "The Vector Embedding Policy has Dimensions:{dimensions} which is more than the maximum supported value {DIMENSIONS_MAX}."
        ));
    }
    let function = text(entry, "distanceFunction").unwrap_or_default();
    if DistanceFunction::by_name(function).is_none() {
        return refuse(format!("The Vector Embedding Policy has an invalid DistanceFunction:{function}."));
    }
    Ok(())
}

fn check_vector_index(index: &Value, embeddings: &[Value]) -> Result<(), Refusal> {
    let path = text(index, "path").unwrap_or_default();
    let Some(embedding) = embeddings.iter().find(|embedding| text(embedding, "path") == Some(path)) else {
        return refuse(format!(
            "The Vector Indexing Policy's path::{path} not matching in Embedding's path."
        ));
    };
    let kind = text(index, "type").unwrap_or_default();
    if !is_one_of(&["flat", "quantizedFlat", "diskANN"], kind) {
        return refuse(format!("The Vector Indexing Policy's Index Type::{kind} is invalid."));
    }
    let dimensions = embedding.get("dimensions").and_then(Value::as_i64).unwrap_or(DIMENSIONS_MAX);
    let bytes_max = dimensions.min(QUANTIZATION_BYTES_MAX);
    check_number(index, "quantizationByteSize", "QuantizationByteSize", (1, bytes_max))?;
    check_number(index, "indexingSearchListSize", "IndexingSearchListSize", (25, 500))?;
    check_shard_key(index.get("vectorIndexShardKey"))
}

/// Checks that an optional number is in a range.
fn check_number(index: &Value, member: &str, name: &str, (least, most): (i64, i64)) -> Result<(), Refusal> {
    match index.get(member) {
        None | Some(Value::Null) => Ok(()),
        Some(value) => match value.as_i64() {
            Some(number) if (least..=most).contains(&number) => Ok(()),
            Some(number) => refuse(format!(
                "The Vector Indexing Policy parameter {name} value :: {number} is out of range. The allowed range is between {least} and {most}."
            )),
            None => Err(Refusal::invalid_input()),
        },
    }
}

fn check_shard_key(paths: Option<&Value>) -> Result<(), Refusal> {
    let paths = match paths {
        None | Some(Value::Null) => return Ok(()),
        Some(Value::Array(paths)) => paths,
        Some(_) => return Err(Refusal::invalid_input()),
    };
    if paths.len() > 1 {
        let count = paths.len();
        return refuse(format!(
            "The number of shard paths defined in the Vector Indexing Policy: {count} exceeds the maximum: 1."
        ));
    }
    match paths.first().map(|path| path.as_str().unwrap_or_default()) {
        Some(path) if !path.starts_with('/') => {
            refuse(format!("The Vector Indexing Policy has an invalid Shard Path: {path}."))
        }
        _ => Ok(()),
    }
}

fn check_full_text_policy(policy: &Value) -> Result<(), Refusal> {
    check_language(policy.get("defaultLanguage"))?;
    for entry in list(Some(policy), "fullTextPaths") {
        let path = text(entry, "path").unwrap_or_default();
        if !path.starts_with('/') {
            return refuse(format!("The Full Text Policy contains an invalid Path: {path}"));
        }
        check_language(entry.get("language"))?;
    }
    Ok(())
}

fn check_language(language: Option<&Value>) -> Result<(), Refusal> {
    let language = match language {
        None | Some(Value::Null) => return Ok(()),
        Some(language) => language.as_str().unwrap_or_default(),
    };
    if is_one_of(&LANGUAGES, language) {
        return Ok(());
    }
    let supported = LANGUAGES.join(", ");
    refuse(format!(
        "The Full Text Policy contains an unsupported language {language}. Supported languages are: {supported}."
    ))
}

fn check_full_text_index(number: usize, index: &Value, paths: &[Value]) -> Result<(), Refusal> {
    let Some(path) = text(index, "path") else {
        return refuse(format!("Missing path in full-text index specification at index ({number})"));
    };
    if !path.starts_with('/') {
        return refuse(format!("Full-text index specification at index ({number}) contains invalid path"));
    }
    if !paths.iter().any(|entry| text(entry, "path") == Some(path)) {
        return refuse(format!(
            "The path of the Full Text Index {path} does not match the path specified in the Full Text Policy"
        ));
    }
    Ok(())
}

/// The items of a member; empty when the member is absent or not a list.
fn list<'v>(policy: Option<&'v Value>, member: &str) -> &'v [Value] {
    policy.and_then(|policy| policy.get(member)).and_then(Value::as_array).unwrap_or_default()
}

fn text<'v>(entry: &'v Value, member: &str) -> Option<&'v str> {
    entry.get(member)?.as_str()
}

fn is_one_of(names: &[&str], name: &str) -> bool {
    names.iter().any(|known| known.eq_ignore_ascii_case(name))
}

fn refuse(text: impl Into<String>) -> Result<(), Refusal> {
    Err(Refusal::bad_request(text))
}
