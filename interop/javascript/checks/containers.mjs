// Containers: definitions and their defaults, replace, lists, unique keys.

import assert from "node:assert/strict";

import { area, check } from "../lib/harness.mjs";
import { client, createAll, database, freshContainer, ids, queryAll, refused, unique } from "../lib/support.mjs";

area("containers");

check("create fills in the service's defaults", async () => {
  const parent = await database();
  const id = unique("c");
  const { resource, statusCode } = await parent.containers.create({ id, partitionKey: { paths: ["/pk"] } });
  assert.equal(statusCode, 201);
  assert.equal(resource.id, id);
  assert.deepEqual(resource.partitionKey.paths, ["/pk"]);
  assert.equal(resource.partitionKey.kind, "Hash");
  assert.equal(resource.indexingPolicy.indexingMode, "consistent");
  assert.equal(resource.indexingPolicy.automatic, true);
  assert.deepEqual(resource.indexingPolicy.includedPaths, [{ path: "/*" }]);
  assert.deepEqual(resource.indexingPolicy.excludedPaths, [{ path: '/"_etag"/?' }]);
  assert.equal(resource.conflictResolutionPolicy.mode, "LastWriterWins");
  assert.deepEqual(resource.geospatialConfig, { type: "Geography" });
  assert.equal(Buffer.from(resource._rid, "base64").length, 8);
  assert.equal(resource._docs, "docs/");
});

check("a partition key may be given as text, or with its hash version", async () => {
  const parent = await database();
  const { resource } = await parent.containers.create({ id: unique("c"), partitionKey: "/tenant" });
  assert.deepEqual(resource.partitionKey.paths, ["/tenant"]);
  assert.equal(resource.partitionKey.kind, "Hash");
  for (const version of [1, 2]) {
    const container = await freshContainer("plain", { partitionKey: { paths: ["/a/b"], kind: "Hash", version } });
    const { resource: kept } = await container.read();
    // A definition without a version means version 1.
    assert.deepEqual({ version: 1, ...kept.partitionKey }, { paths: ["/a/b"], kind: "Hash", version });
  }
});

check("an indexing policy is kept: included, excluded, composite and spatial paths", async () => {
  const indexingPolicy = {
    indexingMode: "consistent",
    automatic: true,
    includedPaths: [{ path: "/name/?" }, { path: "/tags/[]/?" }],
    excludedPaths: [{ path: "/*" }],
    compositeIndexes: [[{ path: "/name", order: "ascending" }, { path: "/age", order: "descending" }]],
    spatialIndexes: [{ path: "/where/*", types: ["Point", "Polygon"] }],
  };
  const container = await freshContainer("plain", { indexingPolicy });
  const { resource } = await container.read();
  assert.deepEqual(resource.indexingPolicy.includedPaths.map(({ path }) => path), ["/name/?", "/tags/[]/?"]);
  assert.ok(resource.indexingPolicy.excludedPaths.some(({ path }) => path === "/*"));
  assert.deepEqual(resource.indexingPolicy.compositeIndexes, indexingPolicy.compositeIndexes);
  assert.equal(resource.indexingPolicy.spatialIndexes[0].path, "/where/*");
});

check("replace changes the time to live and the indexing policy, and the etag", async () => {
  const container = await freshContainer("plain", { defaultTtl: 1000 });
  const { resource: before } = await container.read();
  assert.equal(before.defaultTtl, 1000);
  const { resource: after, statusCode } = await container.replace({
    id: before.id,
    partitionKey: before.partitionKey,
    defaultTtl: 5,
    indexingPolicy: { indexingMode: "consistent", automatic: true, includedPaths: [{ path: "/*" }], excludedPaths: [{ path: "/blob/*" }] },
  });
  assert.equal(statusCode, 200);
  assert.equal(after.defaultTtl, 5);
  assert.ok(after.indexingPolicy.excludedPaths.some(({ path }) => path === "/blob/*"));
  assert.notEqual(after._etag, before._etag);
  assert.equal(after._rid, before._rid);
  assert.equal((await container.read()).resource.defaultTtl, 5);
});

check("an indexing mode of none, with automatic indexing off, is kept", async () => {
  const container = await freshContainer("plain", { indexingPolicy: { indexingMode: "none", automatic: false } });
  const { resource } = await container.read();
  assert.equal(resource.indexingPolicy.indexingMode, "none");
  await container.items.create({ id: "1", pk: "a", n: 3 });
  assert.equal((await container.item("1", "a").read()).resource.n, 3);
});

check("the partition key cannot be replaced", async () => {
  const container = await freshContainer();
  const { resource } = await container.read();
  const changed = { ...resource, partitionKey: { paths: ["/other"], kind: "Hash", version: 2 } };
  await refused(400, container.replace(changed));
  assert.deepEqual((await container.read()).resource.partitionKey.paths, ["/pk"]);
});

check("a second create is refused with 409, and createIfNotExists finds the first", async () => {
  const parent = await database();
  const container = await freshContainer();
  await refused(409, parent.containers.create({ id: container.id, partitionKey: "/pk" }));
  const found = await parent.containers.createIfNotExists({ id: container.id, partitionKey: "/pk" });
  assert.equal(found.statusCode, 200);
  assert.equal(found.resource.id, container.id);
});

