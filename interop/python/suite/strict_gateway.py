"""The server without `--merge-in-gateway`: it refuses queries that the real gateway cannot
merge, with 400/1004. Then the SDK fetches a plan and merges the four ranges itself."""

from .harness import check, equal, expect_error, pages, rows, same_elements
from .partitions import ALL_IDS, ITEM_COUNT, filled, shared


def with_plan(world, container, query, **options):
    """The rows of a query that is refused first and then answered with a plan. Asserts
    both."""
    world.manage("DELETE", "counters")
    found = rows(container, query, **options)
    counted = world.manage("GET", "counters")["operations"]
    assert counted["query"]["statuses"].get("400", 0) >= 1, f"not refused: {query}: {counted}"
    assert counted["query_plan"]["statuses"] == {"200": counted["query_plan"]["requests"]}, counted
    return found


@check(on="strict")
def plain_queries_need_no_plan(world):
    container = shared(world)
    world.manage("DELETE", "counters")
    equal(sorted(rows(container, "SELECT VALUE c.id FROM c")), ALL_IDS)
    equal(rows(container, "SELECT VALUE c.n FROM c WHERE c.id IN ('003')"), [3])
    equal(rows(container, "SELECT VALUE c.n FROM c ORDER BY c.n", pk="p5"), [5])
    equal("query_plan" in world.manage("GET", "counters")["operations"], False)


@check(on="strict")
def order_by_is_merged_by_the_sdk(world):
    container = shared(world)
    equal(with_plan(world, container, "SELECT VALUE c.id FROM c ORDER BY c.id"), ALL_IDS)
    equal(with_plan(world, container, "SELECT VALUE c.n FROM c ORDER BY c.n DESC"), list(range(ITEM_COUNT - 1, -1, -1)))
    whole = with_plan(world, container, "SELECT * FROM c WHERE c.n >= 55 ORDER BY c.n")
    equal([row["n"] for row in whole], [55, 56, 57, 58, 59])
    equal(
        with_plan(world, container, "SELECT c.id, c.n FROM c WHERE c.fifth = 3 AND c.n > 40 ORDER BY c.n"),
        [{"id": f"{n:03}", "n": n} for n in (43, 48, 53, 58)],
    )


@check(on="strict")
def order_by_two_keys_is_merged_by_the_sdk(world):
    statement = "SELECT VALUE [c.fifth, c.n] FROM c ORDER BY c.fifth ASC, c.n DESC"
    with expect_error(400) as error:
        rows(shared(world), statement)
    assert "does not have a corresponding composite index" in str(error.value), error.value
    columns = [{"path": "/fifth", "order": "ascending"}, {"path": "/n", "order": "descending"}]
    container = filled(world, indexing_policy={"compositeIndexes": [columns]})
    found = with_plan(world, container, statement)
    equal(found, sorted(([n % 5, n] for n in range(ITEM_COUNT)), key=lambda pair: (pair[0], -pair[1])))


@check(on="strict")
def order_by_text_is_merged_by_the_sdk(world):
    # The values have one type, because this SDK refuses to merge values of several types.
    container = world.container()
    ordered = ["", " ", "A", "B", "a", "aa", "b", "ß", "日"]
    for place, value in enumerate(reversed(ordered)):
        container.create_item({"id": str(place), "pk": f"p{place}", "v": value})
    found = with_plan(world, container, "SELECT c.v FROM c ORDER BY c.v")
    equal([row["v"] for row in found], ordered)


@check(on="strict")
def aggregates_are_merged_by_the_sdk(world):
    container = shared(world)
    numbers = list(range(ITEM_COUNT))
    for query, expected in (
        ("SELECT VALUE COUNT(1) FROM c", ITEM_COUNT),
        ("SELECT VALUE COUNT(1) FROM c WHERE c.n < 10", 10),
        ("SELECT VALUE SUM(c.n) FROM c", sum(numbers)),
        ("SELECT VALUE AVG(c.n) FROM c", sum(numbers) / ITEM_COUNT),
        ("SELECT VALUE MIN(c.n) FROM c", 0),
        ("SELECT VALUE MAX(c.n) FROM c", ITEM_COUNT - 1),
        ("SELECT VALUE MAX(c.id) FROM c WHERE c.n < 30", "029"),
    ):
        equal((query, with_plan(world, container, query)), (query, [expected]))


