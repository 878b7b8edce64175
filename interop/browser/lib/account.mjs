// The account behind a dashboard, as any client of the service sees it: writes many workflows at
// once, copies the container of workflows to another account, and reads the server's counters.

import { createHmac } from "node:crypto";
import http from "node:http";

import { KEY } from "./program.mjs";

const DATABASE = "duroxide";
const COLLECTION = `dbs/${DATABASE}/colls/duroxide`;

// The requests that are under way at the same time while many workflows are written.
const WRITERS = 16;

const agent = new http.Agent({ keepAlive: true, maxSockets: WRITERS });

// Sends a request that is signed as the service asks for it. `link` names the resource, or the parent
// of a resource that is created.
function send(endpoint, method, [type, link], path, headers = {}, body = undefined) {
  const date = new Date().toUTCString();
  const text = `${method.toLowerCase()}\n${type}\n${link}\n${date.toLowerCase()}\n\n`;
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

const inPartition = (id) => ({ "x-ms-documentdb-partitionkey": JSON.stringify([id]) });

// The state document of a workflow.
export async function readState(endpoint, id) {
  const path = `${COLLECTION}/docs/i`;
  return JSON.parse(await send(endpoint, "GET", ["docs", path], `/${path}`, inPartition(id)));
}

// Writes `count` copies of a workflow that has ended, as if each of them had run. `change` returns the
// members that differ in the copy with a number.
export async function writeCopies(endpoint, state, count, change = () => ({})) {
  let next = 0;
  const worker = async () => {
    while (next < count) {
      const number = next++;
      const copy = `copy-${String(number).padStart(5, "0")}`;
      const body = JSON.stringify({ ...state, instanceId: copy, ...change(number) });
      const headers = { ...inPartition(copy), "x-ms-documentdb-is-upsert": "True", "content-type": "application/json" };
      await send(endpoint, "POST", ["docs", COLLECTION], `/${COLLECTION}/docs`, headers, body);
    }
  };
  await Promise.all(Array.from({ length: WRITERS }, worker));
}

// Creates an empty container of workflows like that of another account.
export async function createLike(endpoint, other) {
  const like = JSON.parse(await send(other, "GET", ["colls", COLLECTION], `/${COLLECTION}`));
  const { id, partitionKey, indexingPolicy, defaultTtl } = like;
  await send(endpoint, "POST", ["dbs", ""], "/dbs", {}, JSON.stringify({ id: DATABASE }));
  const database = `dbs/${DATABASE}`;
  const body = JSON.stringify({ id, partitionKey, indexingPolicy, defaultTtl });
  await send(endpoint, "POST", ["colls", database], `/${database}/colls`, {}, body);
}

// Returns the number of requests that the server gets while `act` runs.
export async function countRequests(endpoint, act) {
  const counters = new URL("/_perihelion/counters", endpoint);
  await fetch(counters, { method: "DELETE" });
  await act();
  return (await (await fetch(counters)).json()).requests;
}
