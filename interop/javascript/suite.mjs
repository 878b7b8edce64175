// Runs the checks, in the child process that trusts our CA (see run.mjs).

import { runChecks } from "./lib/harness.mjs";

const AREAS = [
  "account",
  "databases",
  "containers",
  "offers",
  "users",
  "items",
  "preconditions",
  "patch",
  "batch",
  "bulk",
  "queries",
  "sql",
  "plans",
  "search",
  "change_feed",
  "hierarchical_keys",
  "ttl",
  "sessions",
  "text_and_numbers",
  "errors",
  "splits",
  "documentation",
];

for (const name of AREAS) await import(`./checks/${name}.mjs`);

const failed = await runChecks(process.argv.slice(2));
// The process ends although the SDK keeps timers and sockets open.
process.exit(failed === 0 ? 0 : 1);
