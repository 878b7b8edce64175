// The query language, as cases. A case is a statement and the exact rows that it gives.
//
// Each case runs in one partition. If its rows do not depend on the order of the ranges, it
// also runs across four ranges.

import assert from "node:assert/strict";

import { area, check } from "../lib/harness.mjs";
import { createAll, freshContainer, queryAll, shared } from "../lib/support.mjs";

area("sql");

const PEOPLE = [
  { id: "ann", pk: "a", name: "Ann", age: 31, city: "Bern", tags: ["red", "blue"], pets: [{ kind: "cat", name: "Mia" }, { kind: "dog", name: "Rex" }] },
  { id: "bob", pk: "a", name: "Bob", age: 25, city: "Basel", tags: ["blue"], pets: [{ kind: "cat", name: "Tom" }], nick: null },
  { id: "cem", pk: "a", name: "Cem", age: 47, city: "Bern", tags: [], pets: [], nick: "cc" },
  { id: "dea", pk: "a", name: "Dea", age: 25, city: "Zug", tags: ["red", "green"], nested: { deep: { value: 7 } } },
  { id: "eva", pk: "a", name: "Eva_1", age: 38, city: "Basel", active: true },
];

const compositeIndexes = [[{ path: "/age", order: "descending" }, { path: "/name", order: "ascending" }]];

const container = shared(async () => {
  const target = await freshContainer("ranges", { indexingPolicy: { compositeIndexes } });
  await createAll(target, PEOPLE);
  return target;
});

// A container with the same people, each with a partition key of its own.
const spread = shared(async () => {
  const target = await freshContainer("ranges", { indexingPolicy: { compositeIndexes } });
  await createAll(target, PEOPLE.map((person) => ({ ...person, pk: person.id })));
  return target;
});

const byText = (rows) => rows.map((row) => JSON.stringify(row)).sort();

// Registers a check that a query gives these rows. Their order counts if the query has ORDER
// BY.
function rows(query, expected, { isOrdered = / ORDER BY /.test(query), isSpread = true } = {}) {
  check(query, async () => {
    const inOne = await queryAll(await container(), query, { partitionKey: "a" });
    if (isOrdered) assert.deepEqual(inOne, expected);
    else assert.deepEqual(byText(inOne), byText(expected));
    if (!isSpread) return;
    const acrossAll = await queryAll(await spread(), query);
    if (isOrdered) assert.deepEqual(acrossAll, expected);
    else assert.deepEqual(byText(acrossAll), byText(expected));
  });
}

