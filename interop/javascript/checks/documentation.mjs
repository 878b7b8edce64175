// The JavaScript of docs/emulator.md, run as it is written there. Only the endpoint is replaced, and the
// key is given, which the page has in a table.

import assert from "node:assert/strict";
import { readFile, rm, writeFile } from "node:fs/promises";
import path from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";

import { area, check } from "../lib/harness.mjs";
import { client, endpoints, KEY } from "../lib/support.mjs";

area("documentation");

const here = path.dirname(fileURLToPath(import.meta.url));

check("the JavaScript of the page about emulators stores its item", async () => {
  const page = await readFile(path.join(here, "../../../docs/emulator.md"), "utf8");
  const [block, ...others] = [...page.matchAll(/^```javascript\n(.*?)^```$/gms)].map(([, text]) => text);
  assert.equal(others.length, 0);
  const text = block.replace("https://localhost:8081/", endpoints.plain);
  // The file is here because imports are looked up from the directory of a file.
  const file = path.join(here, `documentation-${process.pid}.tmp.mjs`);
  await writeFile(file, `const KEY = ${JSON.stringify(KEY)};\n${text}`);
  try {
    await import(pathToFileURL(file).href);
  } finally {
    await rm(file);
  }
  const shop = client().database("shop");
  const { resource } = await shop.container("orders").item("1", "ada").read();
  assert.equal(resource.customer, "ada");
  await shop.delete();
});
