"""The change feed: where it starts, how it resumes, and which changes it leaves out."""

import time
from datetime import datetime, timezone

from .harness import Answers, check, equal, eventually, ids, unique, user_members


def changes(container, **options):
    """The changes of a feed, and the continuation token after them."""
    paged = container.query_items_change_feed(**options)
    found = list(paged)
    return found, container.client_connection.last_response_headers["etag"]


@check
def the_feed_from_the_beginning_has_the_last_version_of_each_item(world):
    container = world.container()
    for name in ("a", "b", "c"):
        container.create_item({"id": name, "pk": name, "n": 1})
    container.replace_item("a", {"id": "a", "pk": "a", "n": 2})
    container.delete_item("b", "b")
    found, _ = changes(container, start_time="Beginning")
    equal([user_members(item) for item in found], [{"id": "c", "pk": "c", "n": 1}, {"id": "a", "pk": "a", "n": 2}])
    equal([item["_lsn"] for item in found], sorted(item["_lsn"] for item in found))
    equal(found[1]["_etag"], container.read_item("a", "a")["_etag"])


@check
def the_feed_goes_on_from_a_continuation(world):
    container = world.container()
    container.create_item({"id": "a", "pk": "p"})
    found, token = changes(container, start_time="Beginning")
    equal(ids(found), ["a"])
    found, token = changes(container, continuation=token)
    equal(found, [])
    container.create_item({"id": "b", "pk": "q"})
    container.upsert_item({"id": "a", "pk": "p", "n": 2})
    found, token = changes(container, continuation=token)
    equal(ids(found), ["b", "a"])
    # A continuation is a string that another client can use later.
    other = world.same_container(container, world.new_client())
    container.create_item({"id": "c", "pk": "p"})
    found, token = changes(other, continuation=token)
    equal(ids(found), ["c"])
    equal(changes(other, continuation=token)[0], [])


@check
def the_feed_from_now_has_only_later_changes(world):
    container = world.container()
    container.create_item({"id": "before", "pk": "p"})
    found, token = changes(container, start_time="Now")
    equal(found, [])
    container.create_item({"id": "after", "pk": "p"})
    equal(ids(changes(container, continuation=token)[0]), ["after"])


@check
def the_feed_starts_at_a_point_in_time(world):
    container = world.container()
    before = container.create_item({"id": "before", "pk": "p"})
    # Time stamps have whole seconds. The next write must get a later time stamp.
    eventually(lambda: int(time.time()) > before["_ts"] + 1, "the next second")
    start = datetime.fromtimestamp(before["_ts"] + 1, timezone.utc)
    after = container.create_item({"id": "after", "pk": "p"})
    assert after["_ts"] > before["_ts"] + 1
    equal(ids(changes(container, start_time=start)[0]), ["after"])
    early = datetime.fromtimestamp(before["_ts"] - 100, timezone.utc)
    equal(ids(changes(container, start_time=early)[0]), ["before", "after"])


@check
def the_feed_of_a_partition_key_has_that_partition_only(world):
    container = world.container()
    for n in range(9):
        container.create_item({"id": str(n), "pk": f"p{n % 3}"})
    found, token = changes(container, start_time="Beginning", partition_key="p1")
    equal(ids(found), ["1", "4", "7"])
    container.create_item({"id": "other", "pk": "p2"})
    container.create_item({"id": "mine", "pk": "p1"})
    equal(ids(changes(container, continuation=token)[0]), ["mine"])


@check
def the_feed_comes_in_pages(world):
    container = world.container()
    for n in range(10):
        container.create_item({"id": str(n), "pk": "p"})
    sizes = [
        len(list(page)) for page in container.query_items_change_feed(start_time="Beginning", max_item_count=4).by_page()
    ]
    equal(sizes, [4, 4, 2])


