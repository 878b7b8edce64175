//! The account document. Its locations echo the address that the client
//! used, so that mapped ports and names keep working.

use http::Method;
use perihelion_engine::refusal::Refusal;
use perihelion_model::json::{Value, object};

use super::{Service, wrong_method};
use crate::answer::Answer;
use crate::call::Call;

/// The one region of this account.
const REGION: &str = "West US";

pub(super) fn read(service: &Service, call: &Call) -> Result<Answer, Refusal> {
    match call.method {
        Method::GET | Method::HEAD => Ok(Answer::json(200, &document(service, call))),
        // Recorded: an OPTIONS on the root is forbidden, without a message.
        Method::OPTIONS => Ok(Answer::json(403, &object([("code", "Forbidden".into())]))),
        _ => Err(wrong_method(&call.method)),
    }
}

fn document(service: &Service, call: &Call) -> Value {
    let endpoint = service.public_endpoint.clone().unwrap_or_else(|| call.endpoint());
    let endpoint = format!("{}/", endpoint.trim_end_matches('/'));
    let location = object([("name", REGION.into()), ("databaseAccountEndpoint", endpoint.into())]);
    let replication = [("minReplicaSetSize", 3i64.into()), ("maxReplicasetSize", 4i64.into())];
    let host = call.endpoint();
    let host =
        host.split("://").nth(1).unwrap_or("localhost").split(['.', ':']).next().unwrap_or("localhost");
    object([
        ("_self", "".into()),
        ("id", host.into()),
        ("_rid", format!("{host}.documents.azure.com").into()),
        ("media", "//media/".into()),
        ("addresses", "//addresses/".into()),
        ("_dbs", "//dbs/".into()),
        ("writableLocations", Value::Array(vec![location.clone()])),
        ("readableLocations", Value::Array(vec![location])),
        ("enableMultipleWriteLocations", false.into()),
        ("continuousBackupEnabled", false.into()),
        ("enableNRegionSynchronousCommit", false.into()),
        ("enablePerPartitionFailoverBehavior", false.into()),
        ("userReplicationPolicy", {
            let [min, max] = replication.clone();
            object([("asyncReplication", false.into()), min, max])
        }),
        ("userConsistencyPolicy", object([("defaultConsistencyLevel", "Session".into())])),
        ("systemReplicationPolicy", object(replication)),
        (
            "readPolicy",
            object([("primaryReadCoefficient", 1i64.into()), ("secondaryReadCoefficient", 1i64.into())]),
        ),
        ("queryEngineConfiguration", QUERY_ENGINE.into()),
    ])
}

/// What clients may ask of the query engine, as JSON text.
const QUERY_ENGINE: &str = concat!(
    "{\"allowNewKeywords\":true,\"maxJoinsPerSqlQuery\":10,\"maxQueryRequestTimeoutFraction\":0.9,",
    "\"maxSqlQueryInputLength\":524288,\"maxUdfRefPerSqlQuery\":10,\"queryMaxInMemorySortDocumentCount\":-1000,",
    "\"spatialMaxGeometryPointCount\":256,\"sqlAllowNonFiniteNumbers\":false,\"sqlDisableQueryILOptimization\":false,",
    "\"enableSpatialIndexing\":true,\"maxInExpressionItemsCount\":2147483647,\"maxLogicalAndPerSqlQuery\":2147483647,",
    "\"maxLogicalOrPerSqlQuery\":2147483647,\"maxSpatialQueryCells\":2147483647,\"sqlAllowAggregateFunctions\":true,",
    "\"sqlAllowGroupByClause\":true,\"sqlAllowLike\":true,\"sqlAllowSubQuery\":true,\"sqlAllowScalarSubQuery\":true,",
    "\"sqlAllowTop\":true}"
);
