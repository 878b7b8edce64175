// Hostile input and hostile visitors: a text from a user never becomes markup, another site cannot
// frame the dashboard, and beyond loopback a visitor needs a token.

import assert from "node:assert/strict";

import { area, check } from "../../javascript/lib/harness.mjs";
import { guarded, hostile, visit, world } from "../lib/world.mjs";

area("hostile");

const hostileWorkflow = `/workflow?id=${encodeURIComponent(hostile.id)}`;

// The exit code of `workflow wait` for a workflow that failed.
const FAILED = 7;

// Starts a workflow that fails and one that no worker runs, both with hostile texts. Those of the first
// checks may be gone: Attention shows the newest failures only, and a workflow that no worker runs fails
// after some minutes.
async function startHostile() {
  const failing = `${hostile.id}-again`;
  await world.cli("workflow", "start", "Order", "--id", failing, "--input", hostile.text);
  await world.cli("workflow", "start", `no-such-${hostile.text}`, "--id", `waiting-again-${hostile.text}`);
  await assert.rejects(world.cli("workflow", "wait", failing, "--timeout", "10s"), { code: FAILED });
}

check("a workflow with hostile texts fails, and another one is not run", startHostile);

for (const path of [
  "/workflows?filter=id%3Dhostile-*",
  hostileWorkflow,
  `${hostileWorkflow}&zoom=16`,
  "/attention",
  "/workflows?filter=status%3Dpending",
]) {
  check(`no text becomes markup on ${path.slice(0, 40)}`, async () => {
    await visit(path, async (page) => {
      await page.waitForTimeout(300);
      assert.equal(await page.locator("img").count(), 0);
      assert.equal(await page.locator("script:not([src])").count(), 0);
      assert.ok((await page.textContent("main")).includes("<img src=x"), "the text is shown");
    });
  });
}

check("a page of another site cannot put the dashboard into a frame", async () => {
  const context = await world.browser.newContext();
  const page = await context.newPage();
  await page.route("http://evil.example/", (route) =>
    route.fulfill({ contentType: "text/html", body: `<iframe src="${world.url}"></iframe>` }),
  );
  await page.goto("http://evil.example/");
  await page.waitForTimeout(500);
  const frame = page.frames()[1];
  const text = frame ? await frame.evaluate(() => document.body.textContent).catch(() => "") : "";
  assert.ok(!text.includes("Workflows"), text);
  await context.close();
});

check("only the login link has a token behind its #", async () => {
  const { url } = await guarded();
  const context = await world.browser.newContext();
  const page = await context.newPage();
  const sent = [];
  page.on("request", (request) => request.method() === "POST" && sent.push(request.url()));
  await page.goto(`${url}workflow?id=order-1#event-3`);
  await page.waitForSelector("input[type=password]");
  await page.goto("about:blank");
  await page.goto(`${url}#main`);
  await page.waitForSelector("input[type=password]");
  await page.waitForTimeout(300);
  assert.deepEqual(sent, [], "nobody is signed in with the place on a page");
  assert.ok(page.url().endsWith("#main"), page.url());
  await context.close();
});

check("beyond loopback a token is needed, and no request has it in its address", async () => {
  const { link, url, token } = await guarded();
  const context = await world.browser.newContext();
  const page = await context.newPage();
  const answer = await page.goto(url);
  assert.equal(answer.status(), 401);
  await page.fill("input[type=password]", "wrong");
  await page.click("button");
  await page.waitForSelector("[role=alert]");
  const addresses = [];
  page.on("request", (request) => addresses.push(request.url()));
  await page.goto("about:blank");
  await page.goto(link);
  await page.waitForSelector("h1:has-text('Workflows')");
  assert.ok(!page.url().includes(token));
  assert.ok(addresses.every((address) => !address.split("#")[0].includes(token)), "the token is in no address");
  await page.waitForSelector("text=read-only");
  await page.goto(`${url}workflow?id=order-1`);
  assert.equal(await page.locator("form[method=post]:not([action='/logout'])").count(), 0);
  await context.close();
});
