// Functions that the checks share: clients, new containers, whole results of queries, and
// assertions about refusals.

import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";

import { CosmosClient, PluginOn } from "@azure/cosmos";

// The well-known key of the emulators, which is the default key of the server.
export const KEY = "C2y6yDjf5/R+ob0N8A7Cgv30VRDJIWEHLM+4QDU5DE2nQ9nDuVTqobD4b8mGGyPMbIZnqyMsEcaGQy67XIw/Jw==";

export const endpoints = {
  plain: process.env.INTEROP_PLAIN,
  ranges: process.env.INTEROP_RANGES,
  strict: process.env.INTEROP_STRICT,
  throttled: process.env.INTEROP_THROTTLED,
  tokens: process.env.INTEROP_TOKENS,
};

const clients = new Map();

// The shared client of a server, with the SDK's defaults.
export function client(server = "plain") {
  if (!clients.has(server)) clients.set(server, newClient(server));
  return clients.get(server);
}

export function newClient(server = "plain", options = {}) {
  return new CosmosClient({ endpoint: endpoints[server], key: KEY, ...options });
}

// A client that records its requests and their answers in `exchanges`. An exchange has the
// headers that were `sent`, and those that came back in `got`.
export function recordingClient(server = "plain", options = {}) {
  const exchanges = [];
  const plugin = async (request, diagnostics, next) => {
    const exchange = { method: request.method, path: request.path, sent: { ...request.headers } };
    exchanges.push(exchange);
    try {
      const response = await next(request);
      Object.assign(exchange, { status: response.code, got: response.headers });
      return response;
    } catch (error) {
      Object.assign(exchange, { status: error.code, substatus: error.substatus, got: error.headers });
      throw error;
    }
  };
  const plugins = [{ on: PluginOn.request, plugin }];
  return { client: newClient(server, { ...options, plugins }), exchanges };
}

const databases = new Map();

// The database for the containers of all checks of a server.
export async function database(server = "plain") {
  if (!databases.has(server)) {
    databases.set(server, client(server).databases.create({ id: unique("checks") }));
  }
  return (await databases.get(server)).database;
}

// A new container, partitioned by /pk by default.
export async function freshContainer(server = "plain", definition = {}, options = {}) {
  const parent = await database(server);
  const body = { id: unique("c"), partitionKey: { paths: ["/pk"] }, ...definition };
  const { container } = await parent.containers.create(body, options);
  return container;
}

// The same container, accessed through another client.
export function containerThrough(other, container) {
  return other.database(container.database.id).container(container.id);
}

// A fixture that checks share: the first call runs `make`, and all calls return its result.
export function shared(make) {
  let made;
  return () => (made ??= make());
}

export function unique(prefix) {
  return `${prefix}-${randomUUID().slice(0, 8)}`;
}

// Creates the items, several at a time.
export async function createAll(container, items) {
  const IN_FLIGHT_MAX = 8;
  const waiting = [...items];
  const worker = async () => {
    for (let item = waiting.shift(); item; item = waiting.shift()) await container.items.create(item);
  };
  await Promise.all(Array.from({ length: IN_FLIGHT_MAX }, worker));
}

// All results of a query.
export async function queryAll(container, query, options) {
  const { resources } = await container.items.query(query, options).fetchAll();
  return resources;
}

// The pages of a query, as one array per page.
export async function pages(container, query, options) {
  const iterator = container.items.query(query, options);
  const answer = [];
  while (iterator.hasMoreResults()) {
    const { resources } = await iterator.fetchNext();
    if (resources !== undefined) answer.push(resources);
  }
  return answer;
}

// The members of an item without those that the service adds.
export function userMembers(item) {
  const { _rid, _self, _etag, _attachments, _ts, _lsn, ...rest } = item;
  return rest;
}

export function ids(items) {
  return items.map((item) => item.id);
}

export function sorted(values) {
  return [...values].sort();
}

// Asserts that the promise is refused with this status (and sub-status), and returns the error.
export async function refused(status, promise, { substatus, message } = {}) {
  let answer;
  try {
    answer = await promise;
  } catch (error) {
    assert.equal(error.code, status, `refused with ${error.code}: ${error.message}`);
    if (substatus !== undefined) assert.equal(error.substatus, substatus);
    if (message !== undefined) assert.match(error.body?.message ?? error.message, message);
    return error;
  }
  assert.fail(`accepted with ${answer?.statusCode}, expected ${status}`);
}

// Waits until `probe` returns true, for things that only need time.
export async function waitUntil(probe, { limitMs = 10_000, intervalMs = 50 } = {}) {
  const deadline = Date.now() + limitMs;
  for (;;) {
    if (await probe()) return;
    assert.ok(Date.now() < deadline, `not within ${limitMs} ms`);
    await new Promise((resolve) => setTimeout(resolve, intervalMs));
  }
}
