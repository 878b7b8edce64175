// Users and permissions, and clients that have only the token of a permission.

import assert from "node:assert/strict";

import { CosmosClient, PermissionMode } from "@azure/cosmos";

import { area, check } from "../lib/harness.mjs";
import { endpoints, freshContainer, ids, queryAll, refused, unique } from "../lib/support.mjs";

area("users");

// The container, through a client that has a new permission's token and no key.
async function permitted(container, definition) {
  const { user } = await container.database.users.create({ id: unique("user") });
  const { resource } = await user.permissions.create({ id: "p", resource: container.url, ...definition });
  const resourceTokens = { [container.id]: resource._token, [`dbs/${container.database.id}/colls/${container.id}`]: resource._token };
  const client = new CosmosClient({ endpoint: endpoints.plain, resourceTokens, connectionPolicy: { enableBackgroundEndpointRefreshing: false } });
  return client.database(container.database.id).container(container.id);
}

check("a user is created, listed, queried, renamed and deleted", async () => {
  const { database } = await freshContainer();
  const id = unique("user");
  const { resource, user } = await database.users.create({ id });
  assert.equal(resource.id, id);
  await refused(409, database.users.create({ id }));
  assert.ok(ids((await database.users.readAll().fetchAll()).resources).includes(id));
  const query = { query: "SELECT * FROM u WHERE u.id = @id", parameters: [{ name: "@id", value: id }] };
  assert.deepEqual(ids((await database.users.query(query).fetchAll()).resources), [id]);
  const renamed = unique("user");
  assert.equal((await user.replace({ ...resource, id: renamed })).resource.id, renamed);
  await refused(404, user.read());
  assert.equal((await database.users.upsert({ id: renamed })).resource.id, renamed);
  assert.equal((await database.user(renamed).delete()).statusCode, 204);
});

check("a permission is created, listed, queried, replaced and deleted", async () => {
  const container = await freshContainer();
  const { user } = await container.database.users.create({ id: unique("user") });
  const definition = { id: "one", permissionMode: PermissionMode.Read, resource: container.url, resourcePartitionKey: [1] };
  const { resource, permission } = await user.permissions.create(definition);
  assert.match(resource._token, /^type=resource&ver=1&sig=/);
  assert.deepEqual(resource.resourcePartitionKey, [1]);
  assert.deepEqual(ids((await user.permissions.readAll().fetchAll()).resources), ["one"]);
  const query = { query: "SELECT * FROM p WHERE p.id = @id", parameters: [{ name: "@id", value: "one" }] };
  assert.deepEqual(ids((await user.permissions.query(query).fetchAll()).resources), ["one"]);
  const { resource: replaced } = await permission.replace({ ...definition, id: "two", permissionMode: PermissionMode.All });
  assert.equal(replaced.permissionMode, PermissionMode.All);
  assert.equal((await user.permission("two").read()).resource.id, "two");
  assert.equal((await user.permissions.upsert({ ...definition, id: "two" })).resource.permissionMode, PermissionMode.Read);
  await user.permission("two").delete();
  await refused(404, user.permission("two").read());
});

check("a token to read a container reads it and its items, and writes nothing", async () => {
  const container = await freshContainer();
  await container.items.create({ id: "a", pk: "p" });
  const reader = await permitted(container, { permissionMode: PermissionMode.Read });
  assert.equal((await reader.read()).resource.id, container.id);
  assert.equal((await reader.item("a", "p").read()).resource.id, "a");
  assert.deepEqual(ids((await reader.items.readAll().fetchAll()).resources), ["a"]);
  assert.deepEqual(ids(await queryAll(reader, "SELECT * FROM c")), ["a"]);
  await refused(403, reader.delete());
  await refused(403, reader.item("a", "p").delete());
  assert.equal((await container.item("a", "p").read()).resource.id, "a");
});

check("a token for one partition key writes there and nowhere else", async () => {
  const container = await freshContainer();
  const writer = await permitted(container, { permissionMode: PermissionMode.All, resourcePartitionKey: [1] });
  assert.equal((await writer.items.create({ id: "a", pk: 1 })).statusCode, 201);
  await refused(403, writer.items.create({ id: "b", pk: 2 }));
  assert.deepEqual(ids(await queryAll(writer, "SELECT * FROM c", { partitionKey: 1 })), ["a"]);
  assert.equal((await writer.item("a", 1).delete()).statusCode, 204);
});