@check(on="strict")
def top_is_applied_by_the_sdk(world):
    container = shared(world)
    equal(with_plan(world, container, "SELECT TOP 7 VALUE c.n FROM c ORDER BY c.n"), list(range(7)))
    found = with_plan(world, container, "SELECT TOP 7 * FROM c")
    equal(len({row["id"] for row in found}), 7)
    equal(with_plan(world, container, "SELECT TOP @k VALUE c.n FROM c ORDER BY c.n", parameters={"@k": 2}), [0, 1])


@check(on="strict")
def offset_and_limit_are_applied_by_the_sdk(world):
    container = shared(world)
    equal(with_plan(world, container, "SELECT VALUE c.n FROM c ORDER BY c.n OFFSET 10 LIMIT 5"), [10, 11, 12, 13, 14])
    equal(with_plan(world, container, "SELECT VALUE c.n FROM c ORDER BY c.n DESC OFFSET 58 LIMIT 5"), [1, 0])
    equal(len(with_plan(world, container, "SELECT * FROM c OFFSET 50 LIMIT 50")), 10)


@check(on="strict")
def distinct_is_merged_by_the_sdk(world):
    container = shared(world)
    same_elements(with_plan(world, container, "SELECT DISTINCT VALUE c.fifth FROM c"), [0, 1, 2, 3, 4])
    same_elements(with_plan(world, container, "SELECT DISTINCT c.seventh FROM c"), [{"seventh": n} for n in range(7)])
    equal(with_plan(world, container, "SELECT DISTINCT VALUE c.seventh FROM c ORDER BY c.seventh DESC"), [6, 5, 4, 3, 2, 1, 0])
    equal(len(with_plan(world, container, "SELECT DISTINCT TOP 3 c.fifth FROM c")), 3)


@check(on="strict")
def merged_results_come_in_pages(world):
    container = shared(world)
    query = "SELECT VALUE c.id FROM c ORDER BY c.id"
    sizes, found = [], []
    for page, _ in pages(container.query_items(query, enable_cross_partition_query=True, max_item_count=25)):
        sizes.append(len(page))
        found += page
    equal(found, ALL_IDS)
    equal(sizes, [25, 25, 10])


@check(on="strict")
def a_query_that_the_sdk_cannot_merge_is_refused(world):
    container = shared(world)
    with expect_error(400, text="Cross partition query only supports 'VALUE <AggregateFunc>' for aggregates"):
        rows(container, "SELECT COUNT(1) AS n FROM c")
    with expect_error(400):
        rows(container, "SELECT c.fifth, COUNT(1) AS n FROM c GROUP BY c.fifth")


@check(on="strict")
def a_query_of_one_partition_is_never_refused(world):
    container = world.container()
    for n in range(6):
        container.create_item({"id": str(n), "pk": "p", "g": n % 2})
    equal(rows(container, "SELECT VALUE COUNT(1) FROM c", pk="p"), [6])
    same_elements(
        rows(container, "SELECT c.g, COUNT(1) AS n FROM c GROUP BY c.g", pk="p"), [{"g": 0, "n": 3}, {"g": 1, "n": 3}]
    )
    equal(rows(container, "SELECT DISTINCT VALUE c.g FROM c ORDER BY c.g DESC", pk="p"), [1, 0])
    equal(rows(container, "SELECT VALUE c.id FROM c ORDER BY c.id OFFSET 1 LIMIT 2", pk="p"), ["1", "2"])


@check(on="strict")
def a_merged_query_survives_a_split(world):
    container = filled(world)
    reader = world.same_container(container, world.new_client())
    equal(rows(reader, "SELECT VALUE c.id FROM c ORDER BY c.id"), ALL_IDS)
    # The last range is split. After the split of an earlier range, azure-cosmos 4.17.1 reads
    # some ranges twice: it creates its readers of all ranges again, and keeps old ones.
    world.split(container, 3)
    equal(rows(reader, "SELECT VALUE c.id FROM c ORDER BY c.id"), ALL_IDS)
    equal(rows(reader, "SELECT VALUE COUNT(1) FROM c"), [ITEM_COUNT])


