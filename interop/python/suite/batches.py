"""Transactional batches: operations on one partition that are all done, or none."""

from .harness import check, equal, expect_error, rows, user_members

FAILED_DEPENDENCY = 424


def statuses(results):
    return [result["statusCode"] for result in results]


@check
def a_batch_of_every_verb_succeeds(world):
    container = world.container()
    for name in ("read", "replace", "delete", "patch", "upsert"):
        container.create_item({"id": name, "pk": "p", "n": 1})
    results = container.execute_item_batch(
        [
            ("create", ({"id": "create", "pk": "p", "n": 2},)),
            ("read", ("read",)),
            ("replace", ("replace", {"id": "replace", "pk": "p", "n": 3})),
            ("upsert", ({"id": "upsert", "pk": "p", "n": 4},)),
            ("upsert", ({"id": "fresh", "pk": "p", "n": 5},)),
            ("patch", ("patch", [{"op": "incr", "path": "/n", "value": 5}])),
            ("delete", ("delete",)),
        ],
        partition_key="p",
    )
    equal(statuses(results), [201, 200, 200, 200, 201, 200, 204])
    equal([user_members(result["resourceBody"])["n"] for result in results[:6]], [2, 1, 3, 4, 5, 6])
    equal(sorted(results[6]), ["requestCharge", "statusCode"])
    for result in results[:6]:
        equal(result["eTag"], result["resourceBody"]["_etag"])
        assert result["requestCharge"] > 0
    equal(
        rows(container, "SELECT c.id, c.n FROM c ORDER BY c.n", pk="p"),
        [
            {"id": "read", "n": 1}, {"id": "create", "n": 2}, {"id": "replace", "n": 3}, {"id": "upsert", "n": 4},
            {"id": "fresh", "n": 5}, {"id": "patch", "n": 6},
        ],
    )


@check
def the_charges_of_a_batch_add_up(world):
    container = world.container()
    results = container.execute_item_batch([("create", ({"id": str(n), "pk": "p"},)) for n in range(2)], partition_key="p")
    headers = results.get_response_headers()
    total = sum(result["requestCharge"] for result in results)
    assert abs(total - float(headers["x-ms-request-charge"])) < 0.02, (total, headers["x-ms-request-charge"])
    equal(headers["x-ms-item-count"], "2")
    etags = {result["eTag"] for result in results}
    equal(len(etags), 2)


@check
def later_operations_see_earlier_ones(world):
    container = world.container()
    results = container.execute_item_batch(
        [
            ("create", ({"id": "a", "pk": "p", "n": 1},)),
            ("patch", ("a", [{"op": "incr", "path": "/n", "value": 1}])),
            ("read", ("a",)),
            ("replace", ("a", {"id": "a", "pk": "p", "n": 10})),
            ("delete", ("a",)),
            ("create", ({"id": "a", "pk": "p", "n": 20},)),
        ],
        partition_key="p",
    )
    equal(statuses(results), [201, 200, 200, 200, 204, 201])
    equal(results[2]["resourceBody"]["n"], 2)
    equal(container.read_item("a", "p")["n"], 20)


@check
def a_failed_batch_leaves_nothing_behind(world):
    container = world.container()
    before = container.create_item({"id": "there", "pk": "p", "n": 1})
    with expect_error(409) as error:
        container.execute_item_batch(
            [
                ("create", ({"id": "a", "pk": "p"},)),
                ("replace", ("there", {"id": "there", "pk": "p", "n": 2})),
                ("create", ({"id": "there", "pk": "p"},)),
                ("create", ({"id": "b", "pk": "p"},)),
            ],
            partition_key="p",
        )
    equal(error.value.error_index, 2)
    equal(statuses(error.value.operation_responses), [FAILED_DEPENDENCY, FAILED_DEPENDENCY, 409, FAILED_DEPENDENCY])
    equal(sorted(error.value.operation_responses[0]), ["requestCharge", "statusCode"])
    equal(rows(container, "SELECT VALUE c.id FROM c"), ["there"])
    equal(dict(container.read_item("there", "p")), dict(before))


