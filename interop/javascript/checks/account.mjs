// The account document, TLS and authentication.

import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import https from "node:https";
import { promisify } from "node:util";

import { CosmosClient } from "@azure/cosmos";

import { area, check } from "../lib/harness.mjs";
import { client, database, endpoints, KEY, newClient, recordingClient, refused, unique } from "../lib/support.mjs";

area("account");

check("the account document names this endpoint for reads and writes", async () => {
  const { resource, statusCode } = await client().getDatabaseAccount();
  assert.equal(statusCode, 200);
  assert.equal(resource.consistencyPolicy, "Session");
  assert.equal(resource.writableLocations.length, 1);
  assert.equal(resource.writableLocations[0].databaseAccountEndpoint, endpoints.plain);
  assert.equal(resource.readableLocations[0].databaseAccountEndpoint, endpoints.plain);
});

check("the SDK uses our endpoint for reads and for writes", async () => {
  await client().getDatabaseAccount();
  assert.equal(await client().getReadEndpoint(), endpoints.plain);
  assert.equal(await client().getWriteEndpoint(), endpoints.plain);
});

check("the certificate also covers localhost", async () => {
  const endpoint = endpoints.plain.replace("127.0.0.1", "localhost");
  const other = new CosmosClient({ endpoint, key: KEY });
  const { resource } = await other.getDatabaseAccount();
  // The locations are not compared: for localhost the SDK leaves them out.
  assert.equal(resource.consistencyPolicy, "Session");
  assert.equal(await other.getWriteEndpoint(), endpoint);
  assert.equal((await other.database((await database()).id).read()).statusCode, 200);
});

check("TLS is verified: without our CA the handshake fails", async () => {
  const script = `require("https").get(process.argv[1]).on("error", (e) => console.log(e.code)).on("response", () => console.log("answered"))`;
  const { NODE_EXTRA_CA_CERTS, ...environment } = process.env;
  const { stdout } = await promisify(execFile)(process.execPath, ["-e", script, endpoints.plain], { env: environment });
  assert.match(stdout.trim(), /^(UNABLE_TO_VERIFY_LEAF_SIGNATURE|SELF_SIGNED_CERT_IN_CHAIN|UNABLE_TO_GET_ISSUER_CERT_LOCALLY)$/);
});

check("a client with an agent that keeps connections open serves many requests", async () => {
  const agent = new https.Agent({ keepAlive: true, maxSockets: 2 });
  const other = newClient("plain", { agent });
  const names = await Promise.all(Array.from({ length: 10 }, () => other.getDatabaseAccount()));
  assert.deepEqual(names.map(({ statusCode }) => statusCode), Array(10).fill(200));
  agent.destroy();
});

check("a connection string is enough to connect", async () => {
  const other = new CosmosClient(`AccountEndpoint=${endpoints.plain};AccountKey=${KEY};`);
  const { resource } = await other.database((await database()).id).read();
  assert.equal(resource.id, (await database()).id);
});

check("a wrong key is refused with 401", async () => {
  const key = Buffer.from("not the key at all").toString("base64");
  const other = newClient("plain", { key });
  await refused(401, other.databases.create({ id: unique("never") }));
});

check("an Entra ID token is accepted by the server with --auth any, and refused by the others", async () => {
  const aadCredentials = { getToken: async () => ({ token: "some.entra.token", expiresOnTimestamp: Date.now() + 3_600_000 }) };
  const trusting = new CosmosClient({ endpoint: endpoints.tokens, aadCredentials });
  const { database: parent } = await trusting.databases.create({ id: unique("entra") });
  const { container } = await parent.containers.create({ id: "c", partitionKey: "/pk" });
  await container.items.create({ id: "1", pk: "a", n: 5 });
  assert.equal((await container.item("1", "a").read()).resource.n, 5);
  const other = new CosmosClient({ endpoint: endpoints.plain, aadCredentials });
  await refused(401, other.databases.create({ id: unique("never") }));
});

check("every answer carries an activity id, a charge and a session token", async () => {
  const parent = await database();
  const { container } = await parent.containers.create({ id: unique("c"), partitionKey: "/pk" });
  const answer = await container.items.create({ id: "1", pk: "a" });
  assert.match(answer.activityId, /^[0-9a-f]{8}-[0-9a-f-]{27}$/);
  assert.ok(answer.requestCharge > 5 && answer.requestCharge < 8, `charge ${answer.requestCharge}`);
  assert.match(answer.headers["x-ms-session-token"], /^0:-?\d+#\d+/);
  assert.equal(answer.headers["x-ms-alt-content-path"], `dbs/${parent.id}/colls/${container.id}`);
});

check("requests beyond the throughput are answered with 429 and a wait, which the SDK obeys", async () => {
  const { client: other, exchanges } = recordingClient("throttled", {
    connectionPolicy: { retryOptions: { maxRetryAttemptCount: 100, fixedRetryIntervalInMilliseconds: 0, maxWaitTimeInSeconds: 15 } },
  });
  const { database: parent } = await other.databases.create({ id: unique("slow") });
  const { container } = await parent.containers.create({ id: "c", partitionKey: "/pk" });
  const answers = await Promise.all(
    Array.from({ length: 40 }, (_, n) => container.items.create({ id: `${n}`, pk: "a" })),
  );
  assert.deepEqual(answers.map(({ statusCode }) => statusCode), Array(40).fill(201));
  const throttled = exchanges.filter(({ status }) => status === 429);
  assert.ok(throttled.length > 0, "nothing was throttled");
  assert.equal(throttled[0].substatus, 3200);
  assert.ok(Number(throttled[0].got["x-ms-retry-after-ms"]) > 0);
});
