// Writes the pictures of the documentation, from a development server with its demo.

import { mkdir } from "node:fs/promises";
import path from "node:path";

import { open, world } from "./lib/world.mjs";

const WIDE = { viewport: { width: 1280, height: 800 } };
const PHONE = { viewport: { width: 390, height: 800 }, isMobile: true, hasTouch: true };
const DARK = { colorScheme: "dark" };

const PICTURES = [
  ["workflows", "/workflows", WIDE],
  ["workflow", "/workflow?id=order-4", { viewport: { width: 1280, height: 1000 } }],
  ["workflow-dark", "/workflow?id=order-3", { viewport: { width: 1280, height: 1000 }, ...DARK }],
  ["workflows-phone", "/workflows", PHONE],
  ["attention", "/attention", WIDE],
  ["queues", "/queues", { viewport: { width: 1280, height: 420 } }],
  ["charts", "/charts", { viewport: { width: 1280, height: 900 } }],
  ["data", "/container?database=duroxide&container=duroxide", { ...WIDE, ...DARK }],
];

// Long enough for a few orders to complete, and for charts to have a line.
const TRAFFIC_MS = 45_000;

export async function screenshots(directory) {
  await mkdir(directory, { recursive: true });
  await new Promise((done) => setTimeout(done, TRAFFIC_MS));
  for (const [name, address, options] of PICTURES) {
    const { page, close } = await open(address, options);
    if (name === "data") {
      await page.check("input[name=explain]");
      await page.click("button:has-text('Run query')");
    }
    await page.waitForTimeout(500);
    await page.screenshot({ path: path.join(directory, `${name}.png`) });
    await close();
    console.log(`docs/images/${name}.png`);
  }
}
