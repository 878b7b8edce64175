"""Patch: every operation, the order of operations, conditions, and that all operations of
a patch are done or none."""

from concurrent.futures import ThreadPoolExecutor

from .harness import check, equal, expect_error, user_members


def patched(world, item, operations, **options):
    """Creates an item and patches it. Returns its members without id and partition key."""
    container = world.container()
    container.create_item({"id": "a", "pk": "p", **item})
    answer = container.patch_item("a", "p", operations, **options)
    equal(dict(container.read_item("a", "p")), dict(answer))
    found = user_members(answer)
    equal((found.pop("id"), found.pop("pk")), ("a", "p"))
    return found


@check
def add_sets_a_member_and_inserts_into_an_array(world):
    operations = [
        {"op": "add", "path": "/new", "value": {"x": 1}},
        {"op": "add", "path": "/new/y", "value": None},
        {"op": "add", "path": "/list/1", "value": "inserted"},
        {"op": "add", "path": "/list/-", "value": "last"},
    ]
    equal(
        patched(world, {"list": ["a", "b"]}, operations),
        {"list": ["a", "inserted", "b", "last"], "new": {"x": 1, "y": None}},
    )


@check
def set_replaces_or_creates_a_member(world):
    operations = [
        {"op": "set", "path": "/n", "value": 2},
        {"op": "set", "path": "/fresh", "value": [1]},
        {"op": "set", "path": "/list/0", "value": "A"},
        {"op": "set", "path": "/deep/er", "value": True},
    ]
    equal(
        patched(world, {"n": 1, "list": ["a", "b"], "deep": {}}, operations),
        {"n": 2, "list": ["A", "b"], "deep": {"er": True}, "fresh": [1]},
    )


@check
def replace_of_a_missing_path_is_refused(world):
    operations = [
        {"op": "replace", "path": "/n", "value": "two"},
        {"op": "replace", "path": "/list/1", "value": "B"},
    ]
    equal(patched(world, {"n": 1, "list": ["a", "b"]}, operations), {"n": "two", "list": ["a", "B"]})
    container = world.container()
    before = container.create_item({"id": "a", "pk": "p"})
    with expect_error(400):
        container.patch_item("a", "p", [{"op": "replace", "path": "/missing", "value": 1}])
    equal(container.read_item("a", "p")["_etag"], before["_etag"])


@check
def remove_deletes_members_and_elements(world):
    operations = [{"op": "remove", "path": "/n"}, {"op": "remove", "path": "/list/0"}, {"op": "remove", "path": "/deep/x"}]
    equal(
        patched(world, {"n": 1, "list": ["a", "b"], "deep": {"x": 1, "y": 2}}, operations),
        {"list": ["b"], "deep": {"y": 2}},
    )
    container = world.container()
    container.create_item({"id": "a", "pk": "p"})
    with expect_error(400):
        container.patch_item("a", "p", [{"op": "remove", "path": "/missing"}])


@check
def incr_adds_to_a_number_or_creates_it(world):
    operations = [
        {"op": "incr", "path": "/n", "value": 5},
        {"op": "incr", "path": "/n", "value": -2},
        {"op": "incr", "path": "/real", "value": 0.5},
        {"op": "incr", "path": "/made", "value": 7},
    ]
    equal(patched(world, {"n": 10, "real": 1.25}, operations), {"n": 13, "real": 1.75, "made": 7})
    container = world.container()
    container.create_item({"id": "a", "pk": "p", "text": "x"})
    with expect_error(400):
        container.patch_item("a", "p", [{"op": "incr", "path": "/text", "value": 1}])


@check
def move_moves_a_value_to_another_path(world):
    operations = [
        {"op": "move", "from": "/old", "path": "/new"},
        {"op": "move", "from": "/deep/x", "path": "/x"},
    ]
    equal(
        patched(world, {"old": {"v": 1}, "deep": {"x": 2, "y": 3}}, operations),
        {"deep": {"y": 3}, "new": {"v": 1}, "x": 2},
    )


