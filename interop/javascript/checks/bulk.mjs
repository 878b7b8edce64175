// Bulk: operations on many partition keys, which the SDK groups by range.

import assert from "node:assert/strict";

import { area, check } from "../lib/harness.mjs";
import { containerThrough, freshContainer, ids, queryAll, recordingClient, sorted, userMembers } from "../lib/support.mjs";

area("bulk");

// An operation that creates an item. `executeBulkOperations` needs the key beside the body.
const create = (resourceBody, partitionKey = resourceBody.pk) => ({ operationType: "Create", partitionKey, resourceBody });
const statuses = (answers) => answers.map(({ statusCode }) => statusCode);

// The old method `bulk` and the new method `executeBulkOperations`, with answers of the same
// form.
const BULK_METHODS = {
  bulk: (container, operations, options) => container.items.bulk(operations, undefined, options),
  executeBulkOperations: async (container, operations, options) => {
    const results = await container.items.executeBulkOperations(operations, options);
    return results.map(({ response, error }) => response ?? { statusCode: error.code, error });
  },
};

for (const [name, run] of Object.entries(BULK_METHODS)) {
  for (const version of [1, 2]) {
    check(`${name} spreads creates over four ranges (hash version ${version})`, async () => {
      const target = await freshContainer("ranges", { partitionKey: { paths: ["/pk"], kind: "Hash", version } });
      const { client: other, exchanges } = recordingClient("ranges");
      const items = Array.from({ length: 60 }, (_, n) => ({ id: `${n}`, pk: `key ${n}`, n }));
      const answers = await run(containerThrough(other, target), items.map((item) => create(item)));
      assert.deepEqual(statuses(answers), Array(60).fill(201));
      assert.deepEqual(answers.map(({ resourceBody }) => userMembers(resourceBody)), items);
      const used = exchanges.filter(({ sent }) => sent["x-ms-cosmos-is-batch-request"]);
      assert.equal(new Set(used.map(({ sent }) => sent["x-ms-documentdb-partitionkeyrangeid"])).size, 4);
      assert.ok(used.every(({ status }) => status === 200));
      assert.deepEqual(await queryAll(target, "SELECT VALUE COUNT(1) FROM c"), [60]);
    });
  }

  check(`${name} carries out every verb`, async () => {
    const target = await freshContainer("ranges", { partitionKey: { paths: ["/pk"], version: 2 } });
    for (const pk of ["a", "b", "c", "d"]) await target.items.create({ id: "x", pk, n: 1 });
    const answers = await run(target, [
      create({ id: "new", pk: "a", n: 0 }),
      { operationType: "Upsert", partitionKey: "b", resourceBody: { id: "x", pk: "b", n: 2 } },
      { operationType: "Read", partitionKey: "a", id: "x" },
      { operationType: "Replace", partitionKey: "c", id: "x", resourceBody: { id: "x", pk: "c", n: 3 } },
      { operationType: "Delete", partitionKey: "d", id: "x" },
      { operationType: "Patch", partitionKey: "a", id: "x", resourceBody: { operations: [{ op: "incr", path: "/n", value: 41 }] } },
    ]);
    assert.deepEqual(statuses(answers), [201, 200, 200, 200, 204, 200]);
    assert.equal(answers[2].resourceBody.id, "x");
    assert.equal(answers[5].resourceBody.n, 42);
    const stored = await queryAll(target, "SELECT c.id, c.pk, c.n FROM c");
    assert.deepEqual(sorted(stored.map((item) => `${item.pk}/${item.id}/${item.n}`)), ["a/new/0", "a/x/42", "b/x/2", "c/x/3"]);
  });

  check(`${name} goes on after an error and keeps what succeeded`, async () => {
    const target = await freshContainer("ranges", { partitionKey: { paths: ["/pk"], version: 2 } });
    await target.items.create({ id: "taken", pk: "a" });
    const answers = await run(target, [
      create({ id: "before", pk: "a" }),
      create({ id: "taken", pk: "a" }),
      { operationType: "Replace", partitionKey: "b", id: "none", resourceBody: { id: "none", pk: "b" } },
      create({ id: "after", pk: "a" }),
    ]);
    assert.deepEqual(statuses(answers), [201, 409, 404, 201]);
    assert.deepEqual(sorted(ids(await queryAll(target, "SELECT * FROM c"))), ["after", "before", "taken"]);
  });

  check(`${name} honours If-Match`, async () => {
    const target = await freshContainer("ranges");
    const { resource } = await target.items.create({ id: "x", pk: "a", n: 1 });
    await target.item("x", "a").replace({ id: "x", pk: "a", n: 2 });
    const stale = { operationType: "Replace", partitionKey: "a", id: "x", ifMatch: resource._etag, resourceBody: { id: "x", pk: "a", n: 3 } };
    assert.deepEqual(statuses(await run(target, [stale])), [412]);
    assert.equal((await target.item("x", "a").read()).resource.n, 2);
  });

  check(`${name} takes keys of every type`, async () => {
    const target = await freshContainer("ranges", { partitionKey: { paths: ["/pk"], version: 2 } });
    const keys = ["text", "", "ünïcödé 🎉", 42, -1.5, true, false, null];
    const operations = keys.map((pk, n) => create({ id: `${n}`, pk }, pk));
    assert.deepEqual(statuses(await run(target, operations)), Array(keys.length).fill(201));
    for (const [n, pk] of keys.entries()) assert.strictEqual((await target.item(`${n}`, pk).read()).resource.pk, pk);
  });

  check(`${name} takes hierarchical keys`, async () => {
    const target = await freshContainer("ranges", {
      partitionKey: { paths: ["/tenant", "/user"], kind: "MultiHash", version: 2 },
    });
    const items = Array.from({ length: 30 }, (_, n) => ({ id: `${n}`, tenant: `t${n % 7}`, user: n }));
    const operations = items.map((item) => create(item, [item.tenant, item.user]));
    assert.deepEqual(statuses(await run(target, operations)), Array(30).fill(201));
    assert.equal((await target.item("8", ["t1", 8]).read()).resource.user, 8);
  });
}

