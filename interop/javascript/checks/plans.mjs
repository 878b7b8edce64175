// Queries that the SDK merges itself, with a plan from the server.
//
// The SDK uses a plan in two cases: with the option `forceQueryPlan`, and on the strict
// server. The strict server refuses such queries across partitions as the real gateway does,
// and its refusal has the plan. In both cases the rows have to be those of a server that
// merges the rows itself. So every query runs in all three ways, over four ranges.

import assert from "node:assert/strict";

import { area, check } from "../lib/harness.mjs";
import { containerThrough, createAll, freshContainer, ids, pages, queryAll, recordingClient, refused, shared } from "../lib/support.mjs";

area("plans");

const COUNT = 48;
const COLOURS = ["red", "green", "blue"];

const items = Array.from({ length: COUNT }, (_, n) => ({
  id: `${n}`.padStart(2, "0"),
  pk: `p${n % 8}`,
  n,
  third: n % 3,
  fourth: 1 + (n % 4),
  colour: COLOURS[n % 3],
  price: (n % 7) + 0.25,
  ...(n % 4 === 0 ? {} : { maybe: n % 5 }),
  list: [n % 2, n % 3],
}));

const compositeIndexes = [[{ path: "/colour", order: "ascending" }, { path: "/n", order: "descending" }]];

const seeded = (server) =>
  shared(async () => {
    const definition = { partitionKey: { paths: ["/pk"], version: 2 }, indexingPolicy: { compositeIndexes } };
    const container = await freshContainer(server, definition);
    await createAll(container, items);
    return container;
  });

const ranges = seeded("ranges");
const strict = seeded("strict");

const byText = (rows) => rows.map((row) => JSON.stringify(row)).sort();
const numbers = (from, to) => Array.from({ length: to - from }, (_, n) => from + n);
const sum = (values) => values.reduce((total, value) => total + value, 0);

// Registers a check that a query gives these rows, in this order if the query has ORDER BY.
function rows(query, expected, { isOrdered = /ORDER BY/.test(query), isRefused = true } = {}) {
  check(query, async () => {
    const compare = (found, how) =>
      isOrdered ? assert.deepEqual(found, expected, how) : assert.deepEqual(byText(found), byText(expected), how);
    compare(await queryAll(await ranges(), query), "merged by the server");
    compare(await queryAll(await ranges(), query, { forceQueryPlan: true }), "forced plan");
    compare(await queryAll(await ranges(), query, { forceQueryPlan: true, maxItemCount: 3, maxDegreeOfParallelism: 4 }), "forced plan, small pages");
    const { client: other, exchanges } = recordingClient("strict");
    compare(await queryAll(containerThrough(other, await strict()), query, { maxItemCount: 5 }), "strict gateway");
    const wasRefused = exchanges.some(({ status, method }) => method === "POST" && status === 400);
    assert.equal(wasRefused, isRefused, "refused by the strict gateway");
  });
}

