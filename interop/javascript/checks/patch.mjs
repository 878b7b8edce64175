// Patch: the six operations, both forms of the body, and the condition.

import assert from "node:assert/strict";

import { area, check } from "../lib/harness.mjs";
import { freshContainer, refused, shared, unique, userMembers } from "../lib/support.mjs";

area("patch");

const container = shared(() => freshContainer());

// Creates an item with these members.
async function item(body) {
  const target = await container();
  const { resource } = await target.items.create({ id: unique("p"), pk: "a", ...body });
  return { target: target.item(resource.id, "a"), id: resource.id };
}

// Applies the operations to a new item and compares the answer and the stored item with
// `after`.
async function expectPatched(before, operations, after) {
  const { target, id } = await item(before);
  const { resource, statusCode } = await target.patch(operations);
  assert.equal(statusCode, 200);
  assert.deepEqual(userMembers(resource), { id, pk: "a", ...after });
  assert.deepEqual(userMembers((await target.read()).resource), { id, pk: "a", ...after });
}

check("an array of operations is applied in order", async () => {
  await expectPatched(
    { n: 1, gone: true },
    [
      { op: "set", path: "/n", value: 7 },
      { op: "incr", path: "/n", value: 3 },
      { op: "add", path: "/added", value: { deep: [1] } },
      { op: "remove", path: "/gone" },
      { op: "replace", path: "/added/deep/0", value: 2 },
    ],
    { n: 10, added: { deep: [2] } },
  );
});

check("add inserts into arrays and appends with a dash", async () => {
  await expectPatched(
    { list: ["b"] },
    [
      { op: "add", path: "/list/0", value: "a" },
      { op: "add", path: "/list/-", value: "c" },
    ],
    { list: ["a", "b", "c"] },
  );
});

check("set on an array index overwrites, remove closes the gap", async () => {
  await expectPatched(
    { list: [1, 2, 3] },
    [
      { op: "set", path: "/list/1", value: 20 },
      { op: "remove", path: "/list/0" },
    ],
    { list: [20, 3] },
  );
});

check("incr takes negative and fractional steps, and creates a missing number", async () => {
  await expectPatched(
    { n: 5 },
    [
      { op: "incr", path: "/n", value: -2 },
      { op: "incr", path: "/n", value: 0.5 },
      { op: "incr", path: "/fresh", value: 4 },
    ],
    { n: 3.5, fresh: 4 },
  );
});

check("move moves a member to another path", async () => {
  await expectPatched({ from: { x: 1 }, keep: 1 }, [{ op: "move", from: "/from", path: "/to" }], { keep: 1, to: { x: 1 } });
});

check("a patch whose condition holds is applied", async () => {
  const { target } = await item({ state: "open", n: 1 });
  const { resource } = await target.patch({
    condition: "from c where c.state = 'open'",
    operations: [{ op: "set", path: "/state", value: "closed" }],
  });
  assert.equal(resource.state, "closed");
});

check("a condition that does not hold is refused with 412 and changes nothing", async () => {
  const { target } = await item({ state: "closed", n: 1 });
  await refused(
    412,
    target.patch({ condition: "from c where c.state = 'open' and c.n > 0", operations: [{ op: "incr", path: "/n", value: 1 }] }),
  );
  assert.equal((await target.read()).resource.n, 1);
});

check("a patch of a missing item is refused with 404", async () => {
  await refused(404, (await container()).item("none", "a").patch([{ op: "set", path: "/n", value: 1 }]));
});

check("replace and remove of a missing path are refused with 400 and change nothing", async () => {
  const { target } = await item({ n: 1 });
  await refused(400, target.patch([{ op: "set", path: "/n", value: 2 }, { op: "replace", path: "/none", value: 1 }]));
  await refused(400, target.patch([{ op: "set", path: "/n", value: 2 }, { op: "remove", path: "/none" }]));
  assert.equal((await target.read()).resource.n, 1);
});

check("incr of a text is refused with 400", async () => {
  const { target } = await item({ n: "one" });
  await refused(400, target.patch([{ op: "incr", path: "/n", value: 1 }]));
});

check("the partition key and the id cannot be patched", async () => {
  const { target } = await item({ n: 1 });
  await refused(400, target.patch([{ op: "set", path: "/pk", value: "b" }]));
  await refused(400, target.patch([{ op: "set", path: "/id", value: "other" }]));
});

check("more than ten operations are refused with 400", async () => {
  const { target } = await item({ n: 0 });
  const step = { op: "incr", path: "/n", value: 1 };
  assert.equal((await target.patch(Array(10).fill(step))).resource.n, 10);
  await refused(400, target.patch(Array(11).fill(step)));
  assert.equal((await target.read()).resource.n, 10);
});

check("escaped path segments reach members with slashes and tildes", async () => {
  await expectPatched(
    { "a/b": 1, "c~d": 2 },
    [
      { op: "set", path: "/a~1b", value: 10 },
      { op: "set", path: "/c~0d", value: 20 },
    ],
    { "a/b": 10, "c~d": 20 },
  );
});

check("concurrent increments all count", async () => {
  const { target } = await item({ n: 0 });
  await Promise.all(Array.from({ length: 25 }, () => target.patch([{ op: "incr", path: "/n", value: 1 }])));
  assert.equal((await target.read()).resource.n, 25);
});
