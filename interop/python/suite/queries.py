"""Queries as the SDK sends them: in one partition and across all partitions, with
parameters, pages and continuation tokens."""

from .harness import check, equal, expect_error, ids, pages, rows, same_elements

PEOPLE = [
    {"id": "ada", "pk": "a", "name": "Ada", "age": 36, "city": "London", "tags": ["math", "code"], "height": 1.65},
    {"id": "bob", "pk": "a", "name": "Bob", "age": 25, "city": "Paris", "tags": ["code"], "boss": "ada"},
    {"id": "cyd", "pk": "b", "name": "Cyd", "age": 41, "city": "London", "tags": [], "boss": None},
    {"id": "dan", "pk": "b", "name": "Dan", "age": 25, "city": "Rome", "tags": ["art", "math"], "boss": "cyd"},
    {"id": "eve", "pk": "c", "name": "eve", "age": 19, "city": "Paris", "tags": ["art"],
     "pets": [{"kind": "cat", "age": 3}, {"kind": "dog", "age": 5}]},
    {"id": "flo", "pk": "c", "name": "Flo", "age": 52, "city": "London", "tags": ["code", "math"],
     "pets": [{"kind": "cat", "age": 9}]},
]

_containers = {}


def people(world):
    """The container with PEOPLE that all checks that only read share."""
    if id(world) not in _containers:
        container = _containers[id(world)] = world.container()
        for person in PEOPLE:
            container.create_item(person)
    return _containers[id(world)]


@check
def a_query_sees_one_partition_or_all(world):
    container = people(world)
    equal(rows(container, "SELECT VALUE c.id FROM c", pk="a"), ["ada", "bob"])
    equal(rows(container, "SELECT VALUE c.id FROM c"), ["ada", "bob", "cyd", "dan", "eve", "flo"])
    equal(rows(container, "SELECT * FROM c", pk="nobody"), [])
    whole = rows(container, "SELECT * FROM c WHERE c.id = 'ada'", pk="a")
    equal(whole, [dict(container.read_item("ada", "a"))])


@check
def a_query_without_key_must_be_allowed_to_cross_partitions(world):
    container = people(world)
    with expect_error(400, text="Cross partition query is required but disabled"):
        list(container.query_items("SELECT * FROM c"))


@check
def parameters_are_bound_by_name(world):
    container = people(world)
    query = "SELECT VALUE c.id FROM c WHERE c.city = @city AND c.age > @age"
    equal(rows(container, query, parameters={"@city": "London", "@age": 40}), ["cyd", "flo"])
    # A parameter that is not given is undefined, and no value equals undefined.
    equal(rows(container, query, parameters={"@city": "London"}), [])
    equal(rows(container, "SELECT VALUE @p", parameters={"@p": {"x": [1, None]}}), [{"x": [1, None]}])
    tags = "SELECT VALUE c.id FROM c WHERE ARRAY_CONTAINS(@ids, c.id)"
    equal(rows(container, tags, parameters={"@ids": ["bob", "eve", 5]}), ["bob", "eve"])
    equal(rows(container, "SELECT VALUE c[@member] FROM c WHERE c.id='ada'", parameters={"@member": "age"}), [36])


@check
def a_projection_keeps_its_order_and_drops_what_is_undefined(world):
    container = people(world)
    found = rows(container, "SELECT c.name, c.boss, c.age AS years FROM c", pk="a")
    equal(found, [{"name": "Ada", "years": 36}, {"name": "Bob", "boss": "ada", "years": 25}])
    equal(list(found[1]), ["name", "boss", "years"])
    equal(rows(container, "SELECT VALUE c.boss FROM c", pk="b"), [None, "cyd"])
    equal(rows(container, "SELECT VALUE [c.name, c.boss, c.none] FROM c", pk="b"), [["Cyd", None], ["Dan", "cyd"]])
    equal(rows(container, "SELECT VALUE {n: c.name, 'x': c.none} FROM c", pk="a"), [{"n": "Ada"}, {"n": "Bob"}])
    equal(rows(container, "SELECT c.age + 1, c.name || '!' FROM c WHERE c.id = 'ada'"), [{"$1": 37, "$2": "Ada!"}])