rows("SELECT c.name, c.age AS years FROM c WHERE c.id = 'ann'", [{ name: "Ann", years: 31 }]);
rows("SELECT c.name, c.nick FROM c WHERE c.city = 'Basel'", [{ name: "Bob", nick: null }, { name: "Eva_1" }]);
rows("SELECT VALUE c.id FROM c WHERE c.age > 25 AND NOT (c.city = 'Zug')", ["ann", "cem", "eva"]);
rows("SELECT VALUE c.id FROM c WHERE c.age BETWEEN 25 AND 31", ["ann", "bob", "dea"]);
rows("SELECT VALUE c.id FROM c WHERE c.city IN ('Bern', 'Zug')", ["ann", "cem", "dea"]);
rows("SELECT VALUE c.id FROM c WHERE c.name LIKE '%e%'", ["cem", "dea"]);
rows("SELECT VALUE c.id FROM c WHERE c.name LIKE 'Eva!_%' ESCAPE '!'", ["eva"]);
rows("SELECT VALUE c.id FROM c WHERE c.name LIKE '_o_'", ["bob"]);
rows("SELECT VALUE c.id FROM c WHERE IS_DEFINED(c.nick)", ["bob", "cem"]);
rows("SELECT VALUE c.id FROM c WHERE IS_NULL(c.nick)", ["bob"]);
rows("SELECT VALUE c.id FROM c WHERE NOT IS_DEFINED(c.tags)", ["eva"]);
rows("SELECT VALUE c.nick ?? 'none' FROM c WHERE c.age < 40", ["none", "none", "none", null]);
rows("SELECT VALUE c.age > 30 ? 'old' : 'young' FROM c", ["old", "young", "old", "young", "old"]);
rows("SELECT VALUE c.id FROM c ORDER BY c.age DESC, c.name ASC", ["cem", "eva", "ann", "bob", "dea"]);
rows("SELECT TOP 2 VALUE c.id FROM c ORDER BY c.age DESC", ["cem", "eva"]);
rows("SELECT VALUE c.id FROM c ORDER BY c.name OFFSET 1 LIMIT 2", ["bob", "cem"]);
rows("SELECT DISTINCT VALUE c.city FROM c", ["Bern", "Basel", "Zug"]);
rows("SELECT DISTINCT c.city, c.age FROM c WHERE c.city = 'Bern'", [{ city: "Bern", age: 31 }, { city: "Bern", age: 47 }]);
rows("SELECT DISTINCT VALUE c.age FROM c ORDER BY c.age", [25, 31, 38, 47]);
rows("SELECT VALUE COUNT(1) FROM c", [5]);
rows("SELECT VALUE COUNT(c.nick) FROM c", [2]);
rows("SELECT VALUE SUM(c.age) FROM c", [166]);
rows("SELECT VALUE AVG(c.age) FROM c", [33.2]);
rows("SELECT VALUE MIN(c.age) FROM c", [25]);
rows("SELECT VALUE MAX(c.name) FROM c", ["Eva_1"]);
rows("SELECT VALUE COUNT(1) FROM c WHERE c.age > 100", [0]);
rows("SELECT COUNT(1) AS n, MIN(c.age) AS low, MAX(c.age) AS high FROM c", [{ n: 5, low: 25, high: 47 }]);
rows("SELECT c.city, COUNT(1) AS n, AVG(c.age) AS age FROM c GROUP BY c.city", [
  { city: "Bern", n: 2, age: 39 },
  { city: "Basel", n: 2, age: 31.5 },
  { city: "Zug", n: 1, age: 25 },
]);
rows("SELECT VALUE COUNT(1) FROM c GROUP BY c.city", [2, 2, 1]);
rows("SELECT c.id, t AS tag FROM c JOIN t IN c.tags WHERE t != 'blue'", [
  { id: "ann", tag: "red" },
  { id: "dea", tag: "red" },
  { id: "dea", tag: "green" },
]);
rows("SELECT VALUE {owner: c.name, pet: p.name} FROM c JOIN p IN c.pets WHERE p.kind = 'cat'", [
  { owner: "Ann", pet: "Mia" },
  { owner: "Bob", pet: "Tom" },
]);
rows("SELECT VALUE p.name FROM p IN c.pets", ["Mia", "Rex", "Tom"]);
rows("SELECT VALUE c.id FROM c WHERE EXISTS (SELECT VALUE p FROM p IN c.pets WHERE p.kind = 'dog')", ["ann"]);
rows("SELECT c.id, ARRAY(SELECT VALUE p.name FROM p IN c.pets) AS names FROM c WHERE c.age = 31", [{ id: "ann", names: ["Mia", "Rex"] }]);
rows("SELECT c.id, (SELECT VALUE COUNT(1) FROM t IN c.tags) AS n FROM c WHERE c.city = 'Bern'", [{ id: "ann", n: 2 }, { id: "cem", n: 0 }]);
rows("SELECT VALUE c.id FROM c WHERE ARRAY_CONTAINS(c.tags, 'red')", ["ann", "dea"]);
rows("SELECT VALUE c.id FROM c WHERE ARRAY_CONTAINS(c.pets, {kind: 'cat'}, true)", ["ann", "bob"]);
rows("SELECT VALUE ARRAY_LENGTH(c.tags) FROM c WHERE c.id IN ('ann', 'cem')", [2, 0]);
rows("SELECT VALUE ARRAY_SLICE(c.tags, 0, 1) FROM c WHERE c.id = 'ann'", [["red"]]);
rows("SELECT VALUE c.nested.deep[\"value\"] FROM c", [7]);
rows("SELECT VALUE [c.age, c.missing, c.nick] FROM c WHERE c.id = 'bob'", [[25, null]]);
rows("SELECT VALUE CONCAT(UPPER(c.name), '-', LOWER(c.city)) FROM c WHERE c.id = 'ann'", ["ANN-bern"]);
rows("SELECT VALUE c.id FROM c WHERE STARTSWITH(c.city, 'b', true) AND CONTAINS(c.name, 'B')", ["bob"]);
rows("SELECT VALUE c.id FROM c WHERE ENDSWITH(c.city, 'ern')", ["ann", "cem"]);
rows("SELECT VALUE SUBSTRING(c.name, 1, 2) FROM c WHERE c.id = 'eva'", ["va"]);
rows("SELECT VALUE INDEX_OF(c.city, 's') FROM c WHERE c.id = 'bob'", [2]);
rows("SELECT VALUE REPLACE(c.city, 'B', 'W') FROM c WHERE c.id = 'cem'", ["Wern"]);
rows("SELECT VALUE LENGTH(c.name) FROM c WHERE c.age = 38", [5]);
rows("SELECT VALUE ROUND(c.age / 4) FROM c WHERE c.id = 'ann'", [8]);
rows("SELECT VALUE (c.age + 1) * 2 - 4 % 3 FROM c WHERE c.id = 'bob'", [51]);
rows("SELECT VALUE ABS(-c.age) + FLOOR(1.9) + CEILING(1.1) + POWER(2, 3) + SQRT(9) FROM c WHERE c.id = 'bob'", [39]);
rows("SELECT VALUE c.id || '@' || c.city FROM c WHERE c.age = 47", ["cem@Bern"]);
rows("SELECT VALUE IS_STRING(c.name) AND IS_NUMBER(c.age) AND IS_ARRAY(c.tags) AND NOT IS_OBJECT(c.tags) FROM c WHERE c.id = 'ann'", [true]);
rows("SELECT VALUE RegexMatch(c.name, '^[ab]', 'i') FROM c WHERE c.age = 25", [true, false]);
rows("SELECT VALUE StringToNumber('12.5') + 1", [13.5], { isSpread: false });
rows("SELECT VALUE ToString(c.age) FROM c WHERE c.id = 'ann'", ["31"]);
rows("SELECT VALUE c.active = true FROM c WHERE c.id = 'eva'", [true]);
rows("SELECT VALUE c.id FROM c WHERE c.age = '25'", []);
rows("SELECT VALUE 1", [1], { isSpread: false });
rows("SELECT VALUE DateTimeAdd('mm', 1, '2024-01-31T00:00:00.0000000Z')", ["2024-02-29T00:00:00.0000000Z"], { isSpread: false });

