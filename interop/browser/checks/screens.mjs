// Every page is shown in light, in dark and at the width of a phone, and so is what a form of a page
// answers. The browser reports no error, and axe finds no violation.

import assert from "node:assert/strict";

import { area, check } from "../../javascript/lib/harness.mjs";
import { assertAccessible, guarded, visit } from "../lib/world.mjs";

const CONTAINER = "/container?database=duroxide&container=duroxide";
const ITEM = "/item?database=duroxide&container=duroxide";

// Pages by their address.
export const SCREENS = [
  ["workflows", "/workflows"],
  ["an empty list of workflows", "/workflows?filter=name%3Dnobody"],
  ["a wrong filter", "/workflows?filter=status%3Dfaild"],
  ["workflow", "/workflow?id=order-1"],
  ["workflow that waits", "/workflow?id=waits-1"],
  ["a zoomed timeline", "/workflow?id=order-1&zoom=16"],
  ["attention", "/attention"],
  ["bulk", "/bulk?filter=status%3Dfailed"],
  ["queues", "/queues"],
  ["workers", "/workers"],
  ["what workers hold", "/locks"],
  ["sessions", "/sessions"],
  ["charts", "/charts"],
  ["data", "/data"],
  ["container", CONTAINER],
  ["item", `${ITEM}&id=i&key=order-1`],
  ["new item", `${ITEM}&new=yes`],
];

// Pages that say what went wrong, with the status of their answer.
const FAILURES = [
  ["an address without a page", "/nowhere", 404],
  ["a workflow that does not exist", "/workflow?id=nobody", 404],
  ["an address that names no workflow", "/workflow", 400],
  ["an old address of a list", "/workflows?after=l1.nonsense", 400],
  ["a bulk action that does not exist", "/bulk?job=999", 404],
  ["a bulk action whose number is not a number", "/bulk?job=zzz", 404],
  ["a container that does not exist", "/container?database=no&container=no", 404],
  ["an item that does not exist", `${ITEM}&id=i&key=nobody`, 404],
];

// The answers to forms: where a person begins, what the person does, what the answer has, and the status
// of the answer if it is not 200.
const ANSWERS = [
  {
    name: "the next page of a list",
    path: "/workflows?filter=id%3Dcopy-*",
    act: (page) => page.click("#next"),
    has: "text=First page",
  },
  {
    name: "a query result",
    path: CONTAINER,
    act: (page) => page.click("button:has-text('Run query')"),
    has: "h2:has-text('Result')",
  },
  {
    name: "an explained query",
    path: CONTAINER,
    act: async (page) => {
      await page.fill("textarea", "SELECT c.type, COUNT(1) AS n FROM c WHERE c.instanceId > 'a' GROUP BY c.type");
      await page.check("input[name=explain]");
      await page.click("button:has-text('Run query')");
    },
    has: "h2:has-text('What the service did')",
  },
  {
    name: "a query with a mistake",
    path: CONTAINER,
    act: async (page) => {
      await page.fill("textarea", "SELEC * FROM c");
      await page.click("button:has-text('Run query')");
    },
    has: "[role=alert]",
  },
  {
    name: "a bulk action before it begins",
    path: "/bulk?filter=status%3Dcompleted",
    act: (page) => countFirst(page, "prune"),
    has: "button:has-text('Begin')",
  },
  {
    name: "the progress of a bulk action",
    path: "/bulk?filter=id%3Dcopy-0100*",
    act: (page) => begin(page, "restart"),
    has: "h1:has-text('Bulk action')",
  },
  {
    name: "the list of bulk actions",
    path: "/bulk?filter=id%3Dcopy-0100*",
    act: async (page) => {
      await begin(page, "restart");
      await page.click("text=All bulk actions");
    },
    has: "h2:has-text('Bulk actions so far')",
  },
  {
    name: "a workflow with all its forms open",
    path: "/workflow?id=waits-1",
    act: (page) => page.evaluate(() => document.querySelectorAll("details").forEach((it) => (it.open = true))),
    has: "input[name=event]",
  },
  {
    name: "a saved item, with its notice",
    path: `${ITEM}&new=yes`,
    act: async (page) => {
      await page.fill("textarea", JSON.stringify({ id: crypto.randomUUID(), instanceId: "screens" }));
      await page.click("button:has-text('Create')");
    },
    has: "[role=status]:has-text('Created')",
  },
  {
    name: "an item that is not JSON",
    path: `${ITEM}&new=yes`,
    act: async (page) => {
      await page.fill("textarea", "{");
      await page.click("button:has-text('Create')");
    },
    has: "[role=alert]",
    status: 400,
  },
];