@check
def comparisons_and_logic_handle_undefined_values(world):
    container = people(world)
    equal(rows(container, "SELECT VALUE c.id FROM c WHERE c.boss = null"), ["cyd"])
    equal(rows(container, "SELECT VALUE c.id FROM c WHERE c.boss != null"), ["bob", "dan"])
    equal(rows(container, "SELECT VALUE c.id FROM c WHERE NOT IS_DEFINED(c.boss)"), ["ada", "eve", "flo"])
    equal(rows(container, "SELECT VALUE c.id FROM c WHERE NOT (c.boss = 'ada')"), ["cyd", "dan"])
    equal(rows(container, "SELECT VALUE c.id FROM c WHERE c.age BETWEEN 25 AND 36"), ["ada", "bob", "dan"])
    equal(rows(container, "SELECT VALUE c.boss ?? 'none' FROM c", pk="a"), ["none", "ada"])
    equal(rows(container, "SELECT VALUE c.age > 30 ? 'old' : 'young' FROM c", pk="a"), ["old", "young"])
    equal(rows(container, "SELECT VALUE c.id FROM c WHERE c.age > '5'"), [])


@check
def in_and_like_work(world):
    container = people(world)
    equal(rows(container, "SELECT VALUE c.id FROM c WHERE c.city IN ('Rome', 'Paris')"), ["bob", "dan", "eve"])
    equal(rows(container, "SELECT VALUE c.id FROM c WHERE c.age NOT IN (25, 19)"), ["ada", "cyd", "flo"])
    equal(rows(container, "SELECT VALUE c.id FROM c WHERE c.city LIKE 'P%'"), ["bob", "eve"])
    equal(rows(container, "SELECT VALUE c.id FROM c WHERE c.name LIKE '_o_'"), ["bob"])
    equal(rows(container, "SELECT VALUE c.id FROM c WHERE c.name LIKE '[A-C]%'"), ["ada", "bob", "cyd"])
    equal(rows(container, "SELECT VALUE c.id FROM c WHERE c.name NOT LIKE '%a%'"), ["bob", "cyd", "eve", "flo"])


@check
def strings_may_have_double_quotes(world):
    equal(rows(people(world), 'SELECT VALUE c.id FROM c WHERE c.name = "Ada"'), ["ada"])


@check
def rows_are_ordered(world):
    container = people(world)
    equal(rows(container, "SELECT VALUE c.id FROM c ORDER BY c.age DESC"), ["flo", "cyd", "ada", "dan", "bob", "eve"])
    equal(rows(container, "SELECT VALUE c.name FROM c ORDER BY c.name"), ["Ada", "Bob", "Cyd", "Dan", "Flo", "eve"])
    equal(rows(container, "SELECT VALUE c.id FROM c ORDER BY c.height", pk="a"), ["bob", "ada"])
    equal(rows(container, "SELECT VALUE c.id FROM c WHERE c.city = 'London' ORDER BY c.age"), ["ada", "cyd", "flo"])


@check
def order_by_several_properties_works_with_a_composite_index(world):
    policy = {
        "indexingMode": "consistent", "automatic": True, "includedPaths": [{"path": "/*"}], "excludedPaths": [],
        "compositeIndexes": [[{"path": "/city", "order": "ascending"}, {"path": "/age", "order": "descending"}]],
    }
    container = world.container(indexing_policy=policy)
    for person in PEOPLE:
        container.create_item(person)
    found = rows(container, "SELECT VALUE c.id FROM c ORDER BY c.city ASC, c.age DESC")
    equal(found, ["flo", "cyd", "ada", "bob", "eve", "dan"])


@check
def types_are_ordered_as_the_service_orders_them(world):
    container = world.container()
    ordered = [None, False, True, -1e300, -1, 0, 0.5, 2**53 + 1, 1e300, "", "A", "B", "a", "ä", "日"]
    for place, value in enumerate(reversed(ordered)):
        container.create_item({"id": str(place), "pk": "p", "v": value})
    container.create_item({"id": "missing", "pk": "p"})
    found = rows(container, "SELECT c.id, c.v FROM c ORDER BY c.v ASC", pk="p")
    equal(found[0], {"id": "missing"})
    equal([row["v"] for row in found[1:]], ordered)
    found = rows(container, "SELECT c.id, c.v FROM c ORDER BY c.v DESC", pk="p")
    equal([row["v"] for row in found[:-1]], list(reversed(ordered)))
    equal(found[-1], {"id": "missing"})


