//! The partition key of an item: from the command line, or from the item itself.

use clap::Args;
use perihelion_client::{Container, PartitionKey};
use perihelion_model::partition_key::KeyPath;
use serde_json::Value;

use crate::context::Context;
use crate::exit::Failure;

// The partition key. Not a documentation comment: clap would show it as the help.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct KeyArgs {
    /// The partition key: a text, or JSON such as 7, true, null, '"7"' or '["eu", 7]'. item get,
    /// patch and delete need it unless the item's id is the key
    #[arg(long, visible_alias = "pk", value_name = "KEY", allow_hyphen_values = true)]
    partition_key: Option<String>,
}

impl KeyArgs {
    /// The key of the command line; `None` if the command line has no key.
    pub(crate) fn given(&self) -> Result<Option<PartitionKey>, Failure> {
        self.partition_key.as_deref().map(parse).transpose()
    }

    /// The key of the command line, or the item's id if `/id` is the container's partition key.
    pub(super) async fn of_id(
        &self,
        context: &Context,
        container: &Container,
        id: &str,
    ) -> Result<PartitionKey, Failure> {
        if let Some(key) = self.given()? {
            return Ok(key);
        }
        let paths = paths(context, container).await?;
        match paths.as_slice() {
            [path] if path == "/id" => Ok(PartitionKey::from(id)),
            _ => Err(Failure::usage(
                format!("the partition key of {} is {}", context.container_name(), paths.join(", ")),
                "give its value with --partition-key",
            )),
        }
    }

    /// The key of the command line, or the key in the document.
    pub(super) async fn of_document(
        &self,
        context: &Context,
        container: &Container,
        document: &Value,
    ) -> Result<PartitionKey, Failure> {
        if let Some(key) = self.given()? {
            return Ok(key);
        }
        let paths = paths(context, container).await?;
        in_document(document, &paths).ok_or_else(|| {
            Failure::usage(
                format!("the document has no partition key at {}", paths.join(", ")),
                "add it to the document, or give --partition-key",
            )
        })
    }
}

async fn paths(context: &Context, container: &Container) -> Result<Vec<String>, Failure> {
    let properties = container.properties().await;
    Ok(properties.map_err(|error| context.container_failed(&error))?.partition_key.paths)
}

/// The key at these paths of a document; `None` if a path has no value, or one that cannot be in a key.
fn in_document(document: &Value, paths: &[String]) -> Option<PartitionKey> {
    let value = |path: &String| {
        let path = KeyPath::parse_stored(path)?;
        path.steps.iter().try_fold(document, |value, step| value.get(step)).cloned()
    };
    let values = paths.iter().map(value).collect::<Option<Vec<Value>>>()?;
    PartitionKey::from_header(&Value::Array(values).to_string())
}

/// Parses a key of the command line: JSON if it is valid JSON, else a text.
fn parse(text: &str) -> Result<PartitionKey, Failure> {
    let value = serde_json::from_str(text).unwrap_or_else(|_| Value::String(text.to_owned()));
    let levels = match value {
        Value::Array(levels) => Value::Array(levels),
        one => Value::Array(vec![one]),
    };
    PartitionKey::from_header(&levels.to_string()).ok_or_else(|| {
        Failure::usage(
            format!("{text:?} is not a partition key"),
            "write a text, a number, true, false, null, or a JSON list of up to three of them",
        )
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Story of a bug: the paths were read as JSON pointers, which have no quotes, and in which `~1`
    /// is `/`.
    #[test]
    fn a_key_path_may_have_quotes_and_tildes() {
        let document = json!({"a/b": {"c d": "quoted"}, "x~1y": 7, "list": ["no"]});
        let check = |paths: &[&str], header: &str| {
            let paths: Vec<String> = paths.iter().map(|path| (*path).to_owned()).collect();
            assert_eq!(in_document(&document, &paths), PartitionKey::from_header(header), "{paths:?}");
        };
        check(&["/\"a/b\"/'c d'"], r#"["quoted"]"#);
        check(&["/x~1y", "/\"a/b\"/\"c d\""], r#"[7,"quoted"]"#);
        for absent in ["/list/0", "/x/y", "/a/b"] {
            assert_eq!(in_document(&document, &[absent.to_owned()]), None, "{absent}");
        }
    }

    #[test]
    fn a_key_that_is_valid_json_is_json_and_any_other_key_is_a_text() {
        let check = |text: &str, json: &str| {
            assert_eq!(parse(text).unwrap(), PartitionKey::from_header(json).unwrap(), "{text}");
        };
        check("ada", r#"["ada"]"#);
        check("7", "[7]");
        check("\"7\"", r#"["7"]"#);
        check("null", "[null]");
        check("[\"eu\", 7]", r#"["eu",7]"#);
        check("a b", r#"["a b"]"#);
        assert!(parse("{\"a\":1}").is_err());
    }
}
