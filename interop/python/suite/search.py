"""Vector, full-text and hybrid search over four ranges. The SDK fetches the plan, collects the
statistics of every range, runs the component queries and fuses the ranks."""

from .harness import check, equal, expect_error, rows

LAKES = [
    # id, text, vector
    ("north", "A cold lake in the north. The lake is deep.", [1.0, 0.0, 0.0]),
    ("south", "A warm lake", [0.9, 0.1, 0.0]),
    ("river", "A river and its valley", [0.0, 1.0, 0.0]),
    ("coast", "The coast of the United States, with a lighthouse", [0.0, 0.9, 0.4]),
    ("hill", "A hill. No water is here, and no boats are here either.", [0.0, 0.0, 1.0]),
    ("island", "States that united: an island", [0.5, 0.5, 0.0]),
]

_containers = {}


def lakes(world, distance_function="cosine"):
    """The container with LAKES, each item in a partition of its own."""
    key = (id(world), distance_function)
    if key not in _containers:
        container = _containers[key] = world.container(
            vector_embedding_policy={"vectorEmbeddings": [
                {"path": "/v", "dataType": "float32", "dimensions": 3, "distanceFunction": distance_function}]},
            full_text_policy={"defaultLanguage": "en-US", "fullTextPaths": [{"path": "/t", "language": "en-US"}]},
            indexing_policy={"vectorIndexes": [{"path": "/v", "type": "flat"}], "fullTextIndexes": [{"path": "/t"}]},
        )
        for name, text, vector in LAKES:
            container.create_item({"id": name, "pk": name, "t": text, "v": vector})
        container.create_item({"id": "blank", "pk": "blank"})
    return _containers[key]


@check(on="strict")
def vectors_are_ordered_by_the_function_of_the_policy(world):
    query = "SELECT TOP 4 VALUE c.id FROM c ORDER BY VectorDistance(c.v, [1, 0.05, 0])"
    equal(rows(lakes(world), query), ["north", "south", "island", "river"])
    scores = "SELECT TOP 3 c.id, VectorDistance(c.v, [1, 0, 0]) AS s FROM c ORDER BY VectorDistance(c.v, [1, 0, 0])"
    near = rows(lakes(world, "euclidean"), scores)
    equal([row["id"] for row in near], ["north", "south", "island"])
    equal([round(row["s"], 3) for row in near], [0.0, 0.141, 0.707])
    option = ("SELECT TOP 2 VALUE c.id FROM c ORDER BY "
              "VectorDistance(c.v, [0, 1, 1], false, {'distanceFunction': 'dotproduct'})")
    equal(rows(lakes(world, "euclidean"), option), ["coast", "river"])
    offset = "SELECT VALUE c.id FROM c ORDER BY VectorDistance(c.v, [1, 0, 0]) OFFSET 1 LIMIT 2"
    equal(rows(lakes(world, "euclidean"), offset), ["south", "island"])


@check(on="strict")
def the_sdk_refuses_a_vector_query_without_a_limit(world):
    try:
        rows(lakes(world), "SELECT * FROM c ORDER BY VectorDistance(c.v, [1, 0, 0])")
        raise AssertionError("not refused")
    except ValueError as error:
        assert "without TOP or LIMIT" in str(error), error


@check(on="strict")
def words_and_phrases_are_found(world):
    container = lakes(world)
    for condition, expected in (
        ("FullTextContains(c.t, 'LAKE')", ["north", "south"]),
        ("FullTextContains(c.t, 'lakes')", ["north", "south"]),
        ("FullTextContains(c.t, 'United States')", ["coast"]),
        ("FullTextContainsAll(c.t, 'united', 'states')", ["coast", "island"]),
        ("FullTextContainsAny(c.t, 'river', 'hill')", ["hill", "river"]),
        ("FullTextContains(c.t, @word)", ["island"]),
    ):
        query = f"SELECT VALUE c.id FROM c WHERE {condition}"
        equal((condition, sorted(rows(container, query, parameters={"@word": "island"}))), (condition, expected))


