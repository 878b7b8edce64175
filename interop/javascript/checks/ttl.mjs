// Time to live of containers and of items, and containers without a time to live.

import assert from "node:assert/strict";

import { ChangeFeedStartFrom } from "@azure/cosmos";

import { area, check } from "../lib/harness.mjs";
import { freshContainer, ids, queryAll, refused, sorted, waitUntil } from "../lib/support.mjs";

area("ttl");

// Times are whole seconds. An item with ttl n lives for more than n - 1 seconds, so an item
// that must still exist gets a ttl of at least 2.

const isGone = async (container, id) => (await container.item(id, "a").read()).statusCode === 404;

check("items expire by the container's default, their own ttl, or never", async () => {
  const container = await freshContainer("ranges", { defaultTtl: 2 });
  await container.items.create({ id: "default", pk: "a" });
  await container.items.create({ id: "forever", pk: "a", ttl: -1 });
  await container.items.create({ id: "longer", pk: "a", ttl: 1000 });
  assert.deepEqual(sorted(ids(await queryAll(container, "SELECT * FROM c"))), ["default", "forever", "longer"]);
  await waitUntil(() => isGone(container, "default"));
  assert.deepEqual(sorted(ids(await queryAll(container, "SELECT * FROM c", { partitionKey: "a" }))), ["forever", "longer"]);
  assert.deepEqual(await queryAll(container, "SELECT VALUE COUNT(1) FROM c"), [2]);
});

check("an expired item is gone for every operation, and its id is free again", async () => {
  const container = await freshContainer("plain", { defaultTtl: -1 });
  const { resource } = await container.items.create({ id: "x", pk: "a", ttl: 1 });
  assert.equal(resource.ttl, 1);
  await waitUntil(() => isGone(container, "x"));
  await refused(404, container.item("x", "a").replace({ id: "x", pk: "a" }));
  await refused(404, container.item("x", "a").patch([{ op: "set", path: "/n", value: 1 }]));
  await refused(404, container.item("x", "a").delete());
  const feed = await container.items.getChangeFeedIterator({ changeFeedStartFrom: ChangeFeedStartFrom.Beginning("a") }).readNext();
  assert.deepEqual(ids(feed.result ?? []), []);
  assert.equal((await container.items.create({ id: "x", pk: "a", n: 2 })).statusCode, 201);
});

check("an expired item frees its unique key", async () => {
  const container = await freshContainer("plain", { defaultTtl: -1, uniqueKeyPolicy: { uniqueKeys: [{ paths: ["/u"] }] } });
  await container.items.create({ id: "1", pk: "a", u: "same", ttl: 2 });
  await refused(409, container.items.create({ id: "2", pk: "a", u: "same" }));
  await waitUntil(() => isGone(container, "1"));
  assert.equal((await container.items.create({ id: "2", pk: "a", u: "same" })).statusCode, 201);
});

check("a write restarts the time to live", async () => {
  const container = await freshContainer("plain", { defaultTtl: 4 });
  const { resource } = await container.items.create({ id: "x", pk: "a", n: 0 });
  await waitUntil(() => Date.now() / 1000 > resource._ts + 2);
  await container.item("x", "a").patch([{ op: "incr", path: "/n", value: 1 }]);
  await waitUntil(() => Date.now() / 1000 > resource._ts + 4.2);
  assert.equal((await container.item("x", "a").read()).resource?.n, 1);
});

check("if the container has no default ttl, the ttl of an item has no effect", async () => {
  const container = await freshContainer("plain");
  const { resource } = await container.items.create({ id: "x", pk: "a", ttl: 1 });
  await waitUntil(() => Date.now() / 1000 > resource._ts + 2.2);
  assert.equal((await container.item("x", "a").read()).resource.ttl, 1);
});

check("a ttl of zero or of a text is refused with 400", async () => {
  const container = await freshContainer("plain", { defaultTtl: -1 });
  await refused(400, container.items.create({ id: "x", pk: "a", ttl: 0 }));
  await refused(400, container.items.create({ id: "x", pk: "a", ttl: "soon" }));
});