@check
def operations_are_done_in_order(world):
    operations = [
        {"op": "set", "path": "/n", "value": 7},
        {"op": "incr", "path": "/n", "value": 3},
        {"op": "add", "path": "/list", "value": []},
        {"op": "add", "path": "/list/-", "value": 1},
        {"op": "add", "path": "/list/0", "value": 0},
    ]
    equal(patched(world, {}, operations), {"n": 10, "list": [0, 1]})


@check
def a_patch_keeps_the_rid_and_changes_the_etag(world):
    container = world.container()
    created = container.create_item({"id": "a", "pk": "p"})
    answer = container.patch_item(created, "p", [{"op": "add", "path": "/n", "value": 1}])
    equal(answer["_rid"], created["_rid"])
    assert answer["_etag"] != created["_etag"]
    equal(answer.get_response_headers()["etag"], answer["_etag"])


@check
def a_patch_whose_condition_holds_is_applied(world):
    operations = [{"op": "incr", "path": "/stock", "value": -1}]
    condition = "from c where c.stock > 0 and c.kind = 'shoe'"
    equal(
        patched(world, {"stock": 1, "kind": "shoe"}, operations, filter_predicate=condition),
        {"stock": 0, "kind": "shoe"},
    )


@check
def a_condition_that_fails_is_412_and_changes_nothing(world):
    container = world.container()
    before = container.create_item({"id": "a", "pk": "p", "stock": 0})
    with expect_error(412):
        container.patch_item(
            "a", "p", [{"op": "incr", "path": "/stock", "value": -1}], filter_predicate="from c where c.stock > 0"
        )
    equal(dict(container.read_item("a", "p")), dict(before))


@check
def a_patch_is_all_or_nothing(world):
    container = world.container()
    before = container.create_item({"id": "a", "pk": "p", "n": 1})
    with expect_error(400):
        container.patch_item(
            "a", "p", [{"op": "set", "path": "/n", "value": 2}, {"op": "replace", "path": "/none", "value": 1}]
        )
    equal(dict(container.read_item("a", "p")), dict(before))


@check
def a_patch_of_the_partition_key_or_of_nothing_is_refused(world):
    container = world.container()
    container.create_item({"id": "a", "pk": "p"})
    with expect_error(400):
        container.patch_item("a", "p", [{"op": "set", "path": "/pk", "value": "q"}])
    with expect_error(400):
        container.patch_item("a", "p", [])
    with expect_error(404):
        container.patch_item("none", "p", [{"op": "set", "path": "/n", "value": 1}])


@check
def a_patch_has_at_most_ten_operations(world):
    container = world.container()
    container.create_item({"id": "a", "pk": "p", "n": 0})
    one = {"op": "incr", "path": "/n", "value": 1}
    equal(container.patch_item("a", "p", [one] * 10)["n"], 10)
    with expect_error(400):
        container.patch_item("a", "p", [one] * 11)
    equal(container.read_item("a", "p")["n"], 10)


@check
def paths_are_escaped_as_json_pointers(world):
    operations = [
        {"op": "set", "path": "/a~1b", "value": 5},
        {"op": "set", "path": "/a~0b", "value": 6},
        {"op": "set", "path": "/x/é", "value": 7},
    ]
    equal(patched(world, {"a/b": 1, "a~b": 2, "x": {"é": 3}}, operations), {"a/b": 5, "a~b": 6, "x": {"é": 7}})


@check(on="four")
def concurrent_increments_are_all_counted(world):
    container = world.container()
    container.create_item({"id": "a", "pk": "p", "n": 0})
    add = lambda _: container.patch_item("a", "p", [{"op": "incr", "path": "/n", "value": 1}])["n"]
    with ThreadPoolExecutor(8) as pool:
        seen = list(pool.map(add, range(80)))
    equal(sorted(seen), list(range(1, 81)))
    equal(container.read_item("a", "p")["n"], 80)
