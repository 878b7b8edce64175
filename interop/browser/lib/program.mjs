// Starts the program that this repository builds, and stops it again.

import { spawn, execFile } from "node:child_process";
import { access } from "node:fs/promises";
import path from "node:path";
import { promisify } from "node:util";

// The time limit of a start. A debug build is ready in well under a second on an idle machine.
const START_TIME_MAX_MS = 60_000;

export const KEY = "C2y6yDjf5/R+ob0N8A7Cgv30VRDJIWEHLM+4QDU5DE2nQ9nDuVTqobD4b8mGGyPMbIZnqyMsEcaGQy67XIw/Jw==";

// The program to test: PERIHELION_BIN, or the debug build of this checkout.
export async function binaryPath(here) {
  const binary = process.env.PERIHELION_BIN ?? path.join(here, "../../target/debug/perihelion");
  await access(binary).catch(() => {
    throw new Error(`${binary} does not exist: build it with cargo build`);
  });
  return binary;
}

// Starts a command that runs until it is stopped. Resolves when its output contains `ready`.
export function start(binary, args, ready) {
  const child = spawn(binary, args, { stdio: ["ignore", "pipe", "inherit"] });
  return new Promise((resolve, reject) => {
    let output = "";
    const timer = setTimeout(() => reject(new Error(`${args.join(" ")} did not start: ${output}`)), START_TIME_MAX_MS);
    child.once("exit", (code) => reject(new Error(`${args.join(" ")} ended with ${code}: ${output}`)));
    child.stdout.on("data", (data) => {
      output += data;
      if (!output.includes(ready)) return;
      clearTimeout(timer);
      const stop = () =>
        new Promise((stopped) => {
          child.removeAllListeners("exit");
          child.once("exit", stopped);
          child.kill("SIGTERM");
        });
      resolve({ output, stop });
    });
  });
}

// Runs a verb of the program against an endpoint and returns its output.
export async function run(binary, endpoint, args) {
  const env = { ...process.env, COSMOS_ENDPOINT: endpoint, COSMOS_KEY: KEY };
  delete env.AZURE_COSMOS_CONNECTION_STRING;
  const { stdout } = await promisify(execFile)(binary, args, { env });
  return stdout;
}
