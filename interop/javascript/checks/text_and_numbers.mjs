// Ids, keys, texts and numbers of every legal kind are stored and read unchanged.

import assert from "node:assert/strict";

import { area, check } from "../lib/harness.mjs";
import { freshContainer, queryAll, refused, shared, userMembers } from "../lib/support.mjs";

area("text_and_numbers");

const container = shared(() => freshContainer("ranges"));

// Names for ids and keys. A name with a question mark and a name of dots only are left out,
// because the SDK does not encode them in its paths.
const NAMES = [
  "with space",
  "per%cent and 100%25",
  "plus+and&and=",
  "quote\"s and 'quotes'",
  "colon:semi;comma,dot.",
  "brackets[]{}()<>",
  "at@hash-dash_under~tilde!star*",
  "pipe|caret^back`tick$",
  "ünïcödé",
  "日本語のキー",
  "emoji 🎉👩‍👩‍👧",
  " leading space",
  "a".repeat(1023),
];

for (const name of NAMES) {
  check(`the id and key ${JSON.stringify(name.length > 40 ? `${name.slice(0, 8)}… (${name.length})` : name)} go through every operation`, async () => {
    const target = await container();
    const item = target.item(name, name);
    assert.equal((await target.items.create({ id: name, pk: name, n: 1 })).resource.id, name);
    assert.deepEqual(userMembers((await item.read()).resource), { id: name, pk: name, n: 1 });
    assert.equal((await item.replace({ id: name, pk: name, n: 2 })).statusCode, 200);
    assert.equal((await item.patch([{ op: "incr", path: "/n", value: 1 }])).resource.n, 3);
    const spec = { query: "SELECT VALUE c.n FROM c WHERE c.id = @id AND c.pk = @id", parameters: [{ name: "@id", value: name }] };
    assert.deepEqual(await queryAll(target, spec, { partitionKey: name }), [3]);
    assert.deepEqual(await queryAll(target, spec), [3]);
    assert.equal((await item.delete()).statusCode, 204);
  });
}

check("ids with a slash or a backslash, and ids that are not text, are refused by the server too", async () => {
  const { items } = await container();
  for (const id of ["a/b", "a\\b", 5, null, { a: 1 }]) {
    // `bulk` is used, because it sends bodies without the SDK's own check of the id.
    const answers = await items.bulk([{ operationType: "Create", resourceBody: { id, pk: "a" } }]);
    assert.deepEqual(answers.map(({ statusCode }) => statusCode), [400], JSON.stringify(id));
  }
});

check("an id of more than 1023 bytes is refused with 400", async () => {
  await refused(400, (await container()).items.create({ id: "a".repeat(1024), pk: "a" }));
});

check("texts of every kind come back unchanged", async () => {
  const target = await container();
  const texts = ["", "\u0000", "\u0001\u001f", "line\nbreak\r\ttab", "\u2028\u2029", "\"\\/", "é vs é", "🎉", "\uFFFD", "\u200b", "x".repeat(100_000)];
  await target.items.create({ id: "texts", pk: "a", texts });
  assert.deepEqual((await target.item("texts", "a").read()).resource.texts, texts);
  assert.deepEqual(await queryAll(target, "SELECT VALUE c.texts FROM c WHERE c.id = 'texts'", { partitionKey: "a" }), [texts]);
});

check("names of members of every kind come back unchanged, in order", async () => {
  const target = await container();
  const members = { "": 1, " ": 2, "a.b": 3, "a/b": 4, "$": 5, "日本": 6, "__proto": 7, "\"": 8, "z": 9, "a": 10 };
  await target.items.create({ id: "members", pk: "a", members });
  const { resource } = await target.item("members", "a").read();
  assert.deepEqual(Object.entries(resource.members), Object.entries(members));
  assert.deepEqual(await queryAll(target, "SELECT VALUE c.members[\"a.b\"] FROM c WHERE c.id = 'members'", { partitionKey: "a" }), [3]);
});

check("numbers of every kind come back unchanged", async () => {
  const target = await container();
  const numbers = [0, 1, -1, 0.1, 1 / 3, 0.30000000000000004, 1e21, -1e-7, 5e-324, 1.7976931348623157e308, 9007199254740991, -9007199254740991, 123456789.125];
  await target.items.create({ id: "numbers", pk: "a", numbers });
  assert.deepEqual((await target.item("numbers", "a").read()).resource.numbers, numbers);
  assert.deepEqual(await queryAll(target, "SELECT VALUE n FROM c JOIN n IN c.numbers WHERE c.id = 'numbers'", { partitionKey: "a" }), numbers);
});

check("deep and wide items come back unchanged", async () => {
  const target = await container();
  let deep = "bottom";
  for (let level = 0; level < 100; level += 1) deep = level % 2 ? [deep] : { deep };
  const wide = Object.fromEntries(Array.from({ length: 2000 }, (_, n) => [`member${n}`, n]));
  await target.items.create({ id: "shape", pk: "a", deep, wide });
  const { resource } = await target.item("shape", "a").read();
  assert.deepEqual(resource.deep, deep);
  assert.deepEqual(resource.wide, wide);
});

check("an item just under two megabytes is stored, one above is refused with 413", async () => {
  const target = await container();
  const big = { id: "big", pk: "a", text: "x".repeat(2 * 1024 * 1024 - 1000) };
  await target.items.create(big);
  assert.equal((await target.item("big", "a").read()).resource.text.length, big.text.length);
  const error = await refused(413, target.items.create({ id: "bigger", pk: "a", text: "x".repeat(2 * 1024 * 1024) }));
  assert.match(error.body.message, /too large/);
  assert.equal((await target.item("bigger", "a").read()).statusCode, 404);
});
