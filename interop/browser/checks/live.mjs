// Live pages show changes, keep the focus, can be paused, and stop when they are hidden.

import assert from "node:assert/strict";

import { area, check } from "../../javascript/lib/harness.mjs";
import { visit, world } from "../lib/world.mjs";

area("live");

check("a new workflow appears by itself", async () => {
  await visit("/workflows?filter=id%3Dlive-*", async (page) => {
    await page.waitForSelector("#live-state[data-state=on]");
    assert.equal(await page.locator("tbody tr").count(), 0);
    await world.cli("workflow", "start", "Order", "--id", "live-1", "--input", "1");
    await page.waitForSelector("tr[data-key=live-1]");
    await page.waitForSelector("tr[data-key=live-1] .badge.completed");
  });
});

check("focus, opened details and typed texts survive an update", async () => {
  await visit("/workflow?id=waits-1", async (page) => {
    await page.click("summary:has-text('Raise event…')");
    await page.fill("input[name=event]", "half typed");
    await page.evaluate(() => new Promise((done) => {
      document.getElementById("live").addEventListener("updated", done, { once: true });
    }));
    assert.equal(await page.inputValue("input[name=event]"), "half typed");
    assert.equal(await page.evaluate(() => document.activeElement.name), "event");
  });
});

check("a page that does not change says as of when it is true", async () => {
  await visit("/sessions", async (page) => {
    await page.waitForSelector("#live-state:has-text('as of')");
    const first = await page.textContent("#live-state");
    assert.match(first, /^Live, as of \d\d:\d\d:\d\d$/);
    await page.waitForSelector(`#live-state:not(:has-text('${first}'))`);
    assert.match(await page.textContent("#live-state"), /^Live, as of \d\d:\d\d:\d\d$/);
  });
});

check("a page can be paused", async () => {
  await visit("/queues", async (page) => {
    await page.waitForSelector("#live-state[data-state=on]");
    await page.click("#live-state");
    assert.equal(await page.textContent("#live-state"), "Paused");
    assert.equal(await page.getAttribute("#live-state", "aria-pressed"), "true");
    await page.click("#live-state");
    await page.waitForSelector("#live-state[data-state=on]");
  });
});

check("a hidden page closes its stream and opens it again", async () => {
  await visit("/queues", async (page) => {
    await page.waitForSelector("#live-state[data-state=on]");
    const hide = (isHidden) =>
      page.evaluate((isHidden) => {
        Object.defineProperty(document, "hidden", { value: isHidden, configurable: true });
        document.dispatchEvent(new Event("visibilitychange"));
      }, isHidden);
    const streams = [];
    page.on("request", (request) => request.headers().accept === "text/event-stream" && streams.push(request));
    await hide(true);
    await page.waitForTimeout(300);
    assert.equal(streams.length, 0);
    await hide(false);
    await page.waitForSelector("#live-state[data-state=on]");
    assert.equal(streams.length, 1);
  });
});
