// The commands of README.md, and a machine on which they are run as they are written.
//
// Nothing in a command is changed. One rule replaces what a newcomer has and the checks have not: the
// program `cargo` on the path is a script that starts what the checks have built (the debug build) in
// place of building it. `target/release` of the working directory leads to the same program. The
// environment gives the server a free port, and tells the other programs its endpoint.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { access, chmod, mkdir, mkdtemp, readFile, rm, symlink, writeFile } from "node:fs/promises";
import os from "node:os";
import path from "node:path";

// The longest wait for a command: to end, or to print that it is ready.
const COMMAND_TIME_MAX_MS = 30_000;

// The blocks of commands in a section, each a list of command lines without comments.
export async function blocksOf(file, heading) {
  const page = await readFile(file, "utf8");
  const [, after] = page.split(`\n## ${heading}\n`);
  assert.ok(after !== undefined, `${file} has no section ${heading}`);
  const [section] = after.split("\n## ");
  const blocks = [...section.matchAll(/^```console\n(.*?)^```$/gms)].map(([, text]) => text);
  // A comment behind a command would be an error in zsh, the shell of macOS.
  const command = (line) => {
    assert.doesNotMatch(line, /\s# /, `a command of ${heading} has a comment behind it`);
    return line.trimEnd();
  };
  return blocks.map((text) => text.split("\n").map(command).filter((line) => line !== ""));
}

// The stand-in for cargo: it takes the two forms of `cargo run` that README has for newcomers.
const cargo = (binary, examples) => `#!/bin/sh
case "$*" in
  "run --release -- "*) shift 3; exec "${binary}" "$@" ;;
  "run --release -p duroxide-cdb --example "*) exec "${examples}/$6" ;;
  *) echo "this stand-in does not know: cargo $*" >&2; exit 101 ;;
esac
`;

// A fresh machine with a clone in which everything is built.
export class Machine {
  #variables = {};
  #exports = [];
  #running = new Set();

  static async create(binary) {
    const machine = new Machine();
    machine.directory = await mkdtemp(path.join(os.tmpdir(), "perihelion-readme-"));
    const examples = path.join(path.dirname(binary), "examples");
    await access(path.join(examples, "worker")).catch(() => {
      throw new Error(`${examples}/worker does not exist: build it with cargo test --workspace --no-run`);
    });
    const bin = path.join(machine.directory, "bin");
    const release = path.join(machine.directory, "target/release");
    await mkdir(bin);
    await mkdir(release, { recursive: true });
    await symlink(path.resolve(binary), path.join(release, "perihelion"));
    await writeFile(path.join(bin, "cargo"), cargo(path.resolve(binary), path.resolve(examples)));
    await chmod(path.join(bin, "cargo"), 0o755);
    machine.#variables = { PATH: `${bin}:${process.env.PATH}`, XDG_CACHE_HOME: machine.directory, PERIHELION_PORT: "0" };
    return machine;
  }

  // All later commands go to this server.
  useEndpoint(endpoint) {
    this.#variables.COSMOS_ENDPOINT = endpoint;
  }

  // Runs a command of a terminal to its end, and returns its output. It must succeed. A line that exports
  // a variable holds for all later commands, as in a terminal.
  async run(command) {
    if (command.startsWith("export ")) {
      this.#exports.push(command);
      return "";
    }
    const program = this.#spawn(command);
    const code = await program.within(program.ended, "end");
    assert.equal(code, 0, `${command}: ${program.output}`);
    return program.output;
  }

  // Starts a command that runs until a signal, and waits until its output contains `ready`.
  async start(command, ready) {
    const program = this.#spawn(command);
    await program.within(program.printed(ready), `print ${ready}`);
    return program;
  }

  async remove() {
    await Promise.all([...this.#running].map((program) => program.end("SIGKILL")));
    await rm(this.directory, { recursive: true, force: true });
  }

  #spawn(command) {
    const text = [...this.#exports, command].join("\n");
    const options = { cwd: this.directory, env: this.#variables, detached: true, stdio: ["ignore", "pipe", "pipe"] };
    const program = new Program(command, spawn("sh", ["-ec", text], options));
    this.#running.add(program);
    program.ended.finally(() => this.#running.delete(program));
    return program;
  }
}

// A command that runs.
class Program {
  output = "";
  #child;
  #command;
  #readers = new Set();

  constructor(command, child) {
    this.#command = command;
    this.#child = child;
    for (const stream of [child.stdout, child.stderr]) {
      stream.on("data", (data) => {
        this.output += data;
        for (const reader of this.#readers) reader();
      });
    }
    this.ended = new Promise((resolve) => child.once("close", resolve));
  }

  // Resolves when the output contains a text.
  printed(text) {
    return new Promise((resolve, reject) => {
      const look = () => this.output.includes(text) && resolve();
      this.#readers.add(look);
      this.ended.then(() => reject(new Error(`${this.#command} has ended: ${this.output}`)));
      look();
    });
  }

  // Waits for a promise, but not for ever. `what` completes the sentence of the error.
  async within(promise, what) {
    let timer;
    const late = new Promise((_, reject) => {
      const error = () => new Error(`${this.#command} did not ${what}: ${this.output}`);
      timer = setTimeout(() => reject(error()), COMMAND_TIME_MAX_MS);
    });
    try {
      return await Promise.race([promise, late]);
    } finally {
      clearTimeout(timer);
    }
  }

  // Sends a signal to the command and to what it has started, as a terminal does.
  signal(name) {
    try {
      process.kill(-this.#child.pid, name);
    } catch (error) {
      if (error.code !== "ESRCH") throw error;
    }
  }

  // Ends the command with a signal. Resolves when the process is gone.
  async end(name) {
    this.signal(name);
    await this.within(this.ended, `end after ${name}`);
  }
}
