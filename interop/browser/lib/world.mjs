// The world of the checks: a development server with its demo and dashboard, a second server with as
// many workflows on which nothing runs, a browser, and pages that fail a check when the browser reports
// an error or a warning.

import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { createRequire } from "node:module";

import { chromium } from "playwright-core";

import { createLike, readState, writeCopies } from "./account.mjs";
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
  await world.quiet?.server.stop();
  await world.guarded?.program.stop();
  await world.server?.stop();
}

// The server with ten thousand workflows on which nothing runs, so that all requests that it counts are
// requests of its dashboard. It is started by the first check that needs it.
export async function quiet() {
  world.quiet ??= await startQuiet();
  return world.quiet;
}

// A dashboard of the first server that others can reach: it is read-only, and people sign in to it. It is
// started by the first check that needs it.
export async function guarded() {
  world.guarded ??= await startGuarded();
  return world.guarded;
}

async function startGuarded() {
  const args = ["dashboard", "--address", "0.0.0.0:0", "--endpoint", world.endpoint, "--read-only"];
  const program = await start(world.binary, args, "Sign in");
  const file = program.output.match(/Sign in\s+the link is in the file (.+)/)[1];
  const link = (await readFile(file, "utf8")).trim();
  const [url, token] = link.split("#token=");
  return { program, link, url, token };
}

async function startQuiet() {
  const server = await start(world.binary, ["dev", "--port", "0"], "Started");
  const endpoint = server.output.match(/Endpoint\s+(\S+)/)[1];
  const url = server.output.match(/Dashboard\s+(\S+)/)[1];
  await createLike(endpoint, world.endpoint);
  const state = await readState(world.endpoint, "order-1");
  // Of three workflows one has completed, one has failed and one runs.
  const statuses = ["Completed", "Failed", "Running"];
  await writeCopies(endpoint, state, COPIES, (number) => ({ status: statuses[number % statuses.length] }));
  return { server, endpoint, url };
}

// Creates a workflow that waits, workflows with hostile texts, and many workflows that have ended.
export async function fill(copies = COPIES) {
  await world.cli("workflow", "start", "Order", "--id", hostile.id, "--input", hostile.text);
  await world.cli("workflow", "start", `no-such-${HOSTILE}`, "--id", `waiting-${HOSTILE}`, "--input", HOSTILE);
  // Every third order waits for an approval. The demo sends no approval to this id.
  await world.cli("workflow", "start", "Order", "--id", "waits-1", "--input", "3");
  await world.cli("workflow", "wait", "order-1", "--timeout", "60s");
  await writeCopies(world.endpoint, await readState(world.endpoint, "order-1"), copies);
}

// Opens a page in a context of its own. Errors, warnings and dialogs of the browser are collected in
// `complaints`; `close` asserts that there are none. The answer must have the status `status`, 200 if it
// is not given. The browser itself complains about any other status, and that complaint is left out; so
// is its complaint about the status `answerStatus` of a form that is sent later.
export async function open(path, options = {}) {
  const { url = world.url, status = 200, answerStatus, ...context } = options;
  const opened = await world.browser.newContext({ viewport: { width: 1280, height: 800 }, ...context });
  const page = await opened.newPage();
  const complaints = [];
  page.on("console", (message) => {
    if (!["error", "warning"].includes(message.type())) return;
    const isExpected = (code) => code > 200 && message.text().includes(`responded with a status of ${code}`);
    if (isExpected(status) || isExpected(answerStatus)) return;
    complaints.push(message.text());
  });
  page.on("pageerror", (error) => complaints.push(String(error)));
  page.on("dialog", async (dialog) => {
    complaints.push(`a dialog: ${dialog.message()}`);
    await dialog.dismiss();
  });
  page.setDefaultTimeout(10_000);
  const answer = await page.goto(new URL(path, url).href);
  assert.equal(answer.status(), status, path);
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
