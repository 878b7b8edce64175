// The checks, run in the process that trusts our CA (see run.mjs).

import { runChecks } from "./lib/harness.mjs";

const AREAS = [
  "account",
  "databases",
  "containers",
  "offers",
  "items",
  "preconditions",
  "patch",
  "batch",
  "bulk",
  "queries",
  "sql",
  "plans",
  "change_feed",
  "hierarchical_keys",
  "ttl",
  "sessions",
  "text_and_numbers",
  "errors",
  "splits",
];

for (const name of AREAS) await import(`./checks/${name}.mjs`);

const failed = await runChecks(process.argv.slice(2));
// The SDK keeps timers and sockets open; do not wait for them.
process.exit(failed === 0 ? 0 : 1);
