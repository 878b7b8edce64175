// If-Match and If-None-Match on single items.

import assert from "node:assert/strict";

import { area, check } from "../lib/harness.mjs";
import { freshContainer, refused, shared, unique } from "../lib/support.mjs";

area("preconditions");

const container = shared(() => freshContainer());
const STALE = '"00000000-0000-0000-0000-000000000000"';

const match = (condition) => ({ accessCondition: { type: "IfMatch", condition } });
const noneMatch = (condition) => ({ accessCondition: { type: "IfNoneMatch", condition } });

async function item() {
  const target = await container();
  const { resource } = await target.items.create({ id: unique("i"), pk: "a", n: 1 });
  return { target: target.item(resource.id, "a"), resource, items: target.items };
}

check("replace succeeds with the current etag, and is refused with a stale one", async () => {
  const { target, resource } = await item();
  const { statusCode } = await target.replace({ ...resource, n: 2 }, match(resource._etag));
  assert.equal(statusCode, 200);
  await refused(412, target.replace({ ...resource, n: 3 }, match(resource._etag)), { message: /precondition is not met/ });
  assert.equal((await target.read()).resource.n, 2);
});

check("upsert with a stale etag is refused and changes nothing", async () => {
  const { target, resource, items } = await item();
  await refused(412, items.upsert({ ...resource, n: 9 }, match(STALE)));
  assert.equal((await target.read()).resource.n, 1);
  const { statusCode } = await items.upsert({ ...resource, n: 9 }, match(resource._etag));
  assert.equal(statusCode, 200);
});

check("delete with a stale etag is refused, and succeeds with the current one", async () => {
  const { target, resource } = await item();
  await refused(412, target.delete(match(STALE)));
  assert.equal((await target.read()).statusCode, 200);
  assert.equal((await target.delete(match(resource._etag))).statusCode, 204);
});

check("patch obeys the etag", async () => {
  const { target, resource } = await item();
  await refused(412, target.patch([{ op: "set", path: "/n", value: 5 }], match(STALE)));
  const { resource: after } = await target.patch([{ op: "set", path: "/n", value: 5 }], match(resource._etag));
  assert.equal(after.n, 5);
});

check("If-Match with a star matches any existing item", async () => {
  const { target, resource } = await item();
  assert.equal((await target.replace({ ...resource, n: 4 }, match("*"))).statusCode, 200);
});

check("a read of an unchanged item answers 304 without a body, and of a changed one 200", async () => {
  const { target, resource } = await item();
  const unchanged = await target.read(noneMatch(resource._etag));
  assert.equal(unchanged.statusCode, 304);
  assert.equal(unchanged.resource, null);
  assert.equal(unchanged.headers.etag, resource._etag);
  await target.replace({ ...resource, n: 2 });
  const changed = await target.read(noneMatch(resource._etag));
  assert.equal(changed.statusCode, 200);
  assert.equal(changed.resource.n, 2);
});

check("only one of many writers with the same etag wins", async () => {
  const { target, resource } = await item();
  const attempts = Array.from({ length: 10 }, (_, n) => target.replace({ ...resource, n: 100 + n }, match(resource._etag)));
  const outcomes = await Promise.allSettled(attempts);
  const won = outcomes.filter(({ status }) => status === "fulfilled");
  assert.equal(won.length, 1);
  assert.ok(outcomes.filter(({ status }) => status === "rejected").every(({ reason }) => reason.code === 412));
  assert.equal((await target.read()).resource.n, won[0].value.resource.n);
});

check("a container's replace obeys the etag", async () => {
  const target = await freshContainer();
  const { resource } = await target.read();
  await refused(412, target.replace({ ...resource, defaultTtl: 7 }, match(STALE)));
  const { resource: after } = await target.replace({ ...resource, defaultTtl: 7 }, match(resource._etag));
  assert.equal(after.defaultTtl, 7);
});
