// Databases: create, read, list, query, delete.

import assert from "node:assert/strict";

import { area, check } from "../lib/harness.mjs";
import { client, ids, refused, unique } from "../lib/support.mjs";

area("databases");

const name = unique("db");

check("create answers 201 with the resource as the service writes it", async () => {
  const { resource, statusCode } = await client().databases.create({ id: name });
  assert.equal(statusCode, 201);
  assert.equal(resource.id, name);
  assert.equal(Buffer.from(resource._rid, "base64").length, 4);
  assert.equal(resource._self, `dbs/${resource._rid}/`);
  assert.equal(resource._colls, "colls/");
  assert.equal(resource._users, "users/");
  assert.ok(Math.abs(resource._ts - Date.now() / 1000) < 60);
  assert.match(resource._etag, /^"[0-9a-f-]{36}"$/);
});

check("a second create is refused with 409", async () => {
  await refused(409, client().databases.create({ id: name }), { message: /already exists/ });
});

check("createIfNotExists finds an existing database and creates a missing one", async () => {
  const found = await client().databases.createIfNotExists({ id: name });
  assert.equal(found.statusCode, 200);
  const other = unique("db");
  const made = await client().databases.createIfNotExists({ id: other });
  assert.equal(made.statusCode, 201);
  await made.database.delete();
});

check("read returns the resource, and 404 for a missing one", async () => {
  const { resource } = await client().database(name).read();
  assert.equal(resource.id, name);
  await refused(404, client().database(unique("none")).read(), { message: /Resource Not Found/ });
});

check("readAll lists the database once", async () => {
  const { resources } = await client().databases.readAll().fetchAll();
  assert.equal(ids(resources).filter((id) => id === name).length, 1);
});

check("a query with a parameter finds the database", async () => {
  const { resources } = await client()
    .databases.query({ query: "SELECT * FROM root r WHERE r.id = @id", parameters: [{ name: "@id", value: name }] })
    .fetchAll();
  assert.deepEqual(ids(resources), [name]);
});

check("a name with a slash is refused", async () => {
  await assert.rejects(client().databases.create({ id: "a/b" }));
});

check("a name with spaces and accents works", async () => {
  const id = `${unique("Größe")} n° 1`;
  const { database } = await client().databases.create({ id });
  assert.equal((await database.read()).resource.id, id);
  assert.equal((await database.delete()).statusCode, 204);
});

check("delete answers 204, then reads and deletes answer 404", async () => {
  const { container } = await client().database(name).containers.create({ id: "c", partitionKey: "/pk" });
  assert.equal((await client().database(name).delete()).statusCode, 204);
  await refused(404, client().database(name).read());
  await refused(404, client().database(name).delete());
  await refused(404, container.read());
});
