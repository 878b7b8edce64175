// Collects checks and runs them one after the other.
//
// A check is a claim and a function that asserts it. The checks of an area run in
// the order in which they are written and may share a container; areas do not
// share any.

// The slowest check waits two seconds for an expiry.
const CHECK_TIME_MAX_MS = 20_000;

const checks = [];
let currentArea = "";

// Checks registered from here on belong to `name`.
export function area(name) {
  currentArea = name;
}

export function check(claim, run) {
  checks.push({ area: currentArea, claim, run });
}

// Thrown by a check that does not apply.
export class Skip extends Error {}

// Runs the selected checks; returns how many failed.
export async function runChecks(words) {
  const selected = checks.filter(({ area, claim }) => {
    const name = `${area}: ${claim}`.toLowerCase();
    return words.length === 0 || words.some((word) => name.includes(word.toLowerCase()));
  });
  const count = { passed: 0, failed: 0, skipped: 0 };
  for (const { area, claim, run } of selected) {
    const started = performance.now();
    const { outcome, detail } = await judge(run);
    count[outcome] += 1;
    const took = Math.round(performance.now() - started);
    console.log(`${LABELS[outcome]} ${area}: ${claim} (${took} ms)${detail}`);
  }
  console.log(`${count.passed} passed, ${count.failed} failed, ${count.skipped} skipped`);
  return selected.length === 0 ? 1 : count.failed;
}

const LABELS = { passed: "ok  ", failed: "FAIL", skipped: "skip" };

async function judge(run) {
  let timer;
  const deadline = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Error(`not done within ${CHECK_TIME_MAX_MS} ms`)), CHECK_TIME_MAX_MS);
  });
  try {
    await Promise.race([run(), deadline]);
    return { outcome: "passed", detail: "" };
  } catch (error) {
    if (error instanceof Skip) return { outcome: "skipped", detail: `: ${error.message}` };
    return { outcome: "failed", detail: `\n${describe(error)}` };
  } finally {
    clearTimeout(timer);
  }
}

function describe(error) {
  const facts = [];
  if (error?.code !== undefined) facts.push(`code ${error.code}`);
  if (error?.substatus) facts.push(`substatus ${error.substatus}`);
  const text = error?.stack ?? error?.message ?? JSON.stringify(error);
  return [...facts, text].join("\n").replace(/^/gm, "     ");
}
