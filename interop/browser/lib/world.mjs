// The world of the checks: a development server with its demo and dashboard, a browser, and pages
// that fail a check when the browser reports an error or a warning.

import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { createRequire } from "node:module";

import { chromium } from "playwright-core";

import { copyWorkflow } from "./account.mjs";
import { run, start } from "./program.mjs";

// Debian's browser. Playwright's own download is not needed.
const BROWSER = process.env.CHROMIUM ?? "/usr/bin/chromium";

const HOSTILE = "<img src=x onerror=alert(1)>\"'><script>alert(1)</script>";

export const COPIES = 10_000;
export const hostile = { text: HOSTILE, id: `hostile-${HOSTILE}` };

export const world = {};

export async function begin(binary) {
  world.server = await start(binary, ["dev", "--port", "0", "--demo"], "Started");
  world.endpoint = world.server.output.match(/Endpoint\s+(\S+)/)[1];
  world.url = world.server.output.match(/Dashboard\s+(\S+)/)[1];
  world.cli = (...args) => run(binary, world.endpoint, args);
  world.binary = binary;
  world.browser = await chromium.launch({ executablePath: BROWSER, args: ["--no-sandbox"] });
  const require = createRequire(import.meta.url);
  world.axe = await readFile(require.resolve("axe-core/axe.min.js"), "utf8");
}

export async function end() {
  await world.browser?.close();
  await world.server?.stop();
}

// Creates a workflow that waits, workflows with hostile texts, and many workflows that have ended.
export async function fill(copies = COPIES) {
  await world.cli("workflow", "start", "Order", "--id", hostile.id, "--input", hostile.text);
  await world.cli("workflow", "start", `no-such-${HOSTILE}`, "--id", `waiting-${HOSTILE}`, "--input", HOSTILE);
  // Every third order waits for an approval. The demo sends no approval to this id.
  await world.cli("workflow", "start", "Order", "--id", "waits-1", "--input", "3");
  await world.cli("workflow", "wait", "order-1", "--timeout", "60s");
  await copyWorkflow(world.endpoint, "order-1", copies);
}

// Opens a page in a context of its own. Errors, warnings and dialogs of the browser are collected in
// `complaints`; `close` asserts that there are none.
export async function open(path, options = {}) {
  const { url = world.url, ...context } = options;
  const opened = await world.browser.newContext({ viewport: { width: 1280, height: 800 }, ...context });
  const page = await opened.newPage();
  const complaints = [];
  page.on("console", (message) => {
    if (["error", "warning"].includes(message.type())) complaints.push(message.text());
  });
  page.on("pageerror", (error) => complaints.push(String(error)));
  page.on("dialog", async (dialog) => {
    complaints.push(`a dialog: ${dialog.message()}`);
    await dialog.dismiss();
  });
  page.setDefaultTimeout(10_000);
  await page.goto(new URL(path, url).href);
  return {
    page,
    complaints,
    close: async () => {
      await opened.close();
      assert.deepEqual(complaints, []);
    },
  };
}

// Opens a page, runs `use` with it, and closes it.
export async function visit(path, use, options) {
  const opened = await open(path, options);
  try {
    await use(opened.page, opened);
  } finally {
    await opened.page.context().close();
  }
  assert.deepEqual(opened.complaints, []);
}

// Fails if axe finds a violation on the page.
export async function assertAccessible(page) {
  // The dashboard's content security policy forbids inline scripts. It does not apply to scripts that
  // come over the browser's debugging protocol, as this one does.
  await page.evaluate(`${world.axe}; undefined`);
  const { violations } = await page.evaluate(() => globalThis.axe.run(document, { resultTypes: ["violations"] }));
  const short = violations.map(({ id, nodes }) => `${id}: ${nodes.map((node) => node.html).slice(0, 3).join(" ")}`);
  assert.deepEqual(short, []);
}
