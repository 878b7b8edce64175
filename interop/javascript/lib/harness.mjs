// Collects checks and runs them one after the other.
//
// A check is a claim and a function that asserts the claim. The checks of an area run in
// the order in which they are written, and may share a container. Areas share no containers.

// The time limit of a check that has none of its own. The slowest of them waits two seconds for an
// expiry.
const CHECK_TIME_MAX_MS = 20_000;

const checks = [];
let currentArea = "";

// Begins an area: the checks that are registered after this call belong to it.
export function area(name) {
  currentArea = name;
}

// Registers a check. A check that needs longer than the others has a time limit of its own.
export function check(claim, run, timeMaxMs = CHECK_TIME_MAX_MS) {
  checks.push({ area: currentArea, claim, run, timeMaxMs });
}

// Thrown by a check that cannot be run here.
export class Skip extends Error {}

// Runs the checks whose area or claim contains one of the words, or all if there are no
// words. Returns the number of failed checks, or 1 if no check was selected.
export async function runChecks(words) {
  const selected = checks.filter(({ area, claim }) => {
    const name = `${area}: ${claim}`.toLowerCase();
    return words.length === 0 || words.some((word) => name.includes(word.toLowerCase()));
  });
  const count = { passed: 0, failed: 0, skipped: 0 };
  for (const { area, claim, run, timeMaxMs } of selected) {
    const started = performance.now();
    const { outcome, detail } = await runWithLimit(run, timeMaxMs);
    count[outcome] += 1;
    const tookMs = Math.round(performance.now() - started);
    console.log(`${LABELS[outcome]} ${area}: ${claim} (${tookMs} ms)${detail}`);
  }
  console.log(`${count.passed} passed, ${count.failed} failed, ${count.skipped} skipped`);
  return selected.length === 0 ? 1 : count.failed;
}

const LABELS = { passed: "ok  ", failed: "FAIL", skipped: "skip" };

// Runs one check with its time limit.
async function runWithLimit(run, timeMaxMs) {
  let timer;
  const deadline = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Error(`not done within ${timeMaxMs} ms`)), timeMaxMs);
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