@check
def top_and_offset_limit_limit_the_rows(world):
    container = people(world)
    equal(rows(container, "SELECT TOP 2 VALUE c.id FROM c ORDER BY c.age"), ["eve", "bob"])
    equal(rows(container, "SELECT TOP @n VALUE c.id FROM c", parameters={"@n": 3}), ["ada", "bob", "cyd"])
    equal(rows(container, "SELECT TOP 0 * FROM c"), [])
    equal(rows(container, "SELECT VALUE c.id FROM c ORDER BY c.id OFFSET 2 LIMIT 2"), ["cyd", "dan"])
    equal(rows(container, "SELECT VALUE c.id FROM c ORDER BY c.id OFFSET @o LIMIT @l", parameters={"@o": 5, "@l": 9}), ["flo"])
    equal(rows(container, "SELECT VALUE c.id FROM c OFFSET 10 LIMIT 2", pk="a"), [])


@check
def distinct_rows_come_once(world):
    container = people(world)
    same_elements(rows(container, "SELECT DISTINCT VALUE c.city FROM c"), ["London", "Paris", "Rome"])
    equal(rows(container, "SELECT DISTINCT VALUE c.age FROM c ORDER BY c.age"), [19, 25, 36, 41, 52])
    same_elements(rows(container, "SELECT DISTINCT c.boss FROM c"), [{}, {"boss": "ada"}, {"boss": None}, {"boss": "cyd"}])
    same_elements(rows(container, "SELECT DISTINCT VALUE t FROM c JOIN t IN c.tags"), ["math", "code", "art"])


@check
def aggregates_are_computed(world):
    container = people(world)
    equal(rows(container, "SELECT VALUE COUNT(1) FROM c"), [6])
    equal(rows(container, "SELECT VALUE COUNT(c.boss) FROM c"), [3])
    equal(rows(container, "SELECT VALUE SUM(c.age) FROM c"), [198])
    equal(rows(container, "SELECT VALUE AVG(c.age) FROM c"), [33])
    equal(rows(container, "SELECT VALUE MIN(c.age) FROM c"), [19])
    equal(rows(container, "SELECT VALUE MAX(c.name) FROM c"), ["eve"])
    equal(rows(container, "SELECT VALUE COUNT(1) FROM c WHERE c.age > 100"), [0])
    equal(rows(container, "SELECT COUNT(1) AS n, MIN(c.age) AS least FROM c", pk="a"), [{"n": 2, "least": 25}])
    # A value that is not a number makes a sum undefined.
    equal(rows(container, "SELECT VALUE SUM(c.name) FROM c"), [])


@check
def rows_are_grouped(world):
    container = people(world)
    same_elements(
        rows(container, "SELECT c.city, COUNT(1) AS n, MAX(c.age) AS oldest FROM c GROUP BY c.city"),
        [
            {"city": "London", "n": 3, "oldest": 52},
            {"city": "Paris", "n": 2, "oldest": 25},
            {"city": "Rome", "n": 1, "oldest": 25},
        ],
    )
    same_elements(rows(container, "SELECT VALUE c.city FROM c GROUP BY c.city", pk="b"), ["London", "Rome"])
    same_elements(
        rows(container, "SELECT COUNT(1) AS n, c.boss FROM c GROUP BY c.boss"),
        [{"n": 3}, {"n": 1, "boss": None}, {"n": 1, "boss": "ada"}, {"n": 1, "boss": "cyd"}],
    )


@check
def arrays_are_joined(world):
    container = people(world)
    equal(
        rows(container, "SELECT c.id, t AS tag FROM c JOIN t IN c.tags", pk="a"),
        [{"id": "ada", "tag": "math"}, {"id": "ada", "tag": "code"}, {"id": "bob", "tag": "code"}],
    )
    equal(rows(container, "SELECT VALUE c.id FROM c JOIN p IN c.pets WHERE p.kind = 'cat' AND p.age > 5"), ["flo"])
    equal(rows(container, "SELECT VALUE COUNT(1) FROM c JOIN t IN c.tags JOIN p IN c.pets"), [1 * 2 + 2 * 1])
    equal(rows(container, "SELECT VALUE t FROM t IN c.tags", pk="a"), ["math", "code", "code"])


