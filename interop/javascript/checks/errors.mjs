// Refusals as the SDK reports them: code, sub-status, message.

import assert from "node:assert/strict";

import { area, check } from "../lib/harness.mjs";
import { client, database, freshContainer, queryAll, refused, shared, unique } from "../lib/support.mjs";

area("errors");

const container = shared(() => freshContainer());

check("an operation on a missing container is refused with 404", async () => {
  const nowhere = (await database()).container(unique("none"));
  await refused(404, nowhere.read(), { message: /Resource Not Found/ });
  await refused(404, nowhere.delete());
  await refused(404, nowhere.items.create({ id: "1", pk: "a" }));
  await refused(404, queryAll(nowhere, "SELECT * FROM c"));
});

check("an operation on a missing database is refused with 404", async () => {
  await refused(404, client().database(unique("none")).containers.create({ id: "c", partitionKey: "/pk" }));
});

check("an error carries the service's code, an activity id and a charge", async () => {
  const target = await container();
  await target.items.create({ id: "1", pk: "a" });
  const error = await refused(409, target.items.create({ id: "1", pk: "a" }));
  assert.equal(error.body.code, "Conflict");
  assert.ok(error.headers["x-ms-activity-id"]);
  assert.ok(Number(error.headers["x-ms-request-charge"]) > 0);
});

check("a key in the options that is not the body's is refused with 400 and 1001", async () => {
  const target = await container();
  await refused(400, target.item("1", "a").replace({ id: "1", pk: "b" }), { substatus: 1001 });
  assert.equal((await target.item("1", "a").read()).resource.pk, "a");
});

check("an item without an id is refused with 400 when the SDK generates none", async () => {
  const target = await container();
  await refused(400, target.items.create({ pk: "a" }, { disableAutomaticIdGeneration: true }), { message: /'id; '/ });
});

check("query errors name their cause", async () => {
  const target = await container();
  await refused(400, queryAll(target, "SELECT"), { message: /SC1\d\d\d/ });
  await refused(400, queryAll(target, "SELECT * FROM c WHERE NO_SUCH(c.a)"), { message: /SC2005/ });
  await refused(400, queryAll(target, "SELECT c.a, c.b AS a FROM c"), { message: /SC2022|SC\d+/ });
  await refused(400, queryAll(target, "SELECT VALUE d.a FROM c"), { message: /SC2001/ });
  await refused(400, queryAll(target, "SELECT * FROM c; SELECT * FROM c"), { message: /SC10\d\d/ });
});

check("an invalid container definition is refused with 400", async () => {
  const parent = await database();
  await refused(400, parent.containers.create({ id: unique("c"), partitionKey: { paths: ["no-slash"] } }));
  await refused(400, parent.containers.create({ id: unique("c"), partitionKey: { paths: ["/pk"] }, defaultTtl: 0 }));
  await refused(400, parent.containers.create({ id: unique("c"), partitionKey: { paths: ["/a", "/b"], kind: "Hash" } }));
});

check("a page size that is not a number is refused with 400", async () => {
  await refused(400, (await container()).items.query("SELECT * FROM c", { maxItemCount: "many", partitionKey: "a" }).fetchNext());
});

check("an aborted request ends, and the client goes on", async () => {
  const target = await container();
  const aborting = new AbortController();
  const query = queryAll(target, "SELECT * FROM c", { abortSignal: aborting.signal });
  aborting.abort();
  await assert.rejects(query);
  assert.equal((await target.item("1", "a").read()).statusCode, 200);
});
