"""Several physical partitions: feed ranges, queries across the ranges, and splits while a
client still knows the old ranges."""

from .harness import check, equal, ids, pages, rows, same_elements

ITEM_COUNT = 60


def filled(world, count=ITEM_COUNT, **options):
    """A new container with `count` items, each in a partition of its own."""
    container = world.container(**options)
    for n in range(count):
        container.create_item({"id": f"{n:03}", "pk": f"p{n}", "n": n, "fifth": n % 5, "seventh": n % 7})
    return container


_containers = {}


def shared(world):
    """The container that all checks that only read share."""
    if id(world) not in _containers:
        _containers[id(world)] = filled(world)
    return _containers[id(world)]


ALL_IDS = [f"{n:03}" for n in range(ITEM_COUNT)]


@check(on="four")
def four_ranges_cover_the_key_space(world):
    container = shared(world)
    ranges = list(container.read_feed_ranges())
    equal(len(ranges), 4)
    bounds = sorted((entry["Range"]["min"], entry["Range"]["max"]) for entry in ranges)
    equal((bounds[0][0], bounds[-1][1]), ("", "FF"))
    equal([low for low, _ in bounds[1:]], [high for _, high in bounds[:-1]])


@check(on="four")
def the_ranges_divide_the_items(world):
    container = shared(world)
    parts = [
        list(container.query_items("SELECT VALUE c.id FROM c", feed_range=part)) for part in container.read_feed_ranges()
    ]
    assert all(parts), [len(part) for part in parts]
    equal(sorted(name for part in parts for name in part), ALL_IDS)


@check(on="four")
def a_partition_key_lies_in_one_feed_range(world):
    container = shared(world)
    ranges = list(container.read_feed_ranges())
    for n in range(10):
        key_range = container.feed_range_from_partition_key(f"p{n}")
        ranges_of_key = [part for part in ranges if container.is_feed_range_subset(part, key_range)]
        equal(len(ranges_of_key), 1)
        equal(list(container.query_items("SELECT VALUE c.n FROM c", feed_range=key_range)), [n])
        assert n in list(container.query_items("SELECT VALUE c.n FROM c", feed_range=ranges_of_key[0]))


@check(on="four")
def the_feeds_of_the_ranges_divide_the_changes(world):
    container = shared(world)
    parts = [
        ids(container.query_items_change_feed(feed_range=part, start_time="Beginning"))
        for part in container.read_feed_ranges()
    ]
    assert all(parts), [len(part) for part in parts]
    equal(sorted(name for part in parts for name in part), ALL_IDS)
    equal(sorted(ids(container.query_items_change_feed(start_time="Beginning"))), ALL_IDS)


@check(on="four")
def one_continuation_carries_the_feed_of_all_ranges(world):
    container = filled(world, 20)
    feed = container.query_items_change_feed(start_time="Beginning", max_item_count=3)
    equal(sorted(ids(feed)), ALL_IDS[:20])
    token = container.client_connection.last_response_headers["etag"]
    for n in (3, 7, 11):
        container.upsert_item({"id": f"{n:03}", "pk": f"p{n}", "n": -n})
    same_elements([item["n"] for item in container.query_items_change_feed(continuation=token)], [-3, -7, -11])


@check(on="four")
def queries_across_ranges_are_whole_and_ordered(world):
    container = shared(world)
    equal(sorted(rows(container, "SELECT VALUE c.id FROM c")), ALL_IDS)
    equal(rows(container, "SELECT VALUE c.n FROM c ORDER BY c.n DESC"), list(range(ITEM_COUNT - 1, -1, -1)))
    equal(rows(container, "SELECT TOP 3 VALUE c.n FROM c ORDER BY c.n"), [0, 1, 2])
    equal(rows(container, "SELECT VALUE c.n FROM c ORDER BY c.n OFFSET 20 LIMIT 5"), [20, 21, 22, 23, 24])
    equal(rows(container, "SELECT VALUE SUM(c.n) FROM c"), [sum(range(ITEM_COUNT))])
    equal(rows(container, "SELECT VALUE AVG(c.n) FROM c"), [29.5])
    same_elements(rows(container, "SELECT DISTINCT VALUE c.fifth FROM c"), [0, 1, 2, 3, 4])
    same_elements(
        rows(container, "SELECT c.fifth, COUNT(1) AS k FROM c GROUP BY c.fifth"), [{"fifth": n, "k": 12} for n in range(5)]
    )