rows("SELECT VALUE c.n FROM c ORDER BY c.n", numbers(0, COUNT));
rows("SELECT VALUE c.n FROM c ORDER BY c.n DESC", numbers(0, COUNT).reverse());
rows("SELECT c.id, c.n FROM c WHERE c.third = 1 ORDER BY c.n DESC", items.filter(({ third }) => third === 1).map(({ id, n }) => ({ id, n })).reverse());
rows("SELECT VALUE c.n FROM c ORDER BY c.colour ASC, c.n DESC", [...items].sort((a, b) => (a.colour === b.colour ? b.n - a.n : a.colour < b.colour ? -1 : 1)).map(({ n }) => n));
rows("SELECT TOP 5 VALUE c.n FROM c ORDER BY c.n", [0, 1, 2, 3, 4]);
rows("SELECT VALUE c.n FROM c ORDER BY c.n OFFSET 10 LIMIT 5", [10, 11, 12, 13, 14]);
rows("SELECT VALUE c.n FROM c ORDER BY c.n OFFSET 45 LIMIT 10", [45, 46, 47]);
rows("SELECT DISTINCT VALUE c.colour FROM c", COLOURS);
rows("SELECT DISTINCT c.colour, c.third FROM c", COLOURS.map((colour, third) => ({ colour, third })));
// The values have no 0, because the SDK drops falsy values of an ordered DISTINCT VALUE.
rows("SELECT DISTINCT VALUE c.fourth FROM c ORDER BY c.fourth", [1, 2, 3, 4]);
rows("SELECT DISTINCT VALUE c.colour FROM c ORDER BY c.colour DESC", ["red", "green", "blue"]);
rows("SELECT DISTINCT c.fourth, c.third FROM c WHERE c.third = 1 ORDER BY c.fourth DESC", [4, 3, 2, 1].map((fourth) => ({ fourth, third: 1 })));
rows("SELECT DISTINCT TOP 2 VALUE c.fourth FROM c ORDER BY c.fourth", [1, 2]);
rows("SELECT DISTINCT VALUE c.fourth FROM c ORDER BY c.fourth OFFSET 1 LIMIT 2", [2, 3]);
rows("SELECT VALUE COUNT(1) FROM c", [COUNT]);
rows("SELECT VALUE COUNT(c.maybe) FROM c", [36]);
rows("SELECT VALUE SUM(c.price) FROM c", [sum(items.map(({ price }) => price))]);
rows("SELECT VALUE AVG(c.n) FROM c", [(COUNT - 1) / 2]);
rows("SELECT VALUE MIN(c.price) FROM c", [0.25]);
rows("SELECT VALUE MAX(c.id) FROM c", ["47"]);
rows("SELECT VALUE MAX(c.n) FROM c WHERE c.pk = 'p3'", [43]);
rows("SELECT VALUE COUNT(1) FROM c WHERE c.n > 1000", [0]);
rows("SELECT c.colour, COUNT(1) AS count FROM c GROUP BY c.colour", COLOURS.map((colour) => ({ colour, count: 16 })));
rows(
  "SELECT c.third, SUM(c.n) AS total, MIN(c.n) AS low, MAX(c.n) AS high, AVG(c.n) AS mean FROM c GROUP BY c.third",
  [0, 1, 2].map((third) => ({ third, total: 16 * third + 3 * 120, low: third, high: 45 + third, mean: 22.5 + third })),
);
rows("SELECT VALUE COUNT(1) FROM c GROUP BY c.colour", [16, 16, 16]);
rows("SELECT c.colour FROM c GROUP BY c.colour", COLOURS.map((colour) => ({ colour })));
rows("SELECT COUNT(1) AS count, c.maybe FROM c GROUP BY c.maybe", [
  { count: 12 },
  ...[0, 1, 2, 3, 4].map((maybe) => ({ count: items.filter((item) => item.maybe === maybe).length, maybe })),
]);
rows("SELECT VALUE COUNT(1) FROM c JOIN l IN c.list WHERE l = 0", [sum(items.map(({ list }) => list.filter((l) => l === 0).length))]);
rows("SELECT c.id, l FROM c JOIN l IN c.list WHERE c.n < 2", [{ id: "00", l: 0 }, { id: "00", l: 0 }, { id: "01", l: 1 }, { id: "01", l: 1 }], { isRefused: false });
rows("SELECT VALUE c.n FROM c WHERE c.n IN (1, 2, 3)", [1, 2, 3], { isRefused: false });
rows("SELECT VALUE c.id FROM c WHERE c.colour LIKE 'g%' AND c.n < 8", ["01", "04", "07"], { isRefused: false });

check("TOP without ORDER BY gives that many different items", async () => {
  for (const [container, options] of [
    [await ranges(), {}],
    [await ranges(), { forceQueryPlan: true }],
    [await strict(), { maxItemCount: 3 }],
  ]) {
    const found = await queryAll(container, "SELECT TOP 20 VALUE c.id FROM c", options);
    assert.equal(found.length, 20);
    assert.equal(new Set(found).size, 20);
  }
});

check("OFFSET LIMIT without ORDER BY gives that many different items", async () => {
  for (const [container, options] of [
    [await ranges(), {}],
    [await ranges(), { forceQueryPlan: true }],
    [await strict(), { maxItemCount: 3 }],
  ]) {
    const found = await queryAll(container, "SELECT VALUE c.id FROM c OFFSET 30 LIMIT 10", options);
    assert.equal(new Set(found).size, 10);
  }
});

check("parameters reach the rewritten query", async () => {
  const spec = {
    query: "SELECT TOP @top VALUE c.n FROM c WHERE c.n >= @from ORDER BY c.n",
    parameters: [{ name: "@top", value: 3 }, { name: "@from", value: 20 }],
  };
  assert.deepEqual(await queryAll(await ranges(), spec, { forceQueryPlan: true }), [20, 21, 22]);
  assert.deepEqual(await queryAll(await strict(), spec), [20, 21, 22]);
});

// The SDK refuses to merge values of several types, so only the server's merge is checked.
check("ORDER BY over mixed types across ranges follows the service's order", async () => {
  const container = await freshContainer("ranges");
  const values = ["b", null, 10, true, "a", -3, false, 2.5, "", 0];
  await createAll(container, values.map((v, n) => ({ id: `${n}`, pk: `k${n}`, v })));
  const expected = [null, false, true, -3, 0, 2.5, 10, "", "a", "b"];
  assert.deepEqual(await queryAll(container, "SELECT VALUE c.v FROM c ORDER BY c.v"), expected);
  assert.deepEqual(await queryAll(container, "SELECT VALUE c.v FROM c ORDER BY c.v DESC", { maxItemCount: 3 }), [...expected].reverse());
});

