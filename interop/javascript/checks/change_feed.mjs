// The change feed: where it starts, how it resumes, and which changes it has.

import assert from "node:assert/strict";

import { ChangeFeedMode, ChangeFeedPolicy, ChangeFeedRetentionTimeSpan, ChangeFeedStartFrom } from "@azure/cosmos";

import { area, check } from "../lib/harness.mjs";
import { createAll, freshContainer, ids, sorted, waitUntil } from "../lib/support.mjs";

area("change_feed");

// Reads a feed until the SDK reports that there are no more changes. Returns the items, the
// sizes of the pages, and the continuation token.
async function drain(container, options) {
  const iterator = container.items.getChangeFeedIterator(options);
  return drainIterator(iterator);
}

async function drainIterator(iterator) {
  const found = [];
  const sizes = [];
  // A range answers 304 when it has no more changes. The SDK asks every range before it
  // returns 304.
  const ROUNDS_MAX = 200;
  for (let round = 0; round < ROUNDS_MAX; round += 1) {
    const page = await iterator.readNext();
    if (page.statusCode === 304) return { found, sizes, continuationToken: page.continuationToken };
    assert.equal(page.statusCode, 200);
    found.push(...page.result);
    sizes.push(page.count);
  }
  assert.fail("the change feed does not end");
}

async function seeded(server, count = 20, definition = {}) {
  const container = await freshContainer(server, definition);
  await createAll(container, Array.from({ length: count }, (_, n) => ({ id: `${n}`, pk: `p${n % 5}`, n })));
  return container;
}

for (const server of ["plain", "ranges"]) {
  check(`from the beginning every item comes once, in its latest version (${server})`, async () => {
    const container = await seeded(server);
    await container.item("3", "p3").replace({ id: "3", pk: "p3", n: 300 });
    await container.item("4", "p4").delete();
    const { found } = await drain(container, { changeFeedStartFrom: ChangeFeedStartFrom.Beginning() });
    assert.equal(found.length, 19);
    assert.equal(new Set(ids(found)).size, 19);
    assert.equal(found.find(({ id }) => id === "3").n, 300);
    assert.ok(found.every(({ _lsn }) => _lsn > 0));
  });

  check(`from now only later changes come (${server})`, async () => {
    const container = await seeded(server);
    const iterator = container.items.getChangeFeedIterator({ changeFeedStartFrom: ChangeFeedStartFrom.Now() });
    assert.deepEqual((await drainIterator(iterator)).found, []);
    await container.items.create({ id: "late", pk: "p1" });
    await container.items.upsert({ id: "7", pk: "p2", n: 70 });
    const { found } = await drainIterator(iterator);
    assert.deepEqual(sorted(ids(found)), ["7", "late"]);
  });

  check(`a continuation token goes on where it stopped (${server})`, async () => {
    const container = await seeded(server);
    const first = await drain(container, { changeFeedStartFrom: ChangeFeedStartFrom.Beginning(), maxItemCount: 6 });
    assert.equal(first.found.length, 20);
    await createAll(container, [{ id: "a", pk: "p0" }, { id: "b", pk: "p3" }]);
    const next = await drain(container, { changeFeedStartFrom: ChangeFeedStartFrom.Continuation(first.continuationToken) });
    assert.deepEqual(sorted(ids(next.found)), ["a", "b"]);
    const last = await drain(container, { changeFeedStartFrom: ChangeFeedStartFrom.Continuation(next.continuationToken) });
    assert.deepEqual(last.found, []);
  });
}

check("from the beginning, one range gives the changes in the order they were made", async () => {
  const container = await freshContainer("plain");
  for (let n = 0; n < 10; n += 1) await container.items.create({ id: `${n}`, pk: `p${n % 3}` });
  await container.items.upsert({ id: "0", pk: "p0", again: true });
  const { found, sizes } = await drain(container, { changeFeedStartFrom: ChangeFeedStartFrom.Beginning(), maxItemCount: 4 });
  assert.deepEqual(ids(found), ["1", "2", "3", "4", "5", "6", "7", "8", "9", "0"]);
  assert.ok(sizes.every((size) => size <= 4), JSON.stringify(sizes));
  const lsns = found.map(({ _lsn }) => _lsn);
  assert.deepEqual(lsns, [...lsns].sort((a, b) => a - b));
});

check("a partition key's feed carries that key only", async () => {
  const container = await seeded("ranges");
  const { found, continuationToken } = await drain(container, { changeFeedStartFrom: ChangeFeedStartFrom.Beginning("p2"), maxItemCount: 3 });
  assert.deepEqual(found.map(({ n }) => n).sort((a, b) => a - b), [2, 7, 12, 17]);
  await createAll(container, [{ id: "mine", pk: "p2" }, { id: "other", pk: "p1" }]);
  const { found: more } = await drain(container, { changeFeedStartFrom: ChangeFeedStartFrom.Continuation(continuationToken) });
  assert.deepEqual(ids(more), ["mine"]);
});

