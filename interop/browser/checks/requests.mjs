// Each page sends a bounded number of requests to the account, whatever the number of workflows. The
// account has ten thousand workflows and nothing runs on it, so the server counts requests of the
// dashboard only.

import assert from "node:assert/strict";

import { area, check } from "../../javascript/lib/harness.mjs";
import { countRequests } from "../lib/account.mjs";
import { quiet, visit } from "../lib/world.mjs";

const CONTAINER = "/container?database=duroxide&container=duroxide";

// The most requests of each page, in an account whose container has one physical partition.
const REQUESTS_MAX = [
  ["/workflows", 1],
  ["/workflows?filter=status%3Dfailed", 1],
  ["/workflows?filter=name%3Dnobody", 2],
  ["/workflow?id=copy-00000", 12],
  ["/attention", 5],
  ["/bulk", 0],
  ["/queues", 4],
  ["/workers", 1],
  ["/locks", 2],
  ["/sessions", 1],
  ["/charts", 1],
  ["/data", 2],
  [CONTAINER, 1],
  ["/item?database=duroxide&container=duroxide&id=i&key=copy-00000", 1],
  ["/item?database=duroxide&container=duroxide&new=yes", 0],
];

// The forms that only read, and the most requests of their answers.
const ANSWERS = [
  ["a query", CONTAINER, (page) => page.click("button:has-text('Run query')"), "text=Result", 2],
  [
    "the count of a bulk action",
    "/bulk?filter=id%3Dcopy-*",
    (page) => page.click("button:has-text('Count first')"),
    "text=10,000 workflows",
    2,
  ],
];

area("requests");

// What opening the container takes, once: the account, the container, its partitions and its layout.
const OPENING_MAX = 6;

// Without the script a page is not watched, so that it is made once.
const PLAIN = { javaScriptEnabled: false };

// The page that is opened first. It is none of the pages below: a page that was just made is not made
// again.
const FIRST_PAGE = "/workflows?filter=id%3Dnobody";
const FIRST_PAGE_MAX = 3;

// The requests of the first page. They are counted once, by the check that comes first.
let opening;

async function opened() {
  const { url, endpoint } = await quiet();
  const show = () => visit(FIRST_PAGE, async () => {}, { url, ...PLAIN });
  opening ??= countRequests(endpoint, show);
  return { url, endpoint, requests: await opening };
}

check(`the first page opens the container with at most ${OPENING_MAX} requests more`, async () => {
  const { requests } = await opened();
  assert.ok(requests <= OPENING_MAX + FIRST_PAGE_MAX, `${requests} requests`);
});

for (const [path, requestsMax] of REQUESTS_MAX) {
  check(`${path} sends at most ${requestsMax} requests`, async () => {
    const { url, endpoint } = await opened();
    const show = () => visit(path, async () => {}, { url, ...PLAIN });
    const requests = await countRequests(endpoint, show);
    assert.ok(requests <= requestsMax, `${requests} requests`);
  });
}

for (const [name, path, act, has, requestsMax] of ANSWERS) {
  check(`${name} sends at most ${requestsMax} requests`, async () => {
    const { url, endpoint } = await opened();
    const send = async (page) => {
      const requests = await countRequests(endpoint, async () => {
        await act(page);
        await page.waitForSelector(has);
      });
      assert.ok(requests <= requestsMax, `${requests} requests`);
    };
    await visit(path, send, { url, ...PLAIN });
  });
}
