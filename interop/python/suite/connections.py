"""Connections: certificates, keys, tokens, the account document, faults, and a server
that is restarted."""

import tempfile
import time
from pathlib import Path

import certifi
from azure.core.credentials import AccessToken
from azure.core.exceptions import ServiceRequestError
from azure.cosmos import CosmosClient, documents

from .harness import WELL_KNOWN_KEY, Skip, World, check, equal, expect_error, unique, user_members
from .servers import Server

WRONG_KEY = "d3Jvbmcga2V5IHdyb25nIGtleSB3cm9uZyBrZXkgd3Jvbmcga2V5IHdyb25nIGtleSB3cm9uZyBrZXk="


def verifying_client(endpoint, key, ca_path):
    """A client that verifies certificates. For localhost the SDK verifies certificates
    only if it is given a TLS configuration."""
    settings = documents.SSLConfiguration()
    settings.SSLCaCerts = str(ca_path)
    return CosmosClient(endpoint, key, ssl_config=settings, connection_verify=str(ca_path), retry_total=0)


def ca_of(world):
    if not world.ca_path:
        raise Skip("the CA of a given endpoint is not known")
    return world.ca_path


@check
def the_certificate_for_localhost_is_signed_by_our_ca(world):
    with verifying_client(world.endpoint, world.key, ca_of(world)) as client:
        name = unique("tls")
        equal(client.create_database(name).read()["id"], name)
        client.delete_database(name)


@check
def the_certificate_names_the_loopback_address_too(world):
    endpoint = world.endpoint.replace("localhost", "127.0.0.1")
    with verifying_client(endpoint, world.key, ca_of(world)) as client:
        locations = client.get_database_account().WritableLocations
        equal([location["databaseAccountEndpoint"] for location in locations], [endpoint])


@check
def a_client_that_trusts_another_ca_refuses_the_server(world):
    try:
        verifying_client(world.endpoint, world.key, certifi.where())
    except ServiceRequestError as error:
        assert "CERTIFICATE_VERIFY_FAILED" in str(error), error
    else:
        raise AssertionError("a certificate of our own CA was taken for a public one")


@check
def http_without_tls_is_served_on_the_same_port(world):
    endpoint = world.endpoint.replace("https:", "http:")
    with CosmosClient(endpoint, world.key) as client:
        locations = client.get_database_account().ReadableLocations
        equal([location["databaseAccountEndpoint"] for location in locations], [endpoint])


@check
def the_account_echoes_the_endpoint_and_is_at_session_consistency(world):
    account = world.client.get_database_account()
    equal(account.ConsistencyPolicy["defaultConsistencyLevel"], "Session")
    for locations in (account.WritableLocations, account.ReadableLocations):
        equal([location["databaseAccountEndpoint"] for location in locations], [world.endpoint])
        assert locations[0]["name"], locations


@check
def a_wrong_key_is_refused(world):
    with expect_error(401):
        world.new_client(key=WRONG_KEY)


@check
def stronger_consistency_than_the_account_has_is_refused(world):
    container = world.container()
    container.create_item({"id": "a", "pk": "p"})
    strong = world.same_container(container, world.new_client(consistency_level="Strong"))
    with expect_error(400, text="ConsistencyLevel Strong"):
        strong.read_item("a", "p")
    eventual = world.same_container(container, world.new_client(consistency_level="Eventual"))
    equal(user_members(eventual.read_item("a", "p")), {"id": "a", "pk": "p"})


class AnyToken:
    """A credential like those of azure-identity, with an invented token."""

    def get_token(self, *_scopes, **_options):
        # A JSON web token without a valid signature.
        return AccessToken("eyJhbGciOiJub25lIn0.eyJzdWIiOiJtZSJ9.c2lnbmF0dXJl", int(time.time()) + 3600)


@check(on="own")
def any_entra_token_is_accepted_with_auth_any(_):
    with Server("--auth", "any") as server, CosmosClient(server.endpoint, AnyToken()) as client:
        database = client.create_database("tokens")
        equal([entry["id"] for entry in client.list_databases()], ["tokens"])
        client.delete_database(database)


@check(on="own")
def an_entra_token_is_refused_by_default(_):
    with Server() as server, expect_error(401):
        CosmosClient(server.endpoint, AnyToken())


@check(on="own")
def acknowledged_writes_survive_a_kill(_):
    with tempfile.TemporaryDirectory() as directory:
        data = str(Path(directory, "data"))
        with Server("--data", data) as server:
            world = World(server.endpoint, WELL_KNOWN_KEY)
            container = world.container()
            created = container.create_item({"id": "a", "pk": "p", "n": 1})
            batch = [("create", ({"id": f"b{n}", "pk": "p"},)) for n in range(3)]
            container.execute_item_batch(batch, partition_key="p")
            server.kill()
            # The same client continues on the same port.
            with Server("--data", data, port=server.port):
                equal(dict(container.read_item("a", "p")), dict(created))
                equal(
                    [row for row in container.query_items("SELECT VALUE c.id FROM c", partition_key="p")],
                    ["a", "b0", "b1", "b2"],
                )
                world.close()


@check(on="own")
def too_many_request_units_are_answered_with_429_which_the_sdk_waits_out(_):
    with Server("--throughput", "400") as server:
        world = World(server.endpoint, WELL_KNOWN_KEY)
        container = world.container()
        client = world.new_client()
        # The SDK's option treats 0 as "not set", so the attribute behind it is set.
        client.client_connection.connection_policy.RetryOptions._max_retry_attempt_count = 0
        impatient = world.same_container(container, client)
        body = {"pk": "p", "values": list(range(400))}
        # The request units of at most one second accumulate. Each create costs over 100.
        with expect_error(429, 3200) as error:
            for n in range(100):
                impatient.create_item({"id": f"x{n}", **body})
        assert 1 <= n <= 10, n
        wait_ms = int(error.value.headers["x-ms-retry-after-ms"])
        assert 0 < wait_ms <= 1000, wait_ms
        with expect_error(404):
            container.read_item(f"x{n}", "p")
        equal(user_members(container.create_item({"id": f"x{n}", **body})), {"id": f"x{n}", **body})
        world.close()


@check
def a_throttled_request_is_repeated_by_the_sdk(world):
    container = world.container()
    fault = {"container": container.id, "operation": "create_item", "status": 429, "subStatus": 3200,
             "retryAfterMs": 1, "count": 2}
    world.manage("POST", "faults", fault)
    try:
        created = container.create_item({"id": "a", "pk": "p"})
        hits = [rule["hits"] for rule in world.manage("GET", "faults")["faults"]]
    finally:
        world.manage("DELETE", "faults")
    equal(user_members(created), {"id": "a", "pk": "p"})
    equal(hits, [2])


@check
def a_lost_answer_to_a_read_is_repeated_by_the_sdk(world):
    container = world.container()
    container.create_item({"id": "a", "pk": "p"})
    fault = {"container": container.id, "operation": "read_item", "drop": "after", "count": 1}
    world.manage("POST", "faults", fault)
    try:
        found = container.read_item("a", "p")
        hits = [rule["hits"] for rule in world.manage("GET", "faults")["faults"]]
    finally:
        world.manage("DELETE", "faults")
    equal(user_members(found), {"id": "a", "pk": "p"})
    equal(hits, [1])


@check
def a_connection_string_is_enough(world):
    text = f"AccountEndpoint={world.endpoint};AccountKey={world.key};"
    with CosmosClient.from_connection_string(text) as client:
        equal(client.get_database_client(world.database.id).read()["id"], world.database.id)
