// Every screen is shown in light, in dark and at the width of a phone. The browser reports no error,
// and axe finds no violation.

import assert from "node:assert/strict";

import { area, check } from "../../javascript/lib/harness.mjs";
import { assertAccessible, visit } from "../lib/world.mjs";

export const SCREENS = [
  ["workflows", "/workflows"],
  ["workflow", "/workflow?id=order-1"],
  ["workflow that waits", "/workflow?id=waits-1"],
  ["attention", "/attention"],
  ["bulk", "/bulk?filter=status%3Dfailed"],
  ["queues", "/queues"],
  ["workers", "/workers"],
  ["sessions", "/sessions"],
  ["charts", "/charts"],
  ["data", "/data"],
  ["container", "/container?database=duroxide&container=duroxide"],
  ["item", "/item?database=duroxide&container=duroxide&id=i&key=order-1"],
  ["new item", "/item?database=duroxide&container=duroxide&new=yes"],
];

const LOOKS = [
  ["light", {}],
  ["dark", { colorScheme: "dark" }],
  ["on a phone", { viewport: { width: 360, height: 740 }, isMobile: true, hasTouch: true }],
];

area("screens");

for (const [name, path] of SCREENS) {
  for (const [look, options] of LOOKS) {
    check(`${name} is accessible, ${look}`, async () => {
      await visit(
        path,
        async (page) => {
          assert.match(await page.title(), / · Perihelion$/);
          await assertAccessible(page);
          const overflow = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
          assert.ok(overflow <= 0, `the page is ${overflow} pixels too wide`);
        },
        options,
      );
    });
  }
}

check("dark mode has a dark background", async () => {
  const background = (page) => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
  await visit("/workflows", async (page) => assert.equal(await background(page), "rgb(255, 255, 255)"));
  await visit("/workflows", async (page) => assert.equal(await background(page), "rgb(15, 18, 22)"), {
    colorScheme: "dark",
  });
});

check("charts have requests, workflows and the hottest partitions", async () => {
  await visit("/charts", async (page) => {
    assert.equal(await page.locator("svg.chart").count(), 4);
    assert.match(await page.textContent("main"), /Hottest partitions/);
    await page.click("table:has-text('Hottest partitions') a >> nth=0");
    await page.waitForSelector("text=Timeline");
  });
});

check("pages work without the script", async () => {
  const options = { javaScriptEnabled: false };
  await visit("/workflows", async (page) => assert.ok((await page.locator("tbody tr").count()) > 10), options);
});
