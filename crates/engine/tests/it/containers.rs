//! Tests of changes to containers.

use perihelion_engine::{ApiVersion, EngineOptions, ParsedDefinition};

use crate::support::{self, container, object};

/// Story of a bug: the etag was checked before the change reached the writer, so that several
/// changes under the same etag could succeed.
#[tokio::test]
async fn only_one_of_several_changes_of_a_container_under_one_etag_succeeds() {
    let engine = support::engine(EngineOptions::default()).await;
    let seen = container(&engine, "c").await;
    let replace = || {
        let body = object(
            r#"{"id":"c","partitionKey":{"paths":["/pk"],"kind":"Hash","version":2},"defaultTtl":60}"#,
        );
        let definition = ParsedDefinition::parse(body, ApiVersion::Current).unwrap();
        engine.replace_container(&seen, definition, Some(seen.etag.clone()))
    };
    let changed = replace().await.unwrap();
    assert_eq!(replace().await.unwrap_err().status, 412);
    let refused = engine.delete_container(&seen, Some(seen.etag.clone())).await;
    assert_eq!(refused.unwrap_err().status, 412);
    engine.delete_container(&seen, Some(changed.etag.clone())).await.unwrap();
}
