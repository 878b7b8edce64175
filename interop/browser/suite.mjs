// Runs the checks (see run.mjs).

import { runChecks } from "../javascript/lib/harness.mjs";

const AREAS = ["journey", "screens", "requests", "lists", "live", "keyboard", "hostile", "actions"];

for (const name of AREAS) await import(`./checks/${name}.mjs`);

export const runSuite = (words) => runChecks(words);