check("ORDER BY across ranges returns items without the property, and returns them first", async () => {
  const found = await queryAll(await ranges(), "SELECT c.n, c.maybe FROM c ORDER BY c.maybe");
  assert.equal(found.length, COUNT);
  assert.deepEqual(found.slice(0, 12).map(({ maybe }) => maybe), Array(12).fill(undefined));
  assert.deepEqual(found.slice(12).map(({ maybe }) => maybe), items.map(({ maybe }) => maybe).filter((maybe) => maybe !== undefined).sort());
  const wrong = queryAll(await strict(), "SELECT c.n, c.maybe FROM c ORDER BY c.maybe");
  await assert.rejects(wrong, /NoValue/, "the SDK gets items without the property, too, and refuses them");
});

check("a filter on the partition key is served without a merge", async () => {
  const { client: other, exchanges } = recordingClient("strict");
  const found = await queryAll(containerThrough(other, await strict()), "SELECT VALUE c.n FROM c ORDER BY c.n", { partitionKey: "p2" });
  assert.deepEqual(found, [2, 10, 18, 26, 34, 42]);
  // The SDK's request for a plan may still be running.
  assert.ok(!exchanges.some(({ status }) => status >= 400));
});

check("the strict server refuses with 400 and sub-status 1004", async () => {
  const { client: other, exchanges } = recordingClient("strict");
  await queryAll(containerThrough(other, await strict()), "SELECT VALUE COUNT(1) FROM c");
  const refusal = exchanges.find(({ status }) => status === 400);
  assert.equal(refusal.substatus, 1004);
});

check("merged pages are as long as asked", async () => {
  const answer = await pages(await strict(), "SELECT VALUE c.n FROM c ORDER BY c.n", { maxItemCount: 20 });
  assert.deepEqual(answer.flat(), numbers(0, COUNT));
  assert.ok(answer.every((page) => page.length <= 20), JSON.stringify(answer.map((page) => page.length)));
});

for (const [name, query, expected] of [
  ["plain", "SELECT VALUE c.n FROM c", numbers(0, COUNT)],
  ["ordered", "SELECT VALUE c.n FROM c ORDER BY c.n DESC", numbers(0, COUNT).reverse()],
  ["ordered by text", "SELECT VALUE c.n FROM c ORDER BY c.colour", undefined],
  ["offset limit", "SELECT VALUE c.n FROM c ORDER BY c.n OFFSET 5 LIMIT 30", numbers(5, 35)],
]) {
  check(`a merged query resumes by the SDK's own continuation token (${name})`, async () => {
    const container = await strict();
    const seen = [];
    let continuationToken;
    let rounds = 0;
    do {
      const iterator = container.items.query(query, { enableQueryControl: true, maxItemCount: 7, continuationToken });
      const page = await iterator.fetchNext();
      seen.push(...(page.resources ?? []));
      continuationToken = page.continuationToken;
      rounds += 1;
      assert.ok(rounds <= COUNT * 2, "does not end");
      // The length is compared because the SDK returns a token even after the last row of a
      // LIMIT.
    } while (continuationToken && seen.length < (expected?.length ?? Infinity));
    if (/ORDER BY c\.n/.test(query)) assert.deepEqual(seen, expected);
    else assert.deepEqual([...seen].sort((a, b) => a - b), numbers(0, COUNT));
    assert.ok(rounds > 1);
  });
}

check("an aggregate outside VALUE is refused across partitions by the strict server", async () => {
  const query = "SELECT COUNT(1) AS n, MAX(c.n) AS high FROM c";
  assert.deepEqual(await queryAll(await ranges(), query), [{ n: COUNT, high: COUNT - 1 }]);
  const container = await strict();
  const { client: other, exchanges } = recordingClient("strict");
  await queryAll(containerThrough(other, container), query).then(undefined, () => undefined);
  const refusal = exchanges.find(({ status }) => status === 400);
  assert.ok(refusal);
  assert.ok(!refusal.substatus, "no plan comes with this refusal");
  assert.deepEqual(await queryAll(container, query, { partitionKey: "p0" }), [{ n: 6, high: 40 }]);
});

check("the request for a plan reports a syntax error too", async () => {
  await refused(400, queryAll(await strict(), "SELECT * FROM c ORDER BY", { forceQueryPlan: true }));
});

check("a query in pages of one item finds every item once", async () => {
  const found = await queryAll(await strict(), "SELECT * FROM c", { maxItemCount: 1 });
  assert.deepEqual(ids(found).sort(), ids(items));
});

check("a full last page of the strict gateway is followed by an empty one", async () => {
  const container = await freshContainer("strict");
  for (const id of ["a", "b", "c", "d"]) await container.items.create({ id, pk: "p" });
  const sizes = async (options) => (await pages(container, "SELECT * FROM c", options)).map((page) => page.length);
  assert.deepEqual(await sizes({ maxItemCount: 2, partitionKey: "p" }), [2, 2, 0]);
  assert.deepEqual(await sizes({ maxItemCount: 3, partitionKey: "p" }), [3, 1]);
});
