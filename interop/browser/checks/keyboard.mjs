// Pages and actions can be used with the keyboard alone.

import assert from "node:assert/strict";

import { area, check } from "../../javascript/lib/harness.mjs";
import { visit, world } from "../lib/world.mjs";

area("keyboard");

const focused = (page) => page.evaluate(() => document.activeElement.textContent.trim());

// Presses Tab until the focused element has this text.
async function tabTo(page, text) {
  for (let presses = 0; presses < 80; presses++) {
    await page.keyboard.press("Tab");
    if ((await focused(page)) === text) return;
  }
  assert.fail(`the keyboard does not reach ${text}`);
}

check("the first Tab reaches a link that skips the navigation", async () => {
  await visit("/workflows", async (page) => {
    await page.keyboard.press("Tab");
    assert.equal(await focused(page), "Skip to the content");
    await page.keyboard.press("Enter");
    assert.equal(await page.evaluate(() => document.activeElement.id), "main");
  });
});

check("the focus is visible", async () => {
  await visit("/workflows", async (page) => {
    await tabTo(page, "Queues");
    const outline = await page.evaluate(() => getComputedStyle(document.activeElement).outlineStyle);
    assert.equal(outline, "solid");
  });
});

check("a filter, a workflow and an action are reached without a mouse", async () => {
  await world.cli("workflow", "start", "Order", "--id", "keyed-1", "--input", "9");
  await visit("/workflows", async (page) => {
    await page.keyboard.press("/");
    await page.keyboard.type("id=keyed-1");
    await page.keyboard.press("Enter");
    await page.waitForURL(/keyed-1/);
    await tabTo(page, "keyed-1");
    await page.keyboard.press("Enter");
    await page.waitForSelector("h1:has-text('keyed-1')");
    await tabTo(page, "Cancel…");
    await page.keyboard.press("Enter");
    await page.keyboard.press("Tab");
    await page.keyboard.press("Tab");
    await page.keyboard.press("Space");
    await page.keyboard.press("Tab");
    await page.keyboard.press("Enter");
    await page.waitForSelector("[role=status]:has-text('asked to cancel')");
  });
});
