// Items: every operation on a single item, and its answer.

import assert from "node:assert/strict";

import { area, check } from "../lib/harness.mjs";
import { freshContainer, ids, queryAll, refused, shared, userMembers } from "../lib/support.mjs";

area("items");

const container = shared(() => freshContainer());

check("create answers 201 with the item and its system properties in order", async () => {
  const items = (await container()).items;
  const { resource, statusCode, etag, item } = await items.create({ id: "a1", pk: "a", n: 1, nested: { list: [1, "x", null] } });
  assert.equal(statusCode, 201);
  assert.deepEqual(Object.keys(resource), ["id", "pk", "n", "nested", "_rid", "_self", "_etag", "_attachments", "_ts"]);
  assert.deepEqual(userMembers(resource), { id: "a1", pk: "a", n: 1, nested: { list: [1, "x", null] } });
  assert.equal(etag, resource._etag);
  assert.equal(item.id, "a1");
  assert.equal(resource._attachments, "attachments/");
  assert.equal(Buffer.from(resource._rid, "base64").length, 16);
  assert.ok(Math.abs(resource._ts - Date.now() / 1000) < 60);
});

check("an item without an id gets one from the SDK", async () => {
  const { resource } = await (await container()).items.create({ pk: "a" });
  assert.match(resource.id, /^[0-9a-f-]{36}$/);
});

check("a second create of the same id is refused with 409, in another partition it is not", async () => {
  const { items } = await container();
  await refused(409, items.create({ id: "a1", pk: "a" }), { message: /already exists/ });
  assert.equal((await items.create({ id: "a1", pk: "b", n: 2 })).statusCode, 201);
});

check("read gives the item of that partition key", async () => {
  const target = await container();
  const { resource, statusCode, etag } = await target.item("a1", "b").read();
  assert.equal(statusCode, 200);
  assert.equal(resource.n, 2);
  assert.equal(etag, resource._etag);
});

check("read of a missing item answers 404 without a body", async () => {
  const target = await container();
  const { statusCode, resource } = await target.item("none", "a").read();
  assert.equal(statusCode, 404);
  assert.equal(resource, undefined);
  assert.equal((await target.item("a1", "elsewhere").read()).statusCode, 404);
});

check("replace keeps the rid and the self link and changes the etag", async () => {
  const target = await container();
  const { resource: before } = await target.item("a1", "a").read();
  const { resource: after, statusCode } = await target.item("a1", "a").replace({ id: "a1", pk: "a", n: 10 });
  assert.equal(statusCode, 200);
  assert.deepEqual(userMembers(after), { id: "a1", pk: "a", n: 10 });
  assert.equal(after._rid, before._rid);
  assert.equal(after._self, before._self);
  assert.notEqual(after._etag, before._etag);
});

check("replace of a missing item is refused with 404", async () => {
  const target = await container();
  await refused(404, target.item("none", "a").replace({ id: "none", pk: "a" }));
});

check("replace can change the id of an item, and not its partition key", async () => {
  const target = await container();
  const { resource: created } = await target.items.create({ id: "before", pk: "a", n: 1 });
  await refused(400, target.item("before", "a").replace({ id: "before", pk: "b", n: 2 }), { substatus: 1001 });
  assert.equal((await target.item("before", "a").read()).resource.n, 1);
  const { resource: renamed } = await target.item("before", "a").replace({ id: "after", pk: "a", n: 3 });
  assert.deepEqual([renamed.id, renamed._rid], ["after", created._rid]);
  assert.equal((await target.item("after", "a").read()).resource.n, 3);
  assert.equal((await target.item("before", "a").read()).statusCode, 404);
  await target.item("after", "a").delete();
});

check("upsert answers 201 for a new item and 200 for a known one", async () => {
  const { items } = await container();
  const first = await items.upsert({ id: "u", pk: "a", n: 1 });
  const second = await items.upsert({ id: "u", pk: "a", n: 2 });
  assert.deepEqual([first.statusCode, second.statusCode], [201, 200]);
  assert.equal(second.resource.n, 2);
  assert.equal(second.resource._rid, first.resource._rid);
});

check("delete answers 204, then 404", async () => {
  const target = await container();
  const { statusCode, resource } = await target.item("u", "a").delete();
  assert.equal(statusCode, 204);
  assert.equal(resource, null);
  await refused(404, target.item("u", "a").delete(), { message: /does not exist/ });
});

check("readAll pages through all items", async () => {
  const target = await freshContainer();
  for (let n = 0; n < 7; n += 1) await target.items.create({ id: `${n}`, pk: n % 2 ? "odd" : "even" });
  const iterator = target.items.readAll({ maxItemCount: 3 });
  const sizes = [];
  const seen = [];
  while (iterator.hasMoreResults()) {
    const { resources } = await iterator.fetchNext();
    sizes.push(resources.length);
    seen.push(...ids(resources));
  }
  assert.deepEqual(sizes, [3, 3, 1]);
  assert.deepEqual(seen, ["0", "1", "2", "3", "4", "5", "6"]);
});

check("reading many known ids in one query gives exactly those", async () => {
  const target = await freshContainer("ranges");
  for (let n = 0; n < 20; n += 1) await target.items.create({ id: `${n}`, pk: `p${n % 5}`, n });
  const query = {
    query: "SELECT * FROM c WHERE (c.id = @i0 AND c.pk = @p0) OR (c.id = @i1 AND c.pk = @p1) OR (c.id = @i2 AND c.pk = @p2)",
    parameters: [
      { name: "@i0", value: "3" }, { name: "@p0", value: "p3" },
      { name: "@i1", value: "7" }, { name: "@p1", value: "p2" },
      { name: "@i2", value: "8" }, { name: "@p2", value: "p0" },
    ],
  };
  assert.deepEqual(ids(await queryAll(target, query)).sort(), ["3", "7"]);
  const some = await Promise.all(["3", "7", "19"].map((id) => target.item(id, `p${id % 5}`).read()));
  assert.deepEqual(some.map(({ resource }) => resource.n), [3, 7, 19]);
});

check("partition keys of every type are kept apart", async () => {
  const target = await freshContainer("ranges");
  const keys = ["1", 1, true, "true", null, "null", 1.5, "", -0.5, false];
  for (const pk of keys) await target.items.create({ id: "same", pk, kept: String(pk) });
  for (const pk of keys) {
    const { resource } = await target.item("same", pk).read();
    assert.equal(resource.kept, String(pk));
    assert.strictEqual(resource.pk, pk);
  }
  assert.equal((await queryAll(target, "SELECT * FROM c")).length, keys.length);
});

check("an item without the partition key is found by an undefined key and not by null", async () => {
  const target = await freshContainer("ranges");
  const { resource } = await target.items.create({ id: "keyless", n: 1 });
  assert.equal(resource.pk, undefined);
  assert.equal((await target.item("keyless", undefined).read()).resource.n, 1);
  assert.equal((await target.item("keyless", null).read()).statusCode, 404);
  assert.equal((await target.item("keyless", undefined).delete()).statusCode, 204);
});

check("a partition key inside an object is found", async () => {
  const target = await freshContainer("ranges", { partitionKey: { paths: ["/address/city"], version: 2 } });
  await target.items.create({ id: "1", address: { city: "Bern", zip: 3000 } });
  assert.equal((await target.item("1", "Bern").read()).resource.address.zip, 3000);
  assert.deepEqual(ids(await queryAll(target, "SELECT * FROM c", { partitionKey: "Bern" })), ["1"]);
});
