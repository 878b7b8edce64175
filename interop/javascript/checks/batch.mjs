// Transactional batches: operations on one partition key that are all done, or none.

import assert from "node:assert/strict";

import { area, check } from "../lib/harness.mjs";
import { freshContainer, ids, queryAll, shared, unique, userMembers } from "../lib/support.mjs";

area("batch");

const container = shared(() => freshContainer("ranges"));

const create = (resourceBody) => ({ operationType: "Create", resourceBody });
const upsert = (resourceBody) => ({ operationType: "Upsert", resourceBody });
const read = (id) => ({ operationType: "Read", id });
const remove = (id) => ({ operationType: "Delete", id });
const replace = (id, resourceBody, conditions = {}) => ({ operationType: "Replace", id, resourceBody, ...conditions });
const patch = (id, operations, conditions = {}) => ({ operationType: "Patch", id, resourceBody: { operations, ...conditions } });

const statuses = (answer) => answer.result.map(({ statusCode }) => statusCode);

check("every verb works in one batch, and later operations see earlier ones", async () => {
  const target = await container();
  const pk = unique("pk");
  await target.items.create({ id: "known", pk, n: 1 });
  const answer = await target.items.batch(
    [
      create({ id: "new", pk, n: 1 }),
      upsert({ id: "up", pk, n: 1 }),
      upsert({ id: "up", pk, n: 2 }),
      read("new"),
      replace("new", { id: "new", pk, n: 5 }),
      patch("new", [{ op: "incr", path: "/n", value: 1 }]),
      read("new"),
      remove("known"),
    ],
    pk,
  );
  assert.equal(answer.code, 200);
  assert.deepEqual(statuses(answer), [201, 201, 200, 200, 200, 200, 200, 204]);
  assert.deepEqual(userMembers(answer.result[3].resourceBody), { id: "new", pk, n: 1 });
  assert.equal(answer.result[6].resourceBody.n, 6);
  assert.equal(answer.result[7].resourceBody, undefined);
  assert.equal(answer.result[6].eTag, answer.result[6].resourceBody._etag);
  assert.ok(answer.result.every(({ requestCharge }) => requestCharge > 0));
  const stored = await queryAll(target, "SELECT * FROM c ORDER BY c.id", { partitionKey: pk });
  assert.deepEqual(stored.map(userMembers), [{ id: "new", pk, n: 6 }, { id: "up", pk, n: 2 }]);
});

check("if an operation fails, the answer is 207 with its status and 424 for the others, and nothing is stored", async () => {
  const target = await container();
  const pk = unique("pk");
  await target.items.create({ id: "taken", pk, n: 1 });
  const answer = await target.items.batch(
    [create({ id: "first", pk }), replace("taken", { id: "taken", pk, n: 2 }), create({ id: "taken", pk }), create({ id: "last", pk })],
    pk,
  );
  assert.equal(answer.code, 207);
  assert.deepEqual(statuses(answer), [424, 424, 409, 424]);
  const stored = await queryAll(target, "SELECT * FROM c", { partitionKey: pk });
  assert.deepEqual(stored.map(userMembers), [{ id: "taken", pk, n: 1 }]);
});

check("a missing item fails the batch with 404", async () => {
  const target = await container();
  const pk = unique("pk");
  for (const failing of [read("none"), remove("none"), replace("none", { id: "none", pk }), patch("none", [{ op: "set", path: "/n", value: 1 }])]) {
    const answer = await target.items.batch([create({ id: "first", pk }), failing], pk);
    assert.deepEqual(statuses(answer), [424, 404], failing.operationType);
  }
  assert.deepEqual(await queryAll(target, "SELECT * FROM c", { partitionKey: pk }), []);
});

check("If-Match inside a batch is honoured", async () => {
  const target = await container();
  const pk = unique("pk");
  const { resource: before } = await target.items.create({ id: "x", pk, n: 1 });
  const good = await target.items.batch([replace("x", { id: "x", pk, n: 2 }, { ifMatch: before._etag }), create({ id: "y", pk })], pk);
  assert.deepEqual(statuses(good), [200, 201]);
  const stale = await target.items.batch([create({ id: "z", pk }), replace("x", { id: "x", pk, n: 3 }, { ifMatch: before._etag })], pk);
  assert.equal(stale.code, 207);
  assert.deepEqual(statuses(stale), [424, 412]);
  assert.equal((await target.item("x", pk).read()).resource.n, 2);
  assert.equal((await target.item("z", pk).read()).statusCode, 404);
});

