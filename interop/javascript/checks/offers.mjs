// Throughput: manual and autoscale offers on containers and databases.

import assert from "node:assert/strict";

import { area, check } from "../lib/harness.mjs";
import { client, freshContainer, unique } from "../lib/support.mjs";

area("offers");

check("a container created with a throughput has that offer", async () => {
  const container = await freshContainer("plain", { throughput: 500 });
  const { resource } = await container.readOffer();
  assert.equal(resource.content.offerThroughput, 500);
  assert.equal(resource.offerVersion, "V2");
  const { resource: definition } = await container.read();
  assert.equal(resource.offerResourceId, definition._rid);
  assert.equal(resource.resource.replace(/\/$/, ""), definition._self.replace(/\/$/, ""));
});

check("an offer can be replaced, and reads back", async () => {
  const container = await freshContainer("plain", { throughput: 400 });
  const { resource, offer } = await container.readOffer();
  resource.content.offerThroughput = 1200;
  const { resource: replaced, statusCode } = await offer.replace(resource);
  assert.equal(statusCode, 200);
  assert.equal(replaced.content.offerThroughput, 1200);
  assert.equal((await offer.read()).resource.content.offerThroughput, 1200);
});

check("an autoscale container has autoscale settings", async () => {
  const container = await freshContainer("plain", { maxThroughput: 4000 });
  const { resource } = await container.readOffer();
  assert.equal(resource.content.offerAutopilotSettings.maxThroughput, 4000);
});

check("a database can own the throughput; its containers then have none", async () => {
  const { database } = await client().databases.create({ id: unique("shared"), throughput: 600 });
  const { resource } = await database.readOffer();
  assert.equal(resource.content.offerThroughput, 600);
  const { container } = await database.containers.create({ id: "c", partitionKey: "/pk" });
  assert.equal((await container.readOffer()).resource, undefined);
  await database.delete();
});

check("a deleted container's offer is gone from the list", async () => {
  const container = await freshContainer("plain", { throughput: 700 });
  const { resource } = await container.readOffer();
  const listed = async () => {
    const { resources } = await client().offers.readAll().fetchAll();
    return resources.some(({ id }) => id === resource.id);
  };
  assert.equal(await listed(), true);
  await container.delete();
  assert.equal(await listed(), false);
});