check("ORDER BY sorts by type first: undefined, null, false, true, numbers, texts, arrays, objects", async () => {
  const target = await freshContainer("ranges");
  const values = [{ a: 1 }, [1], "b", "a", 10, 2, -1.5, true, false, null];
  await createAll(target, values.map((v, n) => ({ id: `${n}`, pk: "a", v })));
  await target.items.create({ id: "u", pk: "a" });
  // The first query may lead to an index, which the later queries use. The rows must not change.
  await queryAll(target, "SELECT c.id FROM c ORDER BY c.v", { partitionKey: "a" });
  const up = await queryAll(target, "SELECT c.id, c.v FROM c ORDER BY c.v", { partitionKey: "a" });
  assert.deepEqual(up.slice(0, 8).map(({ v }) => v), [undefined, null, false, true, -1.5, 2, 10, "a"]);
  const down = await queryAll(target, "SELECT c.id, c.v FROM c ORDER BY c.v DESC", { partitionKey: "a" });
  assert.deepEqual(down.map(({ id }) => id), up.map(({ id }) => id).reverse());
});

check("the current date and time are today's", async () => {
  const [row] = await queryAll(await container(), "SELECT VALUE {at: GetCurrentDateTime(), ms: GetCurrentTimestamp()}", { partitionKey: "a" });
  assert.ok(Math.abs(Date.parse(row.at) - Date.now()) < 60_000, row.at);
  assert.ok(Math.abs(row.ms - Date.now()) < 60_000);
});