async function countFirst(page, action) {
  await page.selectOption("select[name=workflow_action]", action);
  await page.click("button:has-text('Count first')");
}

async function begin(page, action) {
  await countFirst(page, action);
  await page.check("input[name=confirm]");
  await page.click("button:has-text('Begin')");
  await page.waitForSelector(".heading:has-text('finished')");
}

const LOOKS = [
  ["light", {}],
  ["dark", { colorScheme: "dark" }],
  ["on a phone", { viewport: { width: 360, height: 740 }, isMobile: true, hasTouch: true }],
];

area("screens");

// Axe finds nothing on the page, and the page is not wider than the window.
async function assertGood(page) {
  assert.match(await page.title(), / · Perihelion$/);
  await assertAccessible(page);
  const overflow = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
  assert.ok(overflow <= 0, `the page is ${overflow} pixels too wide`);
}

for (const [look, options] of LOOKS) {
  for (const [name, path] of SCREENS) {
    check(`${name} is accessible, ${look}`, () => visit(path, assertGood, options));
  }
  for (const [name, path, status] of FAILURES) {
    check(`${name} has an accessible page, ${look}`, () => visit(path, assertGood, { ...options, status }));
  }
  for (const { name, path, act, has, status } of ANSWERS) {
    const reach = async (page) => {
      await act(page);
      await page.waitForSelector(has);
      await assertGood(page);
    };
    check(`${name} is accessible, ${look}`, () => visit(path, reach, { ...options, answerStatus: status }));
  }
  check(`the login is accessible, ${look}`, async () => {
    const { url, token } = await guarded();
    const signIn = async (page) => {
      await assertGood(page);
      await page.fill("input[type=password]", "wrong");
      await page.click("button");
      await page.waitForSelector("[role=alert]");
      await assertGood(page);
      await page.fill("input[type=password]", token);
      await page.click("button");
      // A read-only page with the button that signs out.
      await page.waitForSelector("button:has-text('Sign out')");
      await assertGood(page);
    };
    await visit("/", signIn, { ...options, url, status: 401 });
  });
}

check("the list of screens has every page of the navigation", async () => {
  await visit("/workflows", async (page) => {
    const paths = await page.locator("nav[aria-label=Pages] a").evaluateAll((links) => links.map((link) => link.pathname));
    const missing = paths.filter((path) => !SCREENS.some(([, screen]) => screen.split("?")[0] === path));
    assert.ok(paths.length > 5);
    assert.deepEqual(missing, []);
  });
});

check("dark mode has a dark background", async () => {
  const background = (page) => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
  await visit("/workflows", async (page) => assert.equal(await background(page), "rgb(255, 255, 255)"));
  await visit("/workflows", async (page) => assert.equal(await background(page), "rgb(15, 18, 22)"), {
    colorScheme: "dark",
  });
});

check("charts have their figures, and the page has the hottest partitions", async () => {
  await visit("/charts", async (page) => {
    const titles = await page.locator(".panel-title").allTextContents();
    for (const title of ["Request units", "Latency, 99th percentile", "Background", "Work", "Duration, median"]) {
      assert.ok(titles.includes(title), `${title} is missing in ${titles}`);
    }
    assert.equal(await page.locator("svg.chart[role=img][aria-label]").count(), titles.length);
    assert.match(await page.textContent("#requests .facts"), /Idle cost.*Background[\d.]+ RU\/s, [\d,]+ RU per hour/);
    await page.click("#requests details.figures summary");
    const cells = await page.locator("#requests details.figures tbody tr").first().locator("td").allTextContents();
    assert.ok(cells.slice(0, 2).every((cell) => Number(cell) > 0), String(cells));
    assert.equal(cells.length, 7);
    await assertAccessible(page);
    assert.match(await page.textContent("main"), /Hottest partitions/);
    await page.click("table:has-text('Hottest partitions') a >> nth=0");
    await page.waitForSelector("text=Timeline");
  });
});

check("pages work without the script", async () => {
  const options = { javaScriptEnabled: false };
  await visit("/workflows", async (page) => assert.ok((await page.locator("tbody tr").count()) > 10), options);
});
