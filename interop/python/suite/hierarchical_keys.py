"""Partition keys of two and three levels: whole keys for items, and prefixes for queries
and change feeds."""

from .harness import check, equal, expect_error, ids, rows, same_elements, user_members

PATHS = ("/tenant", "/user", "/session")


def sessions(world):
    """A container with an item for each of two tenants, users and sessions."""
    container = world.container(*PATHS)
    for tenant in ("t1", "t2"):
        for user in ("u1", "u2"):
            for session in ("s1", "s2"):
                name = f"{tenant}{user}{session}"
                container.create_item({"id": name, "tenant": tenant, "user": user, "session": session})
    return container


@check
def a_container_reports_its_hierarchical_key(world):
    body = world.container(*PATHS).read()
    equal(body["partitionKey"], {"paths": list(PATHS), "kind": "MultiHash", "version": 2})


@check(on="four")
def items_are_addressed_by_the_whole_key(world):
    container = sessions(world)
    item = {"id": "t1u2s1", "tenant": "t1", "user": "u2", "session": "s1"}
    equal(user_members(container.read_item("t1u2s1", ["t1", "u2", "s1"])), item)
    equal(user_members(container.replace_item("t1u2s1", {**item, "n": 1}))["n"], 1)
    equal(container.patch_item("t1u2s1", ["t1", "u2", "s1"], [{"op": "incr", "path": "/n", "value": 1}])["n"], 2)
    with expect_error(404):
        container.read_item("t1u2s1", ["t1", "u1", "s1"])
    container.delete_item("t1u2s1", ["t1", "u2", "s1"])
    equal(rows(container, "SELECT VALUE COUNT(1) FROM c"), [7])


@check(on="four")
def a_whole_key_queries_one_partition(world):
    container = sessions(world)
    equal(rows(container, "SELECT VALUE c.id FROM c", pk=["t2", "u1", "s2"]), ["t2u1s2"])


@check(on="four")
def a_prefix_queries_all_partitions_below(world):
    container = sessions(world)
    same_elements(rows(container, "SELECT VALUE c.id FROM c", pk=["t1"]), ["t1u1s1", "t1u1s2", "t1u2s1", "t1u2s2"])
    same_elements(rows(container, "SELECT VALUE c.id FROM c", pk=["t2", "u2"]), ["t2u2s1", "t2u2s2"])
    equal(rows(container, "SELECT VALUE c.id FROM c ORDER BY c.session DESC", pk=["t2", "u2"]), ["t2u2s2", "t2u2s1"])
    equal(rows(container, "SELECT VALUE COUNT(1) FROM c", pk=["t1"]), [4])
    equal(rows(container, "SELECT * FROM c", pk=["t3"]), [])


@check
def a_batch_belongs_to_one_whole_key(world):
    container = world.container(*PATHS[:2])
    item = lambda name: {"id": name, "tenant": "t", "user": "u"}
    results = container.execute_item_batch(
        [("create", (item("a"),)), ("create", (item("b"),)), ("read", ("a",))], partition_key=["t", "u"]
    )
    equal([result["statusCode"] for result in results], [201, 201, 200])
    with expect_error(400):
        container.execute_item_batch(
            [("create", ({"id": "c", "tenant": "t", "user": "other"},))], partition_key=["t", "u"]
        )


@check(on="four")
def read_items_takes_hierarchical_keys(world):
    container = sessions(world)
    wanted = [("t1u1s1", ["t1", "u1", "s1"]), ("t2u2s2", ["t2", "u2", "s2"]), ("t1u2s1", ["t1", "u2", "s1"])]
    same_elements(ids(container.read_items(items=[*wanted, ("none", ["t1", "u1", "s1"])])), [name for name, _ in wanted])


@check(on="four")
def the_feed_of_a_whole_key_or_of_a_prefix_has_its_items_only(world):
    container = sessions(world)
    feed = lambda key: ids(container.query_items_change_feed(start_time="Beginning", partition_key=key))
    equal(feed(["t1", "u1", "s1"]), ["t1u1s1"])
    equal(sorted(feed(["t2", "u1"])), ["t2u1s1", "t2u1s2"])


@check
def levels_may_be_of_any_type_or_null(world):
    container = world.container(*PATHS[:2])
    container.create_item({"id": "number", "tenant": 1, "user": True})
    container.create_item({"id": "null", "tenant": "t", "user": None})
    equal(container.read_item("number", [1, True])["id"], "number")
    equal(container.read_item("null", ["t", None])["id"], "null")
