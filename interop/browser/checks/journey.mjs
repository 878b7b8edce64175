// The first minutes of a new user, with the commands of README.md and no others: a workflow is started
// and seen in the dashboard, its worker is killed and started again, and the workflow ends.

import assert from "node:assert/strict";
import path from "node:path";
import { fileURLToPath } from "node:url";

import { area, check } from "../../javascript/lib/harness.mjs";
import { Machine, blocksOf } from "../lib/readme.mjs";
import { visit, world } from "../lib/world.mjs";

area("journey");

const README = path.join(path.dirname(fileURLToPath(import.meta.url)), "../../../README.md");

// What a worker prints when it takes work, and a server when it answers.
const READY = { worker: "the worker runs", server: "Started" };

check(
  "the commands of README lead a newcomer from the clone to a workflow that outlives its worker",
  async () => {
    const [[server], [worker], look, [again], finish] = await blocksOf(README, "The first workflow");
    const [operate] = await blocksOf(README, "Operate");
    assert.equal(again, worker, "the worker is started again by the same command");
    const machine = await Machine.create(world.binary);
    try {
      const { output } = await machine.start(server, READY.server);
      machine.useEndpoint(output.match(/Endpoint\s+(\S+)/)[1]);
      const url = output.match(/Dashboard\s+(\S+)/)[1];
      const killed = await machine.start(worker, READY.worker);
      for (const command of look) await machine.run(command);
      await visit("/workflows", (page) => follow(page, { machine, killed, again, finish }), { url });
      for (const command of operate) await operateOn(machine, command);
    } finally {
      await machine.remove();
    }
  },
  180_000,
);

// The part that is seen in the dashboard: the workflow waits, loses its worker, gets another one and ends.
async function follow(page, { machine, killed, again, finish }) {
  page.setDefaultTimeout(30_000);
  await page.click("text=order-1");
  await page.waitForSelector(".badge.running");
  await page.waitForSelector("text=waits for payment");
  await killed.end("SIGKILL");
  await machine.start(again, READY.worker);
  const outputs = [];
  for (const command of finish) outputs.push(await machine.run(command));
  assert.ok(outputs.join("").includes("lamp is reserved, paid with card"), outputs.join(""));
  await page.waitForSelector(".badge.completed");
  await page.waitForSelector("text=lamp is reserved, paid with card");
}

// Runs a command of the section for operators. One that runs until Ctrl-C gets it when it has printed.
async function operateOn(machine, command) {
  if (!command.includes("--watch")) return machine.run(command);
  const program = await machine.start(command, "\n");
  return program.end("SIGINT");
}
