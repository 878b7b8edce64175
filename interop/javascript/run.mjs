// Checks the server that this repository builds with the official JavaScript SDK:
// `node interop/javascript/run.mjs [word ...]`.
//
// Only Node's standard library is needed to start. This process installs the packages of
// package-lock.json, starts the servers, and runs suite.mjs in a child process. The child
// trusts our CA through the variable NODE_EXTRA_CA_CERTS, which Node reads only when it
// starts. Certificates are always verified.
//
// Words select the checks whose area or name contains one of them.

import { spawn } from "node:child_process";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { fileURLToPath } from "node:url";

import { install } from "./lib/install.mjs";
import { binaryPath, startServers, stopServers } from "./lib/servers.mjs";

const here = path.dirname(fileURLToPath(import.meta.url));

// The time limit of the suite, which takes well under a minute.
const SUITE_TIME_MAX_MS = 300_000;

process.exitCode = await main(process.argv.slice(2));

async function main(words) {
  const scratch = await mkdtemp(path.join(tmpdir(), "perihelion-interop-js-"));
  let servers = [];
  try {
    const binary = await binaryPath(here);
    await install(here);
    servers = await startServers(binary, scratch);
    return await runSuite(servers, words);
  } catch (error) {
    console.error(`interop/javascript: ${error.message}`);
    return 1;
  } finally {
    const complaints = await stopServers(servers);
    for (const complaint of complaints) {
      console.error(`interop/javascript: ${complaint}`);
      process.exitCode = 1;
    }
    await rm(scratch, { recursive: true, force: true });
  }
}

// Resolves to the exit code of the suite.
function runSuite(servers, words) {
  const environment = { ...process.env, NODE_EXTRA_CA_CERTS: servers[0].caPath };
  // Without verification every TLS check would be meaningless.
  delete environment.NODE_TLS_REJECT_UNAUTHORIZED;
  for (const server of servers) {
    environment[`INTEROP_${server.name.toUpperCase()}`] = server.endpoint;
  }
  return new Promise((resolve, reject) => {
    const suite = spawn(process.execPath, [path.join(here, "suite.mjs"), ...words], {
      env: environment,
      stdio: "inherit",
      timeout: SUITE_TIME_MAX_MS,
    });
    suite.once("error", reject);
    suite.once("exit", (code, signal) => {
      if (signal) console.error(`interop/javascript: the suite was ended by ${signal}`);
      resolve(code ?? 1);
    });
  });
}