@check
def a_batch_is_never_divided_between_two_pages(world):
    container = world.container()
    for batch in range(3):
        container.execute_item_batch(
            [("create", ({"id": f"{batch}-{n}", "pk": "p"},)) for n in range(5)], partition_key="p"
        )
    feed = container.query_items_change_feed(start_time="Beginning", max_item_count=2).by_page()
    for page in feed:
        items = list(page)
        for batch in {item["id"][0] for item in items}:
            equal([item["id"] for item in items if item["id"][0] == batch], [f"{batch}-{n}" for n in range(5)])


@check
def a_drained_feed_is_answered_with_304(world):
    container = world.container()
    container.create_item({"id": "a", "pk": "p"})
    _, token = changes(container, start_time="Beginning")
    answers = Answers()
    equal(list(container.query_items_change_feed(continuation=token, raw_response_hook=answers)), [])
    equal(answers.statuses, [304])
    equal(answers.headers["x-ms-session-token"], container.read_item("a", "p").get_response_headers()["x-ms-session-token"])


@check
def the_older_options_of_the_feed_still_work(world):
    container = world.container()
    container.create_item({"id": "a", "pk": "p"})
    equal(ids(container.query_items_change_feed(is_start_from_beginning=True)), ["a"])
    equal(ids(container.query_items_change_feed(is_start_from_beginning=True, partition_key_range_id="0")), ["a"])


@check
def every_version_and_delete_is_in_the_full_feed(world):
    container = world.container()
    container.create_item({"id": "before", "pk": "p"})
    found, token = changes(container, mode="AllVersionsAndDeletes", start_time="Now")
    equal(found, [])
    container.create_item({"id": "a", "pk": "p", "n": 1})
    container.replace_item("a", {"id": "a", "pk": "p", "n": 2})
    container.patch_item("a", "p", [{"op": "incr", "path": "/n", "value": 1}])
    container.delete_item("a", "p")
    found, token = changes(container, continuation=token)
    equal([entry["metadata"]["operationType"] for entry in found], ["create", "replace", "replace", "delete"])
    equal([entry["current"].get("n") for entry in found[:3]], [1, 2, 3])
    deleted = found[3]
    equal(deleted["metadata"].get("timeToLiveExpired", False), False)
    # A delete has the id of the item in its metadata, or the last version of the item.
    name = deleted.get("previous", {}).get("id") or deleted["metadata"].get("id")
    equal(name, "a")
    lsns = [entry["metadata"]["lsn"] for entry in found]
    equal(lsns, sorted(set(lsns)))
    assert all(entry["metadata"]["crts"] > 1_600_000_000 for entry in found), found
    equal(changes(container, continuation=token)[0], [])


@check(on="four")
def the_full_feed_tells_expiry_from_deletion_over_all_ranges(world):
    container = world.container(default_ttl=-1)
    _, token = changes(container, mode="AllVersionsAndDeletes", start_time="Now")
    container.create_item({"id": "expires", "pk": "p0", "ttl": 1})
    container.create_item({"id": "deleted", "pk": "p1"})
    container.delete_item("deleted", "p1")
    container.execute_item_batch(
        [("create", ({"id": "batched", "pk": "p2"},)), ("delete", ("batched",))], partition_key="p2"
    )
    eventually(lambda: not list(container.query_items("SELECT * FROM c", partition_key="p0")), "the item expires")
    world.manage("POST", "maintain")
    found, _ = changes(container, continuation=token)
    kinds_by_item = {}
    for entry in found:
        kind = entry["metadata"]["operationType"]
        if kind == "delete":
            name = entry["metadata"].get("id") or entry["previous"]["id"]
            kind = "expire" if entry["metadata"].get("timeToLiveExpired") else kind
        else:
            name = entry["current"]["id"]
        kinds_by_item.setdefault(name, []).append(kind)
    equal(
        kinds_by_item,
        {"expires": ["create", "expire"], "deleted": ["create", "delete"], "batched": ["create", "delete"]},
    )