@check
def a_failed_delete_rolls_back_deletes_and_patches(world):
    container = world.container()
    kept = [container.create_item({"id": name, "pk": "p", "n": 1}) for name in ("a", "b")]
    with expect_error(404) as error:
        container.execute_item_batch(
            [("delete", ("a",)), ("patch", ("b", [{"op": "incr", "path": "/n", "value": 1}])), ("delete", ("none",))],
            partition_key="p",
        )
    equal(error.value.error_index, 2)
    equal([dict(container.read_item(item["id"], "p")) for item in kept], [dict(item) for item in kept])


@check
def preconditions_hold_inside_a_batch(world):
    container = world.container()
    first = container.create_item({"id": "a", "pk": "p", "n": 1})
    current = container.replace_item("a", {"id": "a", "pk": "p", "n": 2})
    for verb in (
        ("replace", ("a", {"id": "a", "pk": "p", "n": 3})),
        ("upsert", ({"id": "a", "pk": "p", "n": 3},)),
        ("patch", ("a", [{"op": "set", "path": "/n", "value": 3}])),
        ("delete", ("a",)),
    ):
        with expect_error(412) as error:
            container.execute_item_batch(
                [("create", ({"id": "b", "pk": "p"},)), (*verb, {"if_match_etag": first["_etag"]})], partition_key="p"
            )
        equal(statuses(error.value.operation_responses), [FAILED_DEPENDENCY, 412])
    equal(dict(container.read_item("a", "p")), dict(current))
    results = container.execute_item_batch(
        [
            ("create", ({"id": "b", "pk": "p"},)),
            ("replace", ("a", {"id": "a", "pk": "p", "n": 3}), {"if_match_etag": current["_etag"]}),
        ],
        partition_key="p",
    )
    equal(statuses(results), [201, 200])


@check
def a_patch_condition_holds_inside_a_batch(world):
    container = world.container()
    container.create_item({"id": "a", "pk": "p", "n": 1})
    patch = ("patch", ("a", [{"op": "incr", "path": "/n", "value": 1}]), {"filter_predicate": "from c where c.n = 1"})
    equal(container.execute_item_batch([patch], partition_key="p")[0]["resourceBody"]["n"], 2)
    patch[2]["filter_predicate"] = "from c where c.n = 1"
    with expect_error(412):
        container.execute_item_batch([("create", ({"id": "b", "pk": "p"},)), patch], partition_key="p")
    equal(rows(container, "SELECT c.id, c.n FROM c", pk="p"), [{"id": "a", "n": 2}])


@check
def an_item_of_another_partition_fails_the_batch(world):
    container = world.container()
    with expect_error(400) as error:
        container.execute_item_batch(
            [("create", ({"id": "a", "pk": "p"},)), ("create", ({"id": "b", "pk": "q"},))], partition_key="p"
        )
    equal(error.value.error_index, 1)
    equal(rows(container, "SELECT * FROM c"), [])


@check
def a_batch_has_at_most_a_hundred_operations(world):
    container = world.container()
    create = lambda n: ("create", ({"id": str(n), "pk": "p"},))
    equal(statuses(container.execute_item_batch([create(n) for n in range(100)], partition_key="p")), [201] * 100)
    with expect_error(400, text="more operations than what is supported"):
        container.execute_item_batch([create(n) for n in range(100, 201)], partition_key="p")
    equal(rows(container, "SELECT VALUE COUNT(1) FROM c", pk="p"), [100])


@check
def a_batch_has_at_most_two_megabytes(world):
    container = world.container()
    text = "x" * 700_000
    with expect_error(413):
        container.execute_item_batch(
            [("create", ({"id": str(n), "pk": "p", "text": text},)) for n in range(3)], partition_key="p"
        )
    equal(rows(container, "SELECT * FROM c"), [])
    done = container.execute_item_batch(
        [("create", ({"id": str(n), "pk": "p", "text": text},)) for n in range(2)], partition_key="p"
    )
    equal(statuses(done), [201, 201])


@check
def a_batch_has_one_lsn(world):
    container = world.container()
    before = int(container.create_item({"id": "x", "pk": "p"}).get_response_headers()["lsn"])
    results = container.execute_item_batch([("create", ({"id": str(n), "pk": "p"},)) for n in range(5)], partition_key="p")
    equal(int(results.get_response_headers()["lsn"]), before + 1)
    feed = list(container.query_items_change_feed(start_time="Beginning"))
    equal([item["_lsn"] for item in feed], [before] + [before + 1] * 5)
