// Vector, full-text and hybrid search over four ranges. The SDK merges the results by the plan of
// the server: with sort keys, and with the shorter component queries that it asks for by default.

import assert from "node:assert/strict";

import { area, check } from "../lib/harness.mjs";
import { createAll, freshContainer, pages, queryAll, refused, shared } from "../lib/support.mjs";

area("search");

const items = [
  { id: "north", t: "A cold lake in the north. The lake is deep.", v: [1, 0, 0] },
  { id: "south", t: "A warm lake", v: [0.9, 0.1, 0] },
  { id: "river", t: "A river and its valley", v: [0, 1, 0] },
  { id: "coast", t: "The coast of the United States, with a lighthouse", v: [0, 0.9, 0.4] },
  { id: "hill", t: "A hill. No water is here, and no boats are here either.", v: [0, 0, 1] },
  { id: "island", t: "States that united: an island", v: [0.5, 0.5, 0] },
].map((item) => ({ ...item, pk: item.id }));

const searchable = (distanceFunction) =>
  shared(async () => {
    const container = await freshContainer("strict", {
      vectorEmbeddingPolicy: { vectorEmbeddings: [{ path: "/v", dataType: "float32", dimensions: 3, distanceFunction }] },
      fullTextPolicy: { defaultLanguage: "en-US", fullTextPaths: [{ path: "/t", language: "en-US" }] },
      indexingPolicy: { vectorIndexes: [{ path: "/v", type: "flat" }], fullTextIndexes: [{ path: "/t" }] },
    });
    await createAll(container, items);
    return container;
  });

const cosine = searchable("cosine");
const euclidean = searchable("euclidean");

// Registers a check that the results of a query begin with these rows, with each kind of component
// query. The rows of hybrid queries are objects, because this SDK accepts no other payload.
function first(query, expected, container = cosine) {
  check(query, async () => {
    for (const disableHybridSearchQueryPlanOptimization of [false, true]) {
      const found = await queryAll(await container(), query, { disableHybridSearchQueryPlanOptimization, allowUnboundedNonStreamingQueries: true });
      assert.deepEqual(found.slice(0, expected.length), expected);
    }
  });
}

first("SELECT TOP 3 VALUE c.id FROM c ORDER BY VectorDistance(c.v, [1, 0, 0])", ["north", "south", "island"]);
first("SELECT TOP 3 VALUE c.id FROM c ORDER BY VectorDistance(c.v, [1, 0, 0])", ["north", "south", "island"], euclidean);
first("SELECT VALUE c.id FROM c ORDER BY VectorDistance(c.v, [1, 0, 0]) OFFSET 1 LIMIT 2", ["south", "island"], euclidean);
first("SELECT DISTINCT TOP 2 VALUE c.id FROM c ORDER BY VectorDistance(c.v, [0, 0, 1])", ["hill", "coast"]);
first("SELECT TOP 2 c.id FROM c ORDER BY RANK FullTextScore(c.t, 'lake')", [{ id: "south" }, { id: "north" }]);
first("SELECT TOP 1 c.id FROM c WHERE FullTextContainsAny(c.t, 'lake', 'river') ORDER BY RANK FullTextScore(c.t, 'deep', 'cold')", [{ id: "north" }]);
first("SELECT TOP 5 c.id FROM c ORDER BY RANK RRF(FullTextScore(c.t, 'united states'), VectorDistance(c.v, [0, 1, 0.4]))", [{ id: "coast" }]);
first("SELECT TOP 5 c.id FROM c ORDER BY RANK RRF(FullTextScore(c.t, 'lake'), VectorDistance(c.v, [0, 0, 1]), [0.1, 10])", [{ id: "hill" }]);
first("SELECT TOP 5 c.id FROM c ORDER BY RANK RRF(VectorDistance(c.v, [1, 0, 0]), VectorDistance(c.v, [0, 1, 0]), [0.1, -10])", [{ id: "north" }]);

check("a hybrid query has parameters and pages", async () => {
  const spec = {
    query: "SELECT c.id FROM c ORDER BY RANK RRF(FullTextScore(c.t, @word), VectorDistance(c.v, @v)) OFFSET 1 LIMIT 3",
    parameters: [{ name: "@word", value: "lake" }, { name: "@v", value: [1, 0, 0] }],
  };
  const found = (await pages(await cosine(), spec, { maxItemCount: 2 })).flat();
  assert.equal(found.length, 3);
});

check("a direction after a distance or a rank is refused", async () => {
  const container = await cosine();
  await refused(400, queryAll(container, "SELECT TOP 1 * FROM c ORDER BY VectorDistance(c.v, [1, 0, 0]) ASC"), { message: /Specifying a sorting order/ });
  await refused(400, queryAll(container, "SELECT TOP 1 * FROM c ORDER BY RANK FullTextScore(c.t, 'a') DESC"), { message: /Specifying a sort order/ });
  await refused(400, queryAll(container, "SELECT FullTextScore(c.t, 'a') AS s FROM c"), { message: /only allowed in the ORDER BY RANK clause/ });
});

check("a vector index needs its embedding, and an embedding cannot change", async () => {
  await refused(400, freshContainer("strict", { indexingPolicy: { vectorIndexes: [{ path: "/w", type: "flat" }] } }), { message: /not matching in Embedding's path/ });
  const container = await freshContainer("strict", {
    vectorEmbeddingPolicy: { vectorEmbeddings: [{ path: "/v", dataType: "float32", dimensions: 3, distanceFunction: "cosine" }] },
  });
  const { resource } = await container.read();
  resource.vectorEmbeddingPolicy.vectorEmbeddings[0].dimensions = 4;
  await refused(400, container.replace(resource), { message: /cannot be modified in Collection Replace/ });
});