@check(on="strict")
def a_filter_on_the_partition_key_narrows_the_plan(world):
    container = shared(world)
    equal(with_plan(world, container, "SELECT VALUE c.n FROM c WHERE c.pk = 'p5' ORDER BY c.n"), [5])
    equal(with_plan(world, container, "SELECT VALUE c.n FROM c WHERE c.pk IN ('p5', 'p9', 'p7') ORDER BY c.n"), [5, 7, 9])
    query = "SELECT VALUE COUNT(1) FROM c WHERE c.pk = @key"
    equal(with_plan(world, container, query, parameters={"@key": "p9"}), [1])


@check(on="strict")
def joins_are_merged_by_the_sdk(world):
    container = world.container()
    for n in range(12):
        container.create_item({"id": str(n), "pk": f"p{n}", "n": n, "tags": [n % 3, n % 2]})
    found = with_plan(world, container, "SELECT VALUE [c.n, t] FROM c JOIN t IN c.tags WHERE c.n < 4 ORDER BY c.n")
    equal(found, [[0, 0], [0, 0], [1, 1], [1, 1], [2, 2], [2, 0], [3, 0], [3, 1]])
    equal(with_plan(world, container, "SELECT VALUE COUNT(1) FROM c JOIN t IN c.tags WHERE t = 0"), [4 + 6])
    same_elements(with_plan(world, container, "SELECT DISTINCT VALUE t FROM t IN c.tags"), [0, 1, 2])


@check(on="strict")
def counts_and_order_by_work_on_each_feed_range(world):
    container = shared(world)
    ranges = list(container.read_feed_ranges())
    counts = [list(container.query_items("SELECT VALUE COUNT(1) FROM c", feed_range=part)) for part in ranges]
    equal(sum(count for [count] in counts), ITEM_COUNT)
    ordered = [list(container.query_items("SELECT VALUE c.n FROM c ORDER BY c.n", feed_range=part)) for part in ranges]
    equal(ordered, [sorted(part) for part in ordered])
    equal(sorted(n for part in ordered for n in part), list(range(ITEM_COUNT)))
    one = container.feed_range_from_partition_key("p3")
    equal(list(container.query_items("SELECT VALUE c.n FROM c ORDER BY c.n", feed_range=one)), [3])


@check(on="strict")
def read_items_needs_no_plan(world):
    container = shared(world)
    found = container.read_items(items=[(name, f"p{int(name)}") for name in ALL_IDS])
    equal([item["id"] for item in found], ALL_IDS)


@check(on="strict")
def prefixes_of_hierarchical_keys_are_queried(world):
    container = world.container("/a", "/b", "/c")
    for n in range(30):
        container.create_item({"id": str(n), "a": f"a{n % 2}", "b": f"b{n % 5}", "c": f"c{n}", "n": n})
    even = list(range(0, 30, 2))
    equal(sorted(rows(container, "SELECT VALUE c.n FROM c", pk=["a0"])), even)
    equal(rows(container, "SELECT VALUE c.n FROM c ORDER BY c.n DESC", pk=["a0"]), even[::-1])
    equal(rows(container, "SELECT VALUE COUNT(1) FROM c", pk=["a1", "b1"]), [3])
    equal(rows(container, "SELECT VALUE c.n FROM c WHERE c.a = 'a0' AND c.b = 'b0' ORDER BY c.n"), [0, 10, 20])
    container.delete_all_items_by_partition_key(["a0", "b0", "c0"])
    equal(rows(container, "SELECT VALUE c.n FROM c WHERE c.a = 'a0' AND c.b = 'b0' ORDER BY c.n"), [10, 20])


@check(on="strict")
def a_page_has_rows_of_one_range(world):
    container = filled(world, 24)
    found = [len(page) for page, _ in pages(container.query_items("SELECT * FROM c", enable_cross_partition_query=True))]
    equal(sum(found), 24)
    ranges = container.read_feed_ranges()
    by_range = [len(list(container.query_items("SELECT * FROM c", feed_range=part))) for part in ranges]
    equal([size for size in found if size], [size for size in by_range if size])