check("a partition key's feed from now carries its later changes", async () => {
  const container = await seeded("ranges");
  const iterator = container.items.getChangeFeedIterator({ changeFeedStartFrom: ChangeFeedStartFrom.Now("p2") });
  assert.deepEqual((await drainIterator(iterator)).found, []);
  await createAll(container, [{ id: "mine", pk: "p2" }, { id: "other", pk: "p1" }]);
  assert.deepEqual(ids((await drainIterator(iterator)).found), ["mine"]);
});

check("the feeds of all feed ranges together are the whole feed", async () => {
  const container = await seeded("ranges", 40);
  const feedRanges = await container.getFeedRanges();
  assert.equal(feedRanges.length, 4);
  const parts = [];
  for (const range of feedRanges) {
    const { found } = await drain(container, { changeFeedStartFrom: ChangeFeedStartFrom.Beginning(range) });
    parts.push(ids(found));
  }
  const joined = parts.flat();
  assert.equal(joined.length, 40);
  assert.equal(new Set(joined).size, 40);
});

check("from a point in time, only what changed since then comes", async () => {
  const container = await seeded("ranges", 6);
  const { resources } = await container.items.query("SELECT VALUE MAX(c._ts) FROM c").fetchAll();
  // The header has whole seconds, so the start is the second after the last write.
  const start = (resources[0] + 1) * 1000;
  await waitUntil(() => Date.now() > start);
  await createAll(container, [{ id: "late 1", pk: "p1" }, { id: "late 2", pk: "p4" }]);
  const { found } = await drain(container, { changeFeedStartFrom: ChangeFeedStartFrom.Time(new Date(start)) });
  assert.deepEqual(sorted(ids(found)), ["late 1", "late 2"]);
  const { found: everything } = await drain(container, { changeFeedStartFrom: ChangeFeedStartFrom.Time(new Date(start - 3_600_000)) });
  assert.equal(everything.length, 8);
});

check("a batch is never split over two pages", async () => {
  const container = await freshContainer("plain");
  for (let n = 0; n < 5; n += 1) {
    const operations = Array.from({ length: 10 }, (_, k) => ({ operationType: "Create", resourceBody: { id: `${n}-${k}`, pk: "a", batch: n } }));
    await container.items.batch(operations, "a");
  }
  const iterator = container.items.getChangeFeedIterator({ changeFeedStartFrom: ChangeFeedStartFrom.Beginning("a"), maxItemCount: 4 });
  const seen = [];
  for (let page = await iterator.readNext(); page.statusCode === 200; page = await iterator.readNext()) {
    for (const batch of new Set(page.result.map(({ batch }) => batch))) {
      assert.equal(page.result.filter((item) => item.batch === batch).length, 10, "a batch is split over two pages");
    }
    seen.push(...ids(page.result));
  }
  assert.equal(new Set(seen).size, 50);
});

check("the older changeFeed iterator reads the same changes", async () => {
  const container = await seeded("plain");
  const iterator = container.items.changeFeed("p3", { startFromBeginning: true, maxItemCount: 3 });
  const found = [];
  for (let page = await iterator.fetchNext(); page.count > 0; page = await iterator.fetchNext()) found.push(...page.result);
  assert.deepEqual(found.map(({ n }) => n).sort((a, b) => a - b), [3, 8, 13, 18]);
  await container.items.create({ id: "more", pk: "p3" });
  assert.deepEqual(ids((await iterator.fetchNext()).result), ["more"]);
});

check("all versions and deletes come with their kind, from now on", async () => {
  const container = await freshContainer("ranges", {
    changeFeedPolicy: new ChangeFeedPolicy(ChangeFeedRetentionTimeSpan.fromMinutes(5)),
  });
  assert.equal((await container.read()).resource.changeFeedPolicy.retentionDuration, 5);
  const options = { changeFeedMode: ChangeFeedMode.AllVersionsAndDeletes, changeFeedStartFrom: ChangeFeedStartFrom.Now() };
  const iterator = container.items.getChangeFeedIterator(options);
  assert.deepEqual((await drainIterator(iterator)).found, []);
  await container.items.create({ id: "x", pk: "a", n: 1 });
  await container.item("x", "a").replace({ id: "x", pk: "a", n: 2 });
  await container.item("x", "a").delete();
  const { found } = await drainIterator(iterator);
  assert.deepEqual(found.map(({ metadata }) => metadata.operationType), ["create", "replace", "delete"]);
  assert.deepEqual(found.map(({ current }) => current?.n), [1, 2, undefined]);
  const lsns = found.map(({ metadata }) => metadata.lsn);
  assert.ok(lsns[0] < lsns[1] && lsns[1] < lsns[2], JSON.stringify(lsns));
});

check("all versions of one partition key leave the others out", async () => {
  const container = await freshContainer("ranges", {
    changeFeedPolicy: new ChangeFeedPolicy(ChangeFeedRetentionTimeSpan.fromMinutes(5)),
  });
  const iterator = container.items.getChangeFeedIterator({
    changeFeedMode: ChangeFeedMode.AllVersionsAndDeletes,
    changeFeedStartFrom: ChangeFeedStartFrom.Now("a"),
  });
  await drainIterator(iterator);
  await createAll(container, [{ id: "1", pk: "a" }, { id: "2", pk: "b" }]);
  const { found } = await drainIterator(iterator);
  assert.deepEqual(found.map(({ current }) => current.id), ["1"]);
});