check("bulk takes the key from the body, or none if the body has no key", async () => {
  const target = await freshContainer("ranges", { partitionKey: { paths: ["/pk"], version: 2 } });
  const bodies = [{ id: "1", pk: "a" }, { id: "2" }, { id: "3", pk: null }];
  const answers = await target.items.bulk(bodies.map((resourceBody) => ({ operationType: "Create", resourceBody })));
  assert.deepEqual(statuses(answers), [201, 201, 201]);
  assert.equal((await target.item("2", undefined).read()).statusCode, 200);
  assert.equal((await target.item("3", null).read()).statusCode, 200);
});

check("bulk stops at the first error when told to", async () => {
  const target = await freshContainer("plain");
  await target.items.create({ id: "taken", pk: "a" });
  const operations = ["one", "taken", "two"].map((id) => create({ id, pk: "a" }));
  const answers = await target.items.bulk(operations, { continueOnError: false });
  assert.deepEqual(statuses(answers), [201, 409, 424]);
  assert.deepEqual(sorted(ids(await queryAll(target, "SELECT * FROM c"))), ["one", "taken"]);
});

check("executeBulkOperations takes more than a hundred operations of one key", async () => {
  const target = await freshContainer("ranges");
  const operations = Array.from({ length: 250 }, (_, n) => create({ id: `${n}`, pk: "one key" }));
  const answers = await BULK_METHODS.executeBulkOperations(target, operations, { contentResponseOnWriteEnabled: false });
  assert.deepEqual(statuses(answers), Array(250).fill(201));
  assert.ok(answers.every(({ resourceBody }) => resourceBody === undefined));
  assert.deepEqual(await queryAll(target, "SELECT VALUE COUNT(1) FROM c", { partitionKey: "one key" }), [250]);
});
