"""Refusals: their status, sub-status, message and headers."""

from azure.cosmos import PartitionKey

from .harness import check, equal, expect_error, unique


@check
def a_missing_database_and_container_are_not_found(world):
    missing = world.client.get_database_client(unique("none"))
    with expect_error(404, 0, "Resource Not Found"):
        missing.read()
    with expect_error(404, 0):
        missing.create_container("c", partition_key=PartitionKey(path="/pk"))
    with expect_error(404):
        missing.get_container_client("c").create_item({"id": "a", "pk": "p"})
    with expect_error(404):
        world.database.get_container_client(unique("none")).read_item("a", "p")
    with expect_error(404):
        list(world.database.get_container_client(unique("none")).query_items("SELECT * FROM c", partition_key="p"))


@check
def an_error_has_an_activity_id_and_a_charge(world):
    container = world.container()
    with expect_error(404, 0) as error:
        container.read_item("a", "p")
    headers = error.value.headers
    equal(len(headers["x-ms-activity-id"]), 36)
    equal(float(headers["x-ms-request-charge"]), 1.0)
    assert "Code: NotFound" in str(error.value), str(error.value)


@check
def a_key_with_too_few_levels_is_refused(world):
    container = world.container("/a", "/b")
    container.create_item({"id": "x", "a": "1", "b": "2"})
    with expect_error(400, 1001):
        container.read_item("x", ["1"], initial_headers={"x-ms-documentdb-partitionkey": '["1"]'})


@check
def a_body_that_does_not_fit_its_key_is_refused(world):
    container = world.container()
    connection = container.client_connection
    link = container.container_link
    with expect_error(400, 1001, "PartitionKey extracted from document doesn't match the one specified in the header."):
        connection.CreateItem(link, {"id": "a", "pk": "p"}, {"partitionKey": "q"})


@check
def a_bad_id_is_refused(world):
    container = world.container()
    for name in ("", 5, None, ["a"]):
        with expect_error(400):
            container.client_connection.CreateItem(
                container.container_link, _Unchecked(id=name, pk="p"), {"partitionKey": "p", "disableAutomaticIdGeneration": True}
            )


class _Unchecked(dict):
    """A body whose id the SDK does not check: the SDK's check sees an empty id."""

    def get(self, name, default=None):
        return "" if name == "id" else super().get(name, default)


@check
def a_bad_container_definition_is_refused(world):
    for path in ("pk", "/pk/", "/a//b"):
        with expect_error(400):
            world.database.create_container(unique("c"), partition_key=PartitionKey(path=path))
    with expect_error(400):
        world.database.create_container(
            unique("c"), partition_key=PartitionKey(path=["/a", "/b", "/c", "/d"], kind="MultiHash")
        )
    with expect_error(400):
        world.database.create_container(
            unique("c"), partition_key=PartitionKey(path="/pk"), indexing_policy={"indexingMode": "sometimes"}
        )


@check
def a_container_without_conflicts_lists_none(world):
    container = world.container()
    equal(list(container.list_conflicts()), [])
    equal(list(container.query_conflicts("SELECT * FROM c", enable_cross_partition_query=True)), [])
