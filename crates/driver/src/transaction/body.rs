//! The request body of a transaction, in the form that the published SDKs send.

use bytes::Bytes;
use perihelion_model::resource_id::ContainerRid;
use perihelion_wire::transaction::TransactionVerb;
use serde::{Serialize, Serializer};
use serde_json::value::RawValue;

use super::TransactionOperation;

/// The values that the driver adds to an operation of the caller in the body.
#[derive(Debug, Clone, Default)]
pub(crate) struct OperationContext {
    /// The `_rid` of the container; empty when it is not known.
    pub(crate) container_rid: String,
    /// The session token that the operation's partition must have reached.
    pub(crate) session_token: Option<String>,
}

/// One operation in the request body.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct WireOperation<'a> {
    database_name: &'a str,
    collection_name: &'a str,
    id: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    collection_resource_id: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    database_resource_id: Option<String>,
    partition_key: Box<RawValue>,
    index: usize,
    #[serde(serialize_with = "verb_name")]
    operation_type: TransactionVerb,
    resource_type: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    resource_body: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    session_token: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    if_match: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    if_none_match: Option<&'a str>,
}

/// Prints the request body. `contexts` has one entry for each operation.
pub(crate) fn print(operations: &[TransactionOperation], contexts: &[OperationContext]) -> Bytes {
    debug_assert_eq!(operations.len(), contexts.len());
    #[derive(Serialize)]
    struct Body<'a> {
        operations: Vec<WireOperation<'a>>,
    }
    let wire = |(index, (operation, context)): (usize, (_, _))| wire_operation(index, operation, context);
    let body = Body { operations: operations.iter().zip(contexts).enumerate().map(wire).collect() };
    serde_json::to_vec(&body).expect("all member names are strings, so writing cannot fail").into()
}

fn wire_operation<'a>(
    index: usize,
    operation: &'a TransactionOperation,
    context: &'a OperationContext,
) -> WireOperation<'a> {
    // The `_rid` of a container begins with that of its database.
    let rid = ContainerRid::parse(&context.container_rid);
    WireOperation {
        database_name: operation.container.database(),
        collection_name: operation.container.name(),
        id: &operation.id,
        collection_resource_id: &context.container_rid,
        database_resource_id: rid.map(|rid| rid.database.to_text()),
        partition_key: RawValue::from_string(operation.partition_key.to_header())
            .expect("a partition key is printed as JSON"),
        index,
        operation_type: operation.verb,
        resource_type: "Document",
        resource_body: operation.body.as_deref(),
        session_token: operation.session_token.as_deref().or(context.session_token.as_deref()),
        if_match: operation.if_match.as_deref(),
        if_none_match: operation.if_none_match.as_deref(),
    }
}

fn verb_name<S: Serializer>(verb: &TransactionVerb, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(verb.name())
}

#[cfg(test)]
mod tests {
    use perihelion_model::partition_key::PartitionKey;
    use perihelion_wire::transaction::{TransactionLimits, TransactionRequest, WRITE_OPERATION_TYPE};

    use super::*;
    use crate::metadata::Container;

    #[test]
    fn the_body_has_the_form_of_the_published_sdks() {
        let container = Container::new("shop", "orders");
        let mut replace =
            TransactionOperation::new(TransactionVerb::Replace, &container, PartitionKey::from("ada"), "1");
        replace.body = Some(RawValue::from_string(r#"{"id":"1"}"#.to_owned()).unwrap());
        replace.if_match = Some("\"e\"".to_owned());
        let delete =
            TransactionOperation::new(TransactionVerb::Delete, &container, PartitionKey::from(7), "2");
        let known = OperationContext {
            container_rid: "DBoWAKmn5cE=".to_owned(),
            session_token: Some("0:-1#5".to_owned()),
        };
        let body = print(&[replace, delete], &[known, OperationContext::default()]);
        assert_eq!(
            std::str::from_utf8(&body).unwrap(),
            concat!(
                r#"{"operations":[{"databaseName":"shop","collectionName":"orders","id":"1","#,
                r#""collectionResourceId":"DBoWAKmn5cE=","databaseResourceId":"DBoWAA==","partitionKey":["ada"],"index":0,"#,
                r#""operationType":"Replace","resourceType":"Document","resourceBody":{"id":"1"},"#,
                r#""sessionToken":"0:-1#5","ifMatch":"\"e\""},"#,
                r#"{"databaseName":"shop","collectionName":"orders","id":"2","partitionKey":[7],"index":1,"#,
                r#""operationType":"Delete","resourceType":"Document"}]}"#
            )
        );
        let parsed =
            TransactionRequest::parse(Some(WRITE_OPERATION_TYPE), &body, TransactionLimits::default())
                .unwrap();
        assert_eq!(parsed.operations.len(), 2);
        assert_eq!(parsed.operations[0].if_match.as_deref(), Some("\"e\""));
    }
}