@check
def subqueries_are_evaluated(world):
    container = people(world)
    equal(
        rows(container, "SELECT VALUE c.id FROM c WHERE EXISTS(SELECT VALUE t FROM t IN c.tags WHERE t = 'math')"),
        ["ada", "dan", "flo"],
    )
    equal(
        rows(container, "SELECT c.id, (SELECT VALUE COUNT(1) FROM t IN c.tags) AS n FROM c", pk="a"),
        [{"id": "ada", "n": 2}, {"id": "bob", "n": 1}],
    )
    equal(
        rows(container, "SELECT VALUE ARRAY(SELECT VALUE p.kind FROM p IN c.pets WHERE p.age > 4) FROM c", pk="c"),
        [["dog"], ["cat"]],
    )
    equal(
        rows(container, "SELECT VALUE m FROM c JOIN (SELECT VALUE UPPER(t) FROM t IN c.tags WHERE t != 'code') m", pk="a"),
        ["MATH"],
    )


@check
def string_functions_work(world):
    container = people(world)
    calls = {
        "CONCAT('a', 'b', 'c')": "abc", "CONTAINS('hello', 'ell')": True, "CONTAINS('Hello', 'hELL', true)": True,
        "STARTSWITH('hello', 'he')": True, "ENDSWITH('hello', 'lo')": True, "INDEX_OF('hello', 'l')": 2,
        "LEFT('hello', 2)": "he", "RIGHT('hello', 2)": "lo", "LENGTH('日本語')": 3, "LOWER('ABC')": "abc",
        "UPPER('abc')": "ABC", "LTRIM('  x ')": "x ", "RTRIM(' x  ')": " x", "TRIM(' x ')": "x",
        "REPLACE('aXbX', 'X', '-')": "a-b-", "REPLICATE('ab', 3)": "ababab", "REVERSE('abc')": "cba",
        "SUBSTRING('hello', 1, 3)": "ell", "ToString(5)": "5", "StringToNumber('12.5')": 12.5,
        "StringEquals('a', 'A', true)": True, "RegexMatch('abc123', '[0-9]+')": True, "StringToArray('[1,2]')": [1, 2],
    }
    for call, value in calls.items():
        equal((call, rows(container, f"SELECT VALUE {call}")), (call, [value]))


@check
def number_array_and_type_functions_work(world):
    container = people(world)
    calls = {
        "ABS(-5)": 5, "CEILING(1.2)": 2, "FLOOR(-1.2)": -2, "ROUND(2.5)": 3, "TRUNC(-1.7)": -1, "POWER(2, 10)": 1024,
        "SQRT(16)": 4, "SIGN(-3)": -1, "7 % 3": 1, "7 / 2": 3.5, "5 & 3": 1, "5 | 3": 7, "5 ^ 3": 6,
        "ARRAY_CONCAT([1], [2, 3])": [1, 2, 3], "ARRAY_CONTAINS([1, 2], 2)": True, "ARRAY_LENGTH([1, 2, 3])": 3,
        "ARRAY_SLICE([1, 2, 3, 4], 1, 2)": [2, 3], "ARRAY_CONTAINS([{a: 1, b: 2}], {a: 1}, true)": True,
        "IS_ARRAY([])": True, "IS_BOOL(false)": True, "IS_NULL(null)": True, "IS_NUMBER(1.5)": True,
        "IS_OBJECT({})": True, "IS_STRING('')": True, "IS_PRIMITIVE([])": False, "IS_DEFINED(undefined)": False,
        "IIF(1 = 1, 'y', 'n')": "y", "DateTimeAdd('dd', 1, '2026-02-28T00:00:00.0000000Z')": "2026-03-01T00:00:00.0000000Z",
    }
    for call, value in calls.items():
        equal((call, rows(container, f"SELECT VALUE {call}")), (call, [value]))
    millis = rows(container, "SELECT VALUE GetCurrentTimestamp()")[0]
    assert 1_600_000_000_000 < millis < 10_000_000_000_000, millis


@check
def results_come_in_pages_with_a_continuation(world):
    container = world.container()
    for n in range(25):
        container.create_item({"id": f"{n:02}", "pk": "p", "n": n})
    query = "SELECT * FROM c WHERE c.n >= 3"
    seen = list(pages(container.query_items(query, partition_key="p", max_item_count=10)))
    equal([len(page) for page, _ in seen], [10, 10, 2])
    equal([token is None for _, token in seen], [False, False, True])
    # Another client resumes the query from the first continuation token.
    other = world.same_container(container, world.new_client())
    rest = list(pages(other.query_items(query, partition_key="p", max_item_count=10), seen[0][1]))
    equal([ids(page) for page, _ in rest], [ids(page) for page, _ in seen[1:]])