@check(on="strict")
def a_full_text_score_ranks_all_items(world):
    container = lakes(world)
    query = "SELECT TOP 10 VALUE c.id FROM c ORDER BY RANK FullTextScore(c.t, 'lake')"
    found = rows(container, query)
    equal(sorted(found), sorted([name for name, *_ in LAKES] + ["blank"]))
    equal(found[:2], ["south", "north"])
    filtered = "SELECT TOP 10 c.id FROM c WHERE FullTextContains(c.t, 'lake') ORDER BY RANK FullTextScore(c.t, 'deep', 'cold')"
    equal(rows(container, filtered), [{"id": "north"}, {"id": "south"}])


@check(on="strict")
def ranks_of_text_and_vectors_are_fused(world):
    container = lakes(world)
    query = ("SELECT TOP 3 c.id FROM c ORDER BY RANK "
             "RRF(FullTextScore(c.t, 'united states'), VectorDistance(c.v, [0, 1, 0.4]))")
    equal(rows(container, query)[0], {"id": "coast"})
    weighted = ("SELECT TOP 3 VALUE c.id FROM c ORDER BY RANK "
                "RRF(FullTextScore(c.t, 'lake'), VectorDistance(c.v, [0, 0, 1]), [0.1, 10])")
    equal(rows(container, weighted)[0], "hill")
    negative = ("SELECT TOP 3 VALUE c.id FROM c WHERE IS_DEFINED(c.v) ORDER BY RANK "
                "RRF(VectorDistance(c.v, [1, 0, 0]), VectorDistance(c.v, [0, 1, 0]), [0.1, -10])")
    equal(rows(container, negative)[0], "north")
    window = ("SELECT VALUE c.id FROM c ORDER BY RANK "
              "RRF(FullTextScore(c.t, @word), VectorDistance(c.v, @v)) OFFSET 1 LIMIT 2")
    equal(len(rows(container, window, parameters={"@word": "lake", "@v": [1, 0, 0]})), 2)


@check(on="strict")
def a_small_page_does_not_cut_a_hybrid_result(world):
    query = "SELECT TOP 6 VALUE c.id FROM c ORDER BY RANK RRF(FullTextScore(c.t, 'lake'), FullTextScore(c.t, 'river'))"
    pages = lakes(world).query_items(query, enable_cross_partition_query=True, max_item_count=2).by_page()
    equal([len(list(page)) for page in pages], [2, 2, 2])


@check(on="strict")
def hybrid_queries_run_in_one_partition_too(world):
    query = "SELECT TOP 5 VALUE c.id FROM c ORDER BY RANK FullTextScore(c.t, 'lake')"
    equal(rows(lakes(world), query, pk="north"), ["north"])


@check
def search_policies_are_checked(world):
    def embedding(**changes):
        entry = {"path": "/v", "dataType": "float32", "dimensions": 8, "distanceFunction": "cosine", **changes}
        return {"vectorEmbeddings": [entry]}

    for policies, text in (
        ({"vector_embedding_policy": embedding(dataType="text")}, "has an invalid DataType"),
        ({"vector_embedding_policy": embedding(dimensions=5000)}, "Dimensions:5000 which is more than"),
        ({"vector_embedding_policy": embedding(dimensions=0)}, "Dimensions:0"),
        ({"vector_embedding_policy": embedding(distanceFunction="far")}, "an invalid DistanceFunction:far"),
        ({"indexing_policy": {"vectorIndexes": [{"path": "/v", "type": "flat"}]}}, "/v not matching in Embedding's path"),
        ({"vector_embedding_policy": embedding(), "indexing_policy": {"vectorIndexes": [{"path": "/v", "type": "tree"}]}},
         "Index Type::tree is invalid"),
        ({"full_text_policy": {"defaultLanguage": "xx-XX"}}, "unsupported language xx-XX. Supported languages are:"),
        ({"full_text_policy": {"fullTextPaths": [{"path": "t"}]}}, "contains an invalid Path: t"),
        ({"indexing_policy": {"fullTextIndexes": [{"path": "/t"}]}}, "does not match the path specified in the Full Text Policy"),
    ):
        with expect_error(400, text=text):
            world.container(**policies)
