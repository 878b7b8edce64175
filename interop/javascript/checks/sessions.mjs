// Session consistency: every write returns a session token, and later reads send it.

import assert from "node:assert/strict";

import { area, check } from "../lib/harness.mjs";
import { containerThrough, freshContainer, queryAll, recordingClient, refused } from "../lib/support.mjs";

area("sessions");

const TOKEN = "x-ms-session-token";

check("a session client sends the token of its last write with its next read", async () => {
  const { client: other, exchanges } = recordingClient("ranges", { consistencyLevel: "Session" });
  const container = containerThrough(other, await freshContainer("ranges"));
  const { headers } = await container.items.create({ id: "1", pk: "a", n: 1 });
  assert.match(headers[TOKEN], /^\d+:-?\d+#\d+/);
  await container.item("1", "a").read();
  const read = exchanges.find(({ method, path }) => method === "GET" && path.includes("/docs/1"));
  assert.equal(read.sent["x-ms-consistency-level"], "Session");
  assert.ok(read.sent[TOKEN].includes(headers[TOKEN]), `${read.sent[TOKEN]} has no ${headers[TOKEN]}`);
  assert.equal(read.status, 200);
});

check("tokens of several ranges travel together", async () => {
  const { client: other, exchanges } = recordingClient("ranges", { consistencyLevel: "Session" });
  const container = containerThrough(other, await freshContainer("ranges"));
  for (let n = 0; n < 20; n += 1) await container.items.create({ id: `${n}`, pk: `p${n}` });
  const { resources } = await container.items.query("SELECT VALUE COUNT(1) FROM c").fetchAll();
  assert.deepEqual(resources, [20]);
  const query = exchanges.findLast(({ sent }) => sent["x-ms-documentdb-isquery"]);
  assert.equal(query.sent[TOKEN].split(",").length, 4, query.sent[TOKEN]);
});

check("the token grows with every write of a partition", async () => {
  const container = await freshContainer("plain");
  const lsns = [];
  for (let n = 0; n < 4; n += 1) {
    const { headers } = await container.items.create({ id: `${n}`, pk: "a" });
    lsns.push(Number(headers[TOKEN].split("#")[1]));
  }
  assert.deepEqual(lsns.map((lsn) => lsn - lsns[0]), [0, 1, 2, 3]);
  const { headers } = await container.item("0", "a").read();
  assert.equal(Number(headers[TOKEN].split("#")[1]), lsns[3]);
});

check("the pages of a query have a session token, too", async () => {
  const container = await freshContainer("plain");
  const { headers } = await container.items.create({ id: "1", pk: "a" });
  const page = await container.items.query("SELECT * FROM c", { partitionKey: "a" }).fetchNext();
  assert.equal(page.headers[TOKEN], headers[TOKEN]);
});

check("a token ahead of the server is refused with 404 and sub-status 1002", async () => {
  const container = await freshContainer("plain");
  const { headers } = await container.items.create({ id: "1", pk: "a" });
  const [range, rest] = headers[TOKEN].split(":");
  const [version, lsn] = rest.split("#");
  const future = `${range}:${version}#${Number(lsn) + 1000}`;
  const { client: other } = recordingClient("plain", { connectionPolicy: { enableEndpointDiscovery: false } });
  const answer = containerThrough(other, container).item("1", "a").read({ sessionToken: future, consistencyLevel: "Session" });
  const outcome = await answer.then(({ statusCode, substatus }) => ({ code: statusCode, substatus }), (error) => error);
  assert.equal(outcome.code, 404);
  assert.equal(outcome.substatus, 1002);
});

check("an old token and a token of another client are accepted", async () => {
  const container = await freshContainer("ranges");
  const { headers } = await container.items.create({ id: "1", pk: "a" });
  for (let n = 0; n < 3; n += 1) await container.items.upsert({ id: "1", pk: "a", n });
  const { client: other } = recordingClient("ranges");
  const { resource } = await containerThrough(other, container).item("1", "a").read({ sessionToken: headers[TOKEN], consistencyLevel: "Session" });
  assert.equal(resource.n, 2);
});

check("weaker consistency may be asked for, stronger is refused with 400", async () => {
  const container = await freshContainer("plain");
  await container.items.create({ id: "1", pk: "a" });
  for (const consistencyLevel of ["Eventual", "ConsistentPrefix", "Session"]) {
    const { client: other } = recordingClient("plain", { consistencyLevel });
    assert.equal((await containerThrough(other, container).item("1", "a").read()).statusCode, 200, consistencyLevel);
  }
  const { client: other } = recordingClient("plain", { consistencyLevel: "Strong" });
  await refused(400, containerThrough(other, container).item("1", "a").read(), { message: /consistency/i });
});

check("a session client can use a container that was deleted and created again", async () => {
  const { client: other } = recordingClient("ranges", { consistencyLevel: "Session" });
  const first = await freshContainer("ranges");
  const container = containerThrough(other, first);
  for (let n = 0; n < 5; n += 1) await container.items.create({ id: `${n}`, pk: "a" });
  await container.delete();
  await container.database.containers.create({ id: first.id, partitionKey: "/pk" });
  await container.items.create({ id: "again", pk: "a" });
  assert.equal((await container.item("again", "a").read()).statusCode, 200);
  assert.deepEqual(await queryAll(container, "SELECT VALUE c.id FROM c"), ["again"]);
});