@check
def ordered_and_grouped_results_come_in_pages(world):
    container = world.container()
    for n in range(20):
        container.create_item({"id": f"{n:02}", "pk": f"p{n % 3}", "n": n % 7})
    query = "SELECT VALUE c.id FROM c ORDER BY c.n DESC"
    whole = rows(container, query)
    equal(whole, sorted(whole, key=lambda name: -(int(name) % 7)))
    seen = list(pages(container.query_items(query, enable_cross_partition_query=True, max_item_count=6)))
    equal([name for page, _ in seen for name in page], whole)
    equal([len(page) for page, _ in seen], [6, 6, 6, 2])
    resumed = container.query_items(query, enable_cross_partition_query=True, max_item_count=6).by_page(seen[1][1])
    equal([name for page in resumed for name in page], whole[12:])


@check
def a_page_holds_a_thousand_rows_by_default(world):
    container = world.container()
    for start in range(0, 1100, 100):
        container.execute_item_batch(
            [("create", ({"id": f"{n:04}", "pk": "p"},)) for n in range(start, start + 100)], partition_key="p"
        )
    sizes = lambda **options: [
        len(page) for page, _ in pages(container.query_items("SELECT VALUE c.id FROM c", partition_key="p", **options))
    ]
    equal(sizes(), [1000, 100])
    equal(sizes(max_item_count=-1), [1100])
    equal(sizes(max_item_count=500), [500, 500, 100])


@check
def a_forged_continuation_is_refused(world):
    container = people(world)
    with expect_error(400, text="Invalid Continuation Token"):
        list(container.query_items("SELECT * FROM c", partition_key="a").by_page("forged"))


@check
def query_metrics_and_charges_are_reported(world):
    container = people(world)
    paged = container.query_items("SELECT * FROM c WHERE c.age > 20", partition_key="a", populate_query_metrics=True)
    equal(len(list(paged)), 2)
    headers = container.client_connection.last_response_headers
    assert "totalExecutionTimeInMs=" in headers["x-ms-documentdb-query-metrics"], dict(headers)
    assert "outputDocumentCount=2" in headers["x-ms-documentdb-query-metrics"], dict(headers)
    assert 2 < float(headers["x-ms-request-charge"]) < 4, headers["x-ms-request-charge"]


@check
def a_wrong_query_is_refused_with_the_position_of_the_error(world):
    container = people(world)
    for query, code in (("SELEC * FROM c", "SC1001"), ("SELECT * FROM c WHERE", "SC1002"), ("SELECT NOPE(c.x) FROM c", "SC2005")):
        with expect_error(400, text=code) as error:
            rows(container, query, pk="a")
        assert '"location"' in str(error.value).replace("\\", "") , str(error.value)


@check
def long_queries_and_many_parameters_are_accepted(world):
    container = people(world)
    names = {f"@p{n}": f"none{n}" for n in range(500)} | {"@p500": "ada"}
    query = f"SELECT VALUE c.id FROM c WHERE c.id IN ({', '.join(names)})"
    equal(rows(container, query, parameters=names), ["ada"])


@check
def a_page_ends_at_four_megabytes(world):
    container = world.container()
    for n in range(7):
        container.create_item({"id": str(n), "pk": "p", "text": "x" * 700_000})
    seen = list(pages(container.query_items("SELECT * FROM c", partition_key="p")))
    sizes = [len(page) for page, _ in seen]
    # The row with which a page exceeds four megabytes still belongs to that page.
    assert len(sizes) == 2 and all((size - 1) * 700_000 < 4 * 1024 * 1024 for size in sizes), sizes
    equal([name for page, _ in seen for name in ids(page)], [str(n) for n in range(7)])
    feed = [ids(page) for page in container.query_items_change_feed(start_time="Beginning").by_page()]
    equal([name for page in feed for name in page], [str(n) for n in range(7)])


@check
def a_continuation_with_a_size_limit_resumes(world):
    container = world.container()
    for n in range(12):
        container.create_item({"id": f"{n:02}", "pk": "p", "text": "long" * 200 + str(n)})
    query = "SELECT VALUE c.id FROM c ORDER BY c.text"
    whole = rows(container, query, pk="p")
    equal(rows(container, query, pk="p", max_item_count=5, continuation_token_limit=1), whole)
