// Writes many workflows at once: copies of the state document of one that has ended. Requests are
// signed as any client of the service signs them.

import { createHmac } from "node:crypto";
import http from "node:http";

import { KEY } from "./program.mjs";

const COLLECTION = "dbs/duroxide/colls/duroxide";
const agent = new http.Agent({ keepAlive: true, maxSockets: 16 });

function send(endpoint, method, link, path, headers, body) {
  const date = new Date().toUTCString();
  const text = `${method.toLowerCase()}\ndocs\n${link}\n${date.toLowerCase()}\n\n`;
  const signature = createHmac("sha256", Buffer.from(KEY, "base64")).update(text).digest("base64");
  const authorization = encodeURIComponent(`type=master&ver=1.0&sig=${signature}`);
  const all = { ...headers, "x-ms-date": date, "x-ms-version": "2018-12-31", authorization };
  return new Promise((resolve, reject) => {
    const request = http.request(new URL(path, endpoint), { method, headers: all, agent }, (response) => {
      let answer = "";
      response.on("data", (data) => (answer += data));
      response.on("end", () => {
        if (response.statusCode < 300) resolve(answer);
        else reject(new Error(`${method} ${path}: ${response.statusCode} ${answer}`));
      });
    });
    request.once("error", reject);
    request.end(body);
  });
}

// Writes `count` copies of a workflow, as if each of them had run.
export async function copyWorkflow(endpoint, id, count) {
  const key = (id) => ({ "x-ms-documentdb-partitionkey": JSON.stringify([id]) });
  const state = JSON.parse(await send(endpoint, "GET", `${COLLECTION}/docs/i`, `/${COLLECTION}/docs/i`, key(id)));
  let next = 0;
  const worker = async () => {
    while (next < count) {
      const copy = `copy-${String(next++).padStart(5, "0")}`;
      const body = JSON.stringify({ ...state, instanceId: copy });
      const headers = { ...key(copy), "x-ms-documentdb-is-upsert": "True", "content-type": "application/json" };
      await send(endpoint, "POST", COLLECTION, `/${COLLECTION}/docs`, headers, body);
    }
  };
  await Promise.all(Array.from({ length: 16 }, worker));
}
