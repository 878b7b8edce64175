// Starts and stops the servers that the checks use.
//
// Each server uses a free port and is ready when it prints "Started". The servers share a
// certificate cache in the scratch directory. So their CA is new, and no trust store has it.

import { execFile, spawn } from "node:child_process";
import { access, writeFile } from "node:fs/promises";
import path from "node:path";
import { createInterface } from "node:readline";
import { promisify } from "node:util";

// The servers: one with one range, one with several ranges, one that refuses what the real
// gateway refuses, one with a small throughput, and one that accepts Entra ID tokens.
const SERVERS = [
  { name: "plain", options: ["--merge-in-gateway"] },
  { name: "ranges", options: ["--partitions", "4", "--merge-in-gateway"] },
  { name: "strict", options: ["--partitions", "4"] },
  { name: "throttled", options: ["--throughput", "100", "--merge-in-gateway"] },
  { name: "tokens", options: ["--auth", "any", "--merge-in-gateway"] },
];

// The time limit of a start. Even a debug build on a busy machine starts in well under a
// second.
const START_TIME_MAX_MS = 15_000;
// The time limit of a stop. After SIGTERM a server finishes its open requests, of which there
// are none by then.
const STOP_TIME_MAX_MS = 10_000;

// The program of the server: PERIHELION_BIN, or the debug build of this checkout.
export async function binaryPath(directory) {
  const built = path.resolve(directory, "../../target/debug/perihelion");
  const binary = path.resolve(process.env.PERIHELION_BIN || built);
  try {
    await access(binary);
  } catch {
    throw new Error(`${binary} is not there: cargo build -p perihelion, or set PERIHELION_BIN`);
  }
  return binary;
}

export async function startServers(binary, scratch) {
  const environment = cleanEnvironment(scratch);
  const servers = [];
  try {
    // One after the other, because the first one creates the CA.
    for (const { name, options } of SERVERS) {
      servers.push(await start(binary, name, options, environment));
    }
    const { stdout } = await promisify(execFile)(binary, ["cert", "ca"], { env: environment });
    const caPath = path.join(scratch, "ca.pem");
    await writeFile(caPath, stdout);
    for (const server of servers) server.caPath = caPath;
    return servers;
  } catch (error) {
    await stopServers(servers);
    throw error;
  }
}

// Stops every server. Returns a sentence for each server that did not stop properly.
export async function stopServers(servers) {
  const complaints = await Promise.all(servers.map(stop));
  return complaints.filter(Boolean);
}

// The environment of a server, without settings of the caller's shell for our server.
function cleanEnvironment(scratch) {
  const kept = Object.entries(process.env).filter(([name]) => !name.startsWith("PERIHELION_"));
  return { ...Object.fromEntries(kept), XDG_CACHE_HOME: scratch };
}

function start(binary, name, options, environment) {
  const child = spawn(binary, ["dev", "--port", "0", ...options], {
    env: environment,
    stdio: ["ignore", "pipe", "inherit"],
  });
  const ended = new Promise((resolve) => child.once("exit", (code, signal) => resolve(signal ?? code)));
  return new Promise((resolve, reject) => {
    const giveUp = (reason) => {
      child.kill("SIGKILL");
      reject(new Error(`the ${name} server ${reason}`));
    };
    const timer = setTimeout(() => giveUp(`did not start within ${START_TIME_MAX_MS} ms`), START_TIME_MAX_MS);
    child.once("error", (error) => giveUp(`cannot be started: ${error.message}`));
    ended.then((how) => {
      clearTimeout(timer);
      reject(new Error(`the ${name} server ended with ${how} while starting`));
    });
    let endpoint;
    createInterface({ input: child.stdout }).on("line", (line) => {
      endpoint ??= /https:\/\/[^\s]+/.exec(line)?.[0];
      if (line !== "Started") return;
      clearTimeout(timer);
      if (endpoint) resolve({ name, child, ended, endpoint });
      else giveUp("printed no https endpoint");
    });
  });
}

async function stop({ name, child, ended }) {
  if (child.exitCode !== null || child.signalCode !== null) {
    return `the ${name} server ended by itself with ${child.signalCode ?? child.exitCode}`;
  }
  const timer = setTimeout(() => child.kill("SIGKILL"), STOP_TIME_MAX_MS);
  child.kill("SIGTERM");
  const how = await ended;
  clearTimeout(timer);
  return how === 0 ? undefined : `the ${name} server ended with ${how} on SIGTERM`;
}
