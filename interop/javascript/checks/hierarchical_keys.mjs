// Containers with a partition key of two or three levels.

import assert from "node:assert/strict";

import { ChangeFeedStartFrom, PartitionKeyBuilder } from "@azure/cosmos";

import { area, check } from "../lib/harness.mjs";
import { createAll, freshContainer, ids, queryAll, refused, shared, sorted, userMembers } from "../lib/support.mjs";

area("hierarchical_keys");

const KEY = { paths: ["/tenant", "/user", "/session"], kind: "MultiHash", version: 2 };
const items = Array.from({ length: 36 }, (_, n) => ({
  id: `${n}`,
  tenant: `t${n % 3}`,
  user: `u${n % 6}`,
  session: n,
}));

const seeded = (server) =>
  shared(async () => {
    const container = await freshContainer(server, { partitionKey: KEY });
    await createAll(container, items);
    return container;
  });
const ranges = seeded("ranges");
const strict = seeded("strict");

check("the definition is kept", async () => {
  const { resource } = await (await ranges()).read();
  assert.deepEqual(resource.partitionKey, KEY);
});

check("point operations take the whole key", async () => {
  const container = await ranges();
  const key = ["t1", "u4", 4];
  assert.deepEqual(userMembers((await container.item("4", key).read()).resource), items[4]);
  await container.item("4", key).replace({ ...items[4], changed: true });
  assert.equal((await container.item("4", key).patch([{ op: "remove", path: "/changed" }])).resource.changed, undefined);
  assert.equal((await container.item("4", ["t1", "u4", 5]).read()).statusCode, 404);
});

check("create, upsert and delete take a key of PartitionKeyBuilder", async () => {
  const container = await ranges();
  const key = new PartitionKeyBuilder().addValue("t9").addValue(true).addNullValue().build();
  await container.items.create({ id: "built", tenant: "t9", user: true, session: null });
  await container.items.upsert({ id: "built", tenant: "t9", user: true, session: null, n: 2 });
  assert.equal((await container.item("built", key).read()).resource.n, 2);
  assert.equal((await container.item("built", key).delete()).statusCode, 204);
});

check("an item without some levels is found by a key with none values", async () => {
  const container = await ranges();
  const key = new PartitionKeyBuilder().addValue("t9").addNoneValue().addNoneValue().build();
  await container.items.create({ id: "short", tenant: "t9" });
  assert.equal((await container.item("short", key).read()).resource.tenant, "t9");
  assert.equal((await container.item("short", key).delete()).statusCode, 204);
});

check("a query with the whole key sees one logical partition", async () => {
  for (const container of [await ranges(), await strict()]) {
    assert.deepEqual(ids(await queryAll(container, "SELECT * FROM c", { partitionKey: ["t2", "u5", 11] })), ["11"]);
  }
});

for (const [name, partitionKey, expected] of [
  ["one level", ["t1"], items.filter(({ tenant }) => tenant === "t1")],
  ["two levels", ["t1", "u4"], items.filter(({ tenant, user }) => tenant === "t1" && user === "u4")],
]) {
  check(`a query with a prefix of ${name} sees just that subtree`, async () => {
    for (const container of [await ranges(), await strict()]) {
      const found = await queryAll(container, "SELECT * FROM c", { partitionKey });
      assert.deepEqual(sorted(ids(found)), sorted(ids(expected)));
    }
  });

  check(`an ordered query and a count with a prefix of ${name} cover just that subtree`, async () => {
    const container = await ranges();
    const ordered = await queryAll(container, "SELECT VALUE c.session FROM c ORDER BY c.session DESC", { partitionKey });
    assert.deepEqual(ordered, expected.map(({ session }) => session).sort((a, b) => b - a));
    assert.deepEqual(await queryAll(container, "SELECT VALUE COUNT(1) FROM c", { partitionKey }), [expected.length]);
  });
}

check("a query with a filter on the levels needs no partition key", async () => {
  const found = await queryAll(await ranges(), "SELECT VALUE c.id FROM c WHERE c.tenant = 't0' AND c.user = 'u3'");
  assert.deepEqual(sorted(found), sorted(ids(items.filter(({ tenant, user }) => tenant === "t0" && user === "u3"))));
});

check("a batch takes the whole key", async () => {
  const container = await ranges();
  const resourceBody = { id: "batched", tenant: "t5", user: "u5", session: 5 };
  const answer = await container.items.batch([{ operationType: "Create", resourceBody }, { operationType: "Delete", id: "batched" }], ["t5", "u5", 5]);
  assert.deepEqual(answer.result.map(({ statusCode }) => statusCode), [201, 204]);
});

check("the change feed of the whole key carries one logical partition", async () => {
  const container = await ranges();
  const iterator = container.items.getChangeFeedIterator({ changeFeedStartFrom: ChangeFeedStartFrom.Beginning(["t2", "u2", 8]) });
  assert.deepEqual(ids((await iterator.readNext()).result), ["8"]);
});

check("the change feed of a prefix carries its subtree", async () => {
  const container = await ranges();
  const iterator = container.items.getChangeFeedIterator({ changeFeedStartFrom: ChangeFeedStartFrom.Beginning(["t2"]) });
  const found = [];
  for (let page = await iterator.readNext(); page.statusCode === 200; page = await iterator.readNext()) found.push(...page.result);
  assert.deepEqual(sorted(ids(found)), sorted(ids(items.filter(({ tenant }) => tenant === "t2"))));
});

check("a point read with too short a key is refused with 400", async () => {
  await refused(400, (await ranges()).item("4", ["t1", "u4"]).read());
});
