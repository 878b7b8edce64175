// Checks the dashboard in a real browser: `node interop/browser/run.mjs [word ...]`.
//
// Installs the packages of package-lock.json, and Debian's chromium if there is none. Starts a
// development server with its demo, writes ten thousand workflows, and runs the checks.
//
// Words select the checks whose area or claim contains one of them. `--screenshots` writes the
// pictures of the documentation instead.

import { execFileSync } from "node:child_process";
import { existsSync } from "node:fs";
import path from "node:path";
import { fileURLToPath } from "node:url";

import { install } from "../javascript/lib/install.mjs";
import { binaryPath } from "./lib/program.mjs";

const here = path.dirname(fileURLToPath(import.meta.url));

process.exitCode = await main(process.argv.slice(2));

async function main(words) {
  try {
    const binary = await binaryPath(here);
    await install(here);
    ensureBrowser();
    // These modules need the packages, so they are imported after the installation.
    const { begin, end, fill } = await import("./lib/world.mjs");
    try {
      await begin(binary);
      if (words[0] === "--screenshots") {
        const { screenshots } = await import("./screenshots.mjs");
        await screenshots(path.join(here, "../../docs/images"));
        return 0;
      }
      await fill();
      const { runSuite } = await import("./suite.mjs");
      return (await runSuite(words)) === 0 ? 0 : 1;
    } finally {
      await end();
    }
  } catch (error) {
    console.error(`interop/browser: ${error.stack}`);
    return 1;
  }
}

// Installs Debian's chromium if there is none, which needs root. On other systems, set CHROMIUM to
// the path of a browser.
function ensureBrowser() {
  if (process.env.CHROMIUM || existsSync("/usr/bin/chromium")) return;
  console.error("interop/browser: apt-get install chromium");
  execFileSync("apt-get", ["install", "-y", "--no-install-recommends", "chromium"], { stdio: "inherit" });
}