check("If-Match on delete, upsert and patch inside a batch is honoured", async () => {
  const target = await container();
  const pk = unique("pk");
  const { resource } = await target.items.create({ id: "x", pk, n: 1 });
  await target.item("x", pk).replace({ id: "x", pk, n: 2 });
  const ifMatch = resource._etag;
  const stale = [
    { ...remove("x"), ifMatch },
    { ...upsert({ id: "x", pk, n: 3 }), ifMatch },
    { ...patch("x", [{ op: "set", path: "/n", value: 3 }]), ifMatch },
  ];
  for (const operation of stale) {
    assert.deepEqual(statuses(await target.items.batch([operation], pk)), [412], operation.operationType);
  }
  assert.equal((await target.item("x", pk).read()).resource.n, 2);
});

check("If-None-Match on a read inside a batch answers 304 for an unchanged item", async () => {
  const target = await container();
  const pk = unique("pk");
  const { resource } = await target.items.create({ id: "x", pk });
  const answer = await target.items.batch([{ ...read("x"), ifNoneMatch: resource._etag }], pk);
  assert.equal(answer.result[0].statusCode, 304);
  assert.equal(answer.result[0].resourceBody, undefined);
});

check("a condition inside a batched patch is honoured", async () => {
  const target = await container();
  const pk = unique("pk");
  await target.items.create({ id: "x", pk, open: false });
  const operations = [{ op: "set", path: "/seen", value: true }];
  const failing = await target.items.batch([create({ id: "y", pk }), patch("x", operations, { condition: "from c where c.open = true" })], pk);
  assert.deepEqual(statuses(failing), [424, 412]);
  const passing = await target.items.batch([create({ id: "y", pk }), patch("x", operations, { condition: "from c where c.open = false" })], pk);
  assert.deepEqual(statuses(passing), [201, 200]);
});

check("an item of another partition key fails the batch with 400", async () => {
  const target = await container();
  const pk = unique("pk");
  const answer = await target.items.batch([create({ id: "x", pk }), create({ id: "y", pk: "other" })], pk);
  assert.equal(answer.code, 207);
  assert.deepEqual(statuses(answer), [424, 400]);
  assert.equal(answer.substatus ?? Number(answer.headers["x-ms-substatus"]), 1001);
});

check("a hundred operations are one batch, one more is refused", async () => {
  const target = await container();
  const pk = unique("pk");
  const many = Array.from({ length: 100 }, (_, n) => create({ id: `${n}`, pk }));
  const answer = await target.items.batch(many, pk);
  assert.deepEqual(statuses(answer), Array(100).fill(201));
  assert.equal(new Set(answer.result.map(({ eTag }) => eTag)).size, 100);
  assert.deepEqual(await queryAll(target, "SELECT VALUE COUNT(1) FROM c", { partitionKey: pk }), [100]);
  await assert.rejects(target.items.batch([...many, create({ id: "100", pk })], pk), /more than 100 operations/);
});

check("a batch of more than two megabytes is refused with 413 and stores nothing", async () => {
  const target = await container();
  const pk = unique("pk");
  const padding = "x".repeat(800_000);
  const body = ["1", "2", "3"].map((id) => create({ id, pk, padding }));
  await assert.rejects(target.items.batch(body, pk), (error) => error.cause.code === 413);
  assert.deepEqual(ids(await queryAll(target, "SELECT c.id FROM c", { partitionKey: pk })), []);
});

check("the writes of a batch have no bodies in the answer if the caller wants none", async () => {
  const target = await container();
  const pk = unique("pk");
  const operations = [create({ id: "x", pk, n: 1 }), replace("x", { id: "x", pk, n: 2 }), read("x")];
  const answer = await target.items.batch(operations, pk, { contentResponseOnWriteEnabled: false });
  assert.deepEqual(statuses(answer), [201, 200, 200]);
  assert.deepEqual(answer.result.map(({ resourceBody }) => resourceBody?.n), [undefined, undefined, 2]);
  assert.ok(answer.result.every(({ eTag }) => /^"[0-9a-f-]{36}"$/.test(eTag)));
});

check("a batch without a partition key creates an item without one", async () => {
  const target = await container();
  const id = unique("keyless");
  const answer = await target.items.batch([create({ id })], undefined);
  assert.deepEqual(statuses(answer), [201]);
  assert.equal((await target.item(id, undefined).read()).resource.id, id);
});

check("readers never see half a batch", async () => {
  const target = await container();
  const pk = unique("pk");
  await target.items.batch([create({ id: "l", pk, v: 0 }), create({ id: "r", pk, v: 0 })], pk);
  let isWriting = true;
  const watch = async () => {
    let reads = 0;
    while (isWriting) {
      const values = await queryAll(target, "SELECT VALUE c.v FROM c", { partitionKey: pk });
      assert.equal(values.length, 2);
      assert.equal(values[0], values[1]);
      reads += 1;
    }
    return reads;
  };
  const watching = Promise.all([watch(), watch()]);
  for (let v = 1; v <= 30; v += 1) {
    await target.items.batch([replace("l", { id: "l", pk, v }), replace("r", { id: "r", pk, v })], pk);
  }
  isWriting = false;
  assert.ok((await watching).every((reads) => reads > 0));
});