@check(on="four")
def pages_across_ranges_miss_and_repeat_nothing(world):
    container = shared(world)
    for query, expected in (
        ("SELECT VALUE c.id FROM c", None),
        ("SELECT VALUE c.id FROM c ORDER BY c.id", ALL_IDS),
        ("SELECT VALUE c.id FROM c WHERE c.n < 30 ORDER BY c.n DESC", ALL_IDS[29::-1]),
    ):
        options = {"enable_cross_partition_query": True, "max_item_count": 7}
        seen = list(pages(container.query_items(query, **options)))
        found = [name for page, _ in seen for name in page]
        if expected is None:
            equal(sorted(found), ALL_IDS)
        else:
            equal(found, expected)
        rest = [name for page, _ in pages(container.query_items(query, **options), seen[1][1]) for name in page]
        equal(rest, found[len(seen[0][0]) + len(seen[1][0]) :])


@check(on="four")
def read_items_gathers_over_all_ranges(world):
    container = shared(world)
    wanted = [(f"{n:03}", f"p{n}") for n in range(ITEM_COUNT)]
    equal(ids(container.read_items(items=wanted)), ALL_IDS)


@check(on="four")
def a_client_with_old_ranges_survives_a_split(world):
    container = filled(world)
    reader = world.same_container(container, world.new_client())
    # The reader learns the four ranges, and a session token for each.
    equal(len(list(reader.read_feed_ranges())), 4)
    equal(ids(reader.read_items(items=[(name, f"p{int(name)}") for name in ALL_IDS])), ALL_IDS)
    children = world.split(container, 1)
    equal(len(children), 2)
    # Point operations, queries and read-many, all with the old list of ranges.
    equal([reader.read_item(name, f"p{int(name)}")["id"] for name in ALL_IDS], ALL_IDS)
    reader.upsert_item({"id": "000", "pk": "p0", "n": 0})
    equal(sorted(rows(reader, "SELECT VALUE c.id FROM c")), ALL_IDS)
    equal(ids(reader.read_items(items=[(name, f"p{int(name)}") for name in ALL_IDS])), ALL_IDS)
    equal(len(list(reader.read_feed_ranges(force_refresh=True))), 5)


@check(on="four")
def feed_ranges_from_before_a_split_still_divide_the_items(world):
    container = filled(world)
    old = list(container.read_feed_ranges())
    other = world.same_container(container, world.new_client())
    world.split(container, 0)
    world.split(container, 2)
    equal(len(list(other.read_feed_ranges(force_refresh=True))), 6)
    for client in (container, other):
        parts = [list(client.query_items("SELECT VALUE c.id FROM c", feed_range=part)) for part in old]
        equal(sorted(name for part in parts for name in part), ALL_IDS)
        equal(sorted(rows(client, "SELECT VALUE c.id FROM c")), ALL_IDS)


@check(on="four")
def a_change_feed_goes_on_over_a_split(world):
    container = filled(world, 30)
    feed = container.query_items_change_feed(start_time="Beginning")
    equal(sorted(ids(feed)), ALL_IDS[:30])
    token = container.client_connection.last_response_headers["etag"]
    world.split(container, 0)
    world.split(container, 3)
    for n in range(30, 40):
        container.create_item({"id": f"{n:03}", "pk": f"p{n}"})
    container.upsert_item({"id": "000", "pk": "p0", "n": 1})
    found = ids(container.query_items_change_feed(continuation=token))
    equal(sorted(found), ["000", *ALL_IDS[30:40]])
    other = world.same_container(container, world.new_client())
    equal(sorted(ids(other.query_items_change_feed(continuation=token))), ["000", *ALL_IDS[30:40]])
    equal(sorted(ids(other.query_items_change_feed(start_time="Beginning"))), ALL_IDS[:40])


@check(on="four")
def a_query_goes_on_over_a_split(world):
    container = filled(world, 40)
    options = {"enable_cross_partition_query": True, "max_item_count": 8}
    iterator = container.query_items("SELECT VALUE c.id FROM c ORDER BY c.id", **options).by_page()
    found = list(next(iterator))
    world.split(container, 2)
    for page in iterator:
        found += list(page)
    equal(found, ALL_IDS[:40])


@check
def the_only_range_splits_again_and_again(world):
    container = filled(world, 30)
    known = ["0"]
    for _ in range(3):
        children = world.split(container, known[0])
        known = known[1:] + children
        equal([container.read_item(name, f"p{int(name)}")["id"] for name in ALL_IDS[:30]], ALL_IDS[:30])
        equal(rows(container, "SELECT VALUE COUNT(1) FROM c"), [30])
    equal(len(list(container.read_feed_ranges(force_refresh=True))), 4)
    container.create_item({"id": "new", "pk": "p0"})
    equal(container.read_item("new", "p0")["id"], "new")