check("readAll and query list a database's containers", async () => {
  const { database: parent } = await client().databases.create({ id: unique("db") });
  for (const id of ["one", "two", "three"]) await parent.containers.create({ id, partitionKey: "/pk" });
  const { resources } = await parent.containers.readAll().fetchAll();
  assert.deepEqual(ids(resources).sort(), ["one", "three", "two"]);
  const found = await parent.containers
    .query({ query: "SELECT * FROM root r WHERE r.id = @id", parameters: [{ name: "@id", value: "two" }] })
    .fetchAll();
  assert.deepEqual(ids(found.resources), ["two"]);
  await parent.delete();
});

check("delete removes the items: a new container of the same name is empty", async () => {
  const parent = await database();
  const container = await freshContainer();
  await container.items.create({ id: "1", pk: "a" });
  assert.equal((await container.delete()).statusCode, 204);
  await refused(404, container.read());
  await refused(404, container.items.create({ id: "1", pk: "a" }));
  const again = await parent.containers.create({ id: container.id, partitionKey: "/pk" });
  assert.deepEqual(await queryAll(again.container, "SELECT * FROM c"), []);
});

check("a unique key is enforced within a partition key, and only there", async () => {
  const container = await freshContainer("plain", {
    uniqueKeyPolicy: { uniqueKeys: [{ paths: ["/email"] }, { paths: ["/first", "/last"] }] },
  });
  const { resource } = await container.read();
  assert.deepEqual(resource.uniqueKeyPolicy.uniqueKeys.map(({ paths }) => paths), [["/email"], ["/first", "/last"]]);
  await container.items.create({ id: "1", pk: "a", email: "x@y", first: "A", last: "B" });
  await refused(409, container.items.create({ id: "2", pk: "a", email: "x@y", first: "A", last: "C" }));
  await refused(409, container.items.create({ id: "3", pk: "a", email: "z@y", first: "A", last: "B" }));
  const elsewhere = await container.items.create({ id: "1", pk: "b", email: "x@y", first: "A", last: "B" });
  assert.equal(elsewhere.statusCode, 201);
});

check("delete frees a unique key, and replace moves it to the new value", async () => {
  const container = await freshContainer("plain", { uniqueKeyPolicy: { uniqueKeys: [{ paths: ["/email"] }] } });
  await container.items.create({ id: "1", pk: "a", email: "one" });
  await container.items.create({ id: "2", pk: "a", email: "two" });
  await refused(409, container.item("2", "a").replace({ id: "2", pk: "a", email: "one" }));
  await container.item("1", "a").replace({ id: "1", pk: "a", email: "three" });
  assert.equal((await container.item("2", "a").replace({ id: "2", pk: "a", email: "one" })).statusCode, 200);
  await container.item("2", "a").delete();
  assert.equal((await container.items.create({ id: "4", pk: "a", email: "one" })).statusCode, 201);
});

check("partition key ranges cover the whole key space without gaps", async () => {
  const container = await freshContainer("ranges");
  const { resources } = await container.readPartitionKeyRanges().fetchAll();
  assert.equal(resources.length, 4);
  const ordered = [...resources].sort((a, b) => (a.minInclusive < b.minInclusive ? -1 : 1));
  assert.equal(ordered[0].minInclusive, "");
  assert.equal(ordered.at(-1).maxExclusive, "FF");
  for (let n = 1; n < ordered.length; n += 1) assert.equal(ordered[n].minInclusive, ordered[n - 1].maxExclusive);
  assert.ok(resources.every(({ id, status }) => typeof id === "string" && status === "online"));
});

check("feed ranges are the partition key ranges", async () => {
  const container = await freshContainer("ranges");
  const ranges = await container.getFeedRanges();
  assert.equal(ranges.length, 4);
  assert.equal(ranges[0].minInclusive, "");
  assert.equal(ranges.at(-1).maxExclusive, "FF");
});

check("all items of one partition key can be deleted at once", async () => {
  const container = await freshContainer();
  await createAll(container, [
    { id: "1", pk: "a" },
    { id: "2", pk: "a" },
    { id: "3", pk: "b" },
  ]);
  const { statusCode } = await container.deleteAllItemsForPartitionKey("a");
  assert.equal(statusCode, 200);
  assert.deepEqual(ids(await queryAll(container, "SELECT * FROM c")), ["3"]);
});

check("scripts are kept, listed, replaced and deleted", async () => {
  const { scripts } = await freshContainer();
  const body = "function () { return 1; }";
  const kinds = [
    { feed: scripts.storedProcedures, one: (id) => scripts.storedProcedure(id), extra: {} },
    { feed: scripts.userDefinedFunctions, one: (id) => scripts.userDefinedFunction(id), extra: {} },
    { feed: scripts.triggers, one: (id) => scripts.trigger(id), extra: { triggerType: "Pre", triggerOperation: "All" } },
  ];
  for (const { feed, one, extra } of kinds) {
    assert.equal((await feed.create({ id: "s", body, ...extra })).statusCode, 201);
    await refused(409, feed.create({ id: "s", body, ...extra }));
    assert.equal((await one("s").read()).resource.body, body);
    assert.equal((await one("s").replace({ id: "s", body: `${body}//`, ...extra })).resource.body, `${body}//`);
    assert.deepEqual(ids((await feed.readAll().fetchAll()).resources), ["s"]);
    assert.equal((await one("s").delete()).statusCode, 204);
    await refused(404, one("s").read());
  }
});
