// Queries over one partition and over several, with pages, continuation tokens and
// parameters.

import assert from "node:assert/strict";

import { area, check } from "../lib/harness.mjs";
import { containerThrough, createAll, freshContainer, ids, pages, queryAll, recordingClient, refused, shared, sorted } from "../lib/support.mjs";

area("queries");

const COUNT = 60;

// A container with 60 items of 6 partition keys: item n has the key n % 6, and numbers to order
// and group by.
const seeded = (server) =>
  shared(async () => {
    const container = await freshContainer(server);
    const items = Array.from({ length: COUNT }, (_, n) => ({ id: `${n}`.padStart(2, "0"), pk: `p${n % 6}`, n, half: Math.floor(n / 2) }));
    await createAll(container, items);
    return container;
  });

const plain = seeded("plain");
const ranges = seeded("ranges");
const numbers = (from, to, step = 1) => Array.from({ length: Math.ceil((to - from) / step) }, (_, n) => from + n * step);

check("a query with a partition key sees that partition only", async () => {
  for (const container of [await plain(), await ranges()]) {
    const items = await queryAll(container, "SELECT * FROM c", { partitionKey: "p2" });
    assert.deepEqual(items.map(({ n }) => n).sort((a, b) => a - b), numbers(2, COUNT, 6));
    assert.ok(items.every(({ pk }) => pk === "p2"));
  }
});

check("a query without a partition key sees every partition", async () => {
  for (const container of [await plain(), await ranges()]) {
    const found = await queryAll(container, "SELECT VALUE c.n FROM c WHERE c.n >= 10");
    assert.deepEqual(found.sort((a, b) => a - b), numbers(10, COUNT));
  }
});

check("pages are as long as asked and join up without gaps", async () => {
  const answer = await pages(await plain(), "SELECT VALUE c.n FROM c ORDER BY c.n", { maxItemCount: 25 });
  assert.deepEqual(answer.map((page) => page.length), [25, 25, 10]);
  assert.deepEqual(answer.flat(), numbers(0, COUNT));
});

check("a continuation token resumes in a new client, in one partition", async () => {
  const container = await ranges();
  const query = "SELECT VALUE c.n FROM c ORDER BY c.n";
  const first = await container.items.query(query, { maxItemCount: 4, partitionKey: "p1" }).fetchNext();
  assert.deepEqual(first.resources, [1, 7, 13, 19]);
  assert.ok(first.continuationToken);
  const { client: other } = recordingClient("ranges");
  const rest = containerThrough(other, container).items.query(query, { maxItemCount: 4, partitionKey: "p1", continuationToken: first.continuationToken });
  const second = await rest.fetchNext();
  assert.deepEqual(second.resources, [25, 31, 37, 43]);
  const third = await rest.fetchNext();
  assert.deepEqual(third.resources, [49, 55]);
  assert.equal(third.continuationToken, undefined);
  assert.equal(rest.hasMoreResults(), false);
});

check("a continuation token resumes across partitions", async () => {
  const container = await ranges();
  const seen = [];
  let continuationToken;
  let rounds = 0;
  do {
    const iterator = container.items.query("SELECT * FROM c", { maxItemCount: 7, continuationToken });
    const page = await iterator.fetchNext();
    assert.ok(page.resources.length <= 7);
    seen.push(...ids(page.resources));
    continuationToken = page.continuationToken;
    rounds += 1;
    assert.ok(rounds <= COUNT);
  } while (continuationToken);
  assert.equal(seen.length, COUNT);
  assert.equal(new Set(seen).size, COUNT);
});

check("an ordered query resumes across partitions by its token", async () => {
  const container = await ranges();
  const seen = [];
  let continuationToken;
  do {
    const page = await container.items
      .query("SELECT VALUE c.n FROM c ORDER BY c.n DESC", { maxItemCount: 11, continuationToken })
      .fetchNext();
    seen.push(...page.resources);
    continuationToken = page.continuationToken;
  } while (continuationToken && seen.length <= COUNT);
  assert.deepEqual(seen, numbers(0, COUNT).reverse());
});

check("a garbled continuation token is refused with 400", async () => {
  const iterator = (await plain()).items.query("SELECT * FROM c", { continuationToken: "{garbage", partitionKey: "p1" });
  await refused(400, iterator.fetchNext(), { message: /Continuation Token/i });
});

check("the async iterator yields the same pages", async () => {
  const seen = [];
  for await (const { resources } of (await plain()).items.query("SELECT VALUE c.n FROM c ORDER BY c.n", { maxItemCount: 4, partitionKey: "p3" }).getAsyncIterator()) {
    seen.push(...resources);
  }
  assert.deepEqual(seen, numbers(3, COUNT, 6));
});

check("parameters of every type are bound by name", async () => {
  const container = await freshContainer();
  await container.items.create({ id: "1", pk: "a", t: "x'y\"z", n: 1.5, b: true, z: null, l: [1, 2], o: { k: 1 } });
  const query = "SELECT VALUE c.id FROM c WHERE c.t = @t AND c.n = @n AND c.b = @b AND c.z = @z AND c.l = @l AND c.o = @o AND c[@name] = @n";
  const parameters = Object.entries({ t: "x'y\"z", n: 1.5, b: true, z: null, l: [1, 2], o: { k: 1 }, name: "n" });
  const spec = { query, parameters: parameters.map(([name, value]) => ({ name: `@${name}`, value })) };
  assert.deepEqual(await queryAll(container, spec, { partitionKey: "a" }), ["1"]);
  assert.deepEqual(await queryAll(container, spec), ["1"]);
});

check("an unknown parameter is undefined, not an error", async () => {
  assert.deepEqual(await queryAll(await plain(), { query: "SELECT * FROM c WHERE c.n = @missing", parameters: [] }), []);
});

check("a query with a syntax error is refused with 400 and the position of the error", async () => {
  const error = await refused(400, queryAll(await plain(), "SELECT * FROM c WHERE c.n = = 1"));
  assert.match(error.body.message, /SC1001/);
});

check("the read-only system properties can be queried", async () => {
  const container = await plain();
  const [item] = await queryAll(container, "SELECT * FROM c WHERE c.id = '07'");
  const found = await queryAll(container, { query: "SELECT VALUE c.id FROM c WHERE c._rid = @rid AND c._etag = @etag AND c._ts = @ts", parameters: [
    { name: "@rid", value: item._rid },
    { name: "@etag", value: item._etag },
    { name: "@ts", value: item._ts },
  ] });
  assert.deepEqual(found, ["07"]);
});

check("every page has its charge, and query metrics when asked for", async () => {
  const page = await (await plain()).items.query("SELECT * FROM c", { populateQueryMetrics: true, partitionKey: "p1" }).fetchNext();
  assert.ok(page.requestCharge > 2, `charge ${page.requestCharge}`);
  const metrics = page.headers["x-ms-documentdb-query-metrics"]["0"];
  assert.equal(metrics.retrievedDocumentCount, 10);
  assert.equal(metrics.outputDocumentCount, 10);
  assert.ok(metrics.totalQueryExecutionTime.totalMilliseconds() >= 0);
});

check("the queries of all partition keys together give the rows of a query over all partitions", async () => {
  const container = await ranges();
  const wholes = await queryAll(container, "SELECT VALUE c.id FROM c");
  const parts = [];
  for (const key of numbers(0, 6)) parts.push(...(await queryAll(container, "SELECT VALUE c.id FROM c", { partitionKey: `p${key}` })));
  assert.deepEqual(sorted(parts), sorted(wholes));
});
