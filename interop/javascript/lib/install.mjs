// Installs the packages of package-lock.json into node_modules, unless they are installed
// already.
//
// After npm has succeeded, a stamp file with the hash of the lock file is written. So the
// packages are installed again after an interrupted installation or a changed lock file.

import { spawn } from "node:child_process";
import { createHash } from "node:crypto";
import { readFile, writeFile } from "node:fs/promises";
import path from "node:path";

// The time limit of npm, which downloads 25 small packages.
const INSTALL_TIME_MAX_MS = 300_000;

export async function install(directory) {
  const lock = await readFile(path.join(directory, "package-lock.json"));
  const wanted = createHash("sha256").update(lock).digest("hex");
  const stamp = path.join(directory, "node_modules", ".interop-lock-sha256");
  if ((await readIfThere(stamp)) === wanted) return;
  console.error(`npm ci in ${directory}`);
  await npmCi(directory);
  await writeFile(stamp, wanted);
}

async function readIfThere(file) {
  try {
    return await readFile(file, "utf8");
  } catch (error) {
    if (error.code === "ENOENT") return undefined;
    throw error;
  }
}

function npmCi(directory) {
  return new Promise((resolve, reject) => {
    const npm = spawn("npm", ["ci", "--no-audit", "--no-fund", "--ignore-scripts", "--loglevel=error"], {
      cwd: directory,
      // Both outputs of npm go to standard error: standard output is for the checks.
      stdio: ["ignore", process.stderr, process.stderr],
      timeout: INSTALL_TIME_MAX_MS,
    });
    npm.once("error", (error) => reject(new Error(`npm cannot be started: ${error.message}`)));
    npm.once("exit", (code, signal) => {
      if (code === 0) resolve();
      else reject(new Error(`npm ci ended with ${signal ?? code}`));
    });
  });
}
