// The list of ten thousand workflows: filters in the address, pages, first paint.

import assert from "node:assert/strict";

import { area, check } from "../../javascript/lib/harness.mjs";
import { COPIES, visit } from "../lib/world.mjs";

// The limit for the first paint of the list, in milliseconds. The goal is 200 on a quiet machine:
// FIRST_PAINT_MAX_MS=200. A test run has a debug build and builds other programs meanwhile, so its
// limit only notices a page that grows with the number of workflows.
const FIRST_PAINT_MAX_MS = Number(process.env.FIRST_PAINT_MAX_MS ?? 2000);

// The most visits until one is fast enough.
const PAINTS_MAX = 25;

area("lists");

check("a filter is typed, is in the address, and selects", async () => {
  await visit("/workflows", async (page) => {
    await page.fill("#filter", "status=failed");
    await page.keyboard.press("Enter");
    await page.waitForURL(/filter=status%3Dfailed/);
    const badges = await page.locator("tbody .badge").allTextContents();
    assert.ok(badges.length > 0 && badges.every((badge) => badge === "Failed"), String(badges));
    await page.reload();
    assert.equal(await page.inputValue("#filter"), "status=failed");
    await page.click("text=Running");
    assert.equal(await page.inputValue("#filter"), "status=running");
  });
});

check("the message about a wrong filter points at the mistake", async () => {
  await visit("/workflows?filter=status%3Dfaild", async (page) => {
    assert.match(await page.textContent("[role=alert]"), /not a status.*\^/s);
  });
});

check("pages follow each other without repeating a workflow", async () => {
  await visit("/workflows?filter=id%3Dcopy-*", async (page) => {
    const seen = new Set();
    for (let number = 0; number < 6; number++) {
      const ids = await page.locator("tbody tr").evaluateAll((rows) => rows.map((row) => row.dataset.key));
      assert.equal(ids.length, 50);
      for (const id of ids) assert.ok(!seen.has(id), `${id} is shown twice`), seen.add(id);
      await page.click("#next");
      await page.waitForLoadState();
    }
    await page.click("text=First page");
    assert.ok(!page.url().includes("after="));
  });
});

check(`the first paint of a list of ${COPIES} takes less than ${FIRST_PAINT_MAX_MS} ms`, async () => {
  // Other programs may keep the machine busy, so the fastest of several visits counts.
  const paints = [];
  while (paints.length < PAINTS_MAX && !paints.some((paint) => paint < FIRST_PAINT_MAX_MS)) {
    await visit("/workflows", async (page) => {
      let paint;
      while (paint === undefined) {
        paint = await page.evaluate(() => performance.getEntriesByName("first-contentful-paint")[0]?.startTime);
      }
      paints.push(Math.round(paint));
    });
  }
  console.log(`     first paints: ${paints.join(", ")} ms`);
  assert.ok(Math.min(...paints) < FIRST_PAINT_MAX_MS, `${paints} ms`);
});
