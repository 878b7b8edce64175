//! The account document. Unless the server has a public endpoint, the locations in the
//! document echo the host that the client used, so that a client behind a mapped host
//! name (as in Docker) keeps using that name. With one region they echo the port too. An
//! embedded database with several regions has fixed hosts.

use http::Method;
use perihelion_engine::Refusal;
use perihelion_model::json::{Value, object};
use perihelion_wire::status;

use super::{Account, RegionService, method_not_allowed};
use crate::addresses::{self, Addresses, embedded_endpoint};
use crate::answer::Answer;
use crate::call::Call;

pub(super) fn read(service: &RegionService, call: &Call) -> Result<Answer, Refusal> {
    match call.method {
        Method::GET | Method::HEAD => Ok(Answer::json(status::OK, &document(service, call))),
        // The service forbids OPTIONS on the root, without a message.
        Method::OPTIONS => Ok(Answer::json(status::FORBIDDEN, &object([("code", "Forbidden".into())]))),
        _ => Err(method_not_allowed(&call.method)),
    }
}

fn document(service: &RegionService, call: &Call) -> Value {
    let topology = service.account.regions.topology();
    let location = |region: usize| {
        let endpoint = format!("{}/", endpoint(&service.account, call, region).trim_end_matches('/'));
        let name = service.account.regions.names.name(region);
        object([("name", name.into()), ("databaseAccountEndpoint", endpoint.into())])
    };
    let replication = [("minReplicaSetSize", 3i64.into()), ("maxReplicasetSize", 4i64.into())];
    let address = call.endpoint();
    let host =
        address.split("://").nth(1).unwrap_or("localhost").split(['.', ':']).next().unwrap_or("localhost");
    object([
        ("_self", "".into()),
        ("id", host.into()),
        ("_rid", format!("{host}.documents.azure.com").into()),
        ("media", "//media/".into()),
        ("addresses", "//addresses/".into()),
        ("_dbs", "//dbs/".into()),
        ("writableLocations", Value::Array(topology.writable().map(location).collect())),
        ("readableLocations", Value::Array(topology.write_region_first().map(location).collect())),
        ("enableMultipleWriteLocations", topology.is_multi_write.into()),
        ("continuousBackupEnabled", false.into()),
        ("enableNRegionSynchronousCommit", false.into()),
        ("enablePerPartitionFailoverBehavior", topology.has_partition_failover.into()),
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

/// The endpoint of a region.
/// - With one region, it is the public endpoint or, when there is none, the address that
///   the client used.
/// - With several regions, it has the host of the public endpoint or, when there is none,
///   the host that the client used. It has the region's port.
/// - In an embedded database with several regions, it has the region's own host name.
fn endpoint(account: &Account, call: &Call, region: usize) -> String {
    let public = account.public_endpoint.as_deref();
    match &account.addresses {
        Addresses::Hosts if account.regions.len() > 1 => {
            embedded_endpoint(&account.regions.names.slug(region))
        }
        Addresses::Ports(ports) if account.regions.len() > 1 => match public {
            // The regions' ports follow the port of the public endpoint, just as they follow
            // the server's own port (unless the server's own port is 0). The sum is a valid port: the
            // server has checked this at its start.
            Some(public) => with_port(public, |port| port.saturating_add(region as u16 + 1)),
            None => with_port(&call.endpoint(), |_| ports[region]),
        },
        _ => public.map_or_else(|| call.endpoint(), str::to_owned),
    }
}

/// The endpoint with another port and without a path. `change` gets the port that is
/// written in the endpoint, or the default port of the scheme.
fn with_port(endpoint: &str, change: impl FnOnce(u16) -> u16) -> String {
    let (scheme, host, port) = addresses::parts(endpoint);
    format!("{scheme}://{host}:{}", change(port))
}

/// The capabilities of the query engine, as JSON text.
const QUERY_ENGINE: &str = concat!(
    "{\"allowNewKeywords\":true,\"maxJoinsPerSqlQuery\":10,\"maxQueryRequestTimeoutFraction\":0.9,",
    "\"maxSqlQueryInputLength\":524288,\"maxUdfRefPerSqlQuery\":10,\"queryMaxInMemorySortDocumentCount\":-1000,",
    "\"spatialMaxGeometryPointCount\":256,\"sqlAllowNonFiniteNumbers\":false,\"sqlDisableQueryILOptimization\":false,",
    "\"enableSpatialIndexing\":true,\"maxInExpressionItemsCount\":2147483647,\"maxLogicalAndPerSqlQuery\":2147483647,",
    "\"maxLogicalOrPerSqlQuery\":2147483647,\"maxSpatialQueryCells\":2147483647,\"sqlAllowAggregateFunctions\":true,",
    "\"sqlAllowGroupByClause\":true,\"sqlAllowLike\":true,\"sqlAllowSubQuery\":true,\"sqlAllowScalarSubQuery\":true,",
    "\"sqlAllowTop\":true}"
);

#[cfg(test)]
mod tests {
    use super::with_port;

    #[test]
    fn an_endpoint_keeps_its_host_when_its_port_changes() {
        for (endpoint, expected) in [
            ("http://localhost:8081", "http://localhost:8083"),
            ("https://[::1]:8081/", "https://[::1]:8083"),
            ("https://[::1]", "https://[::1]:445"),
            ("https://db.internal/", "https://db.internal:445"),
        ] {
            assert_eq!(with_port(endpoint, |port| port + 2), expected);
        }
    }
}
