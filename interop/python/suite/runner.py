"""Runs the checks, area by area, each on its server."""

import importlib
import logging
import os
import sys
import time
import traceback
import warnings

import urllib3
from azure.core.exceptions import AzureError

from .harness import CHECKS, WELL_KNOWN_KEY, Skip, World
from .servers import Server, binary

AREAS = [
    "connections",
    "databases",
    "containers",
    "throughput",
    "items",
    "preconditions",
    "patches",
    "batches",
    "queries",
    "change_feeds",
    "hierarchical_keys",
    "time_to_live",
    "sessions",
    "errors",
    "scripts",
    "users",
    "partitions",
    "strict_gateway",
    "search",
    "asynchronous",
    "documentation",
]

# For each server: its options, and the variable with the endpoint of a server that is
# running already.
SERVER_KINDS = {
    "one": (["--merge-in-gateway"], "PERIHELION_ENDPOINT"),
    "four": (["--partitions", "4", "--merge-in-gateway"], "PERIHELION_ENDPOINT_FOUR"),
    "strict": (["--partitions", "4"], "PERIHELION_ENDPOINT_STRICT"),
}


class Worlds:
    """The servers and their worlds. A server is started when the first check needs it."""

    def __init__(self):
        self.given_endpoints = {name: os.environ.get(variable) for name, (_, variable) in SERVER_KINDS.items()}
        self.has_given_endpoint = any(self.given_endpoints.values())
        self.servers, self.worlds = {}, {}

    def get(self, name):
        if name == "own":
            if self.has_given_endpoint and not os.environ.get("PERIHELION_BIN"):
                raise Skip("needs PERIHELION_BIN to start a server of its own")
            return None
        if name not in self.worlds:
            self.worlds[name] = self._open(name)
        return self.worlds[name]

    def _open(self, name):
        options, variable = SERVER_KINDS[name]
        if self.has_given_endpoint:
            if not self.given_endpoints[name]:
                raise Skip(f"{variable} is not set")
            endpoint = self.given_endpoints[name].rstrip("/") + "/"
            return World(endpoint, os.environ.get("PERIHELION_KEY", WELL_KNOWN_KEY))
        server = self.servers[name] = Server(*options)
        return World(server.endpoint, WELL_KNOWN_KEY, server.ca_path)

    def close(self):
        for world in self.worlds.values():
            world.close()

    def end(self):
        for server in self.servers.values():
            server.end()

    def logs(self):
        """The logs of the servers. They are searched for panics: a panic is a failure even
        if all checks passed."""
        return {name: server.log_text() for name, server in self.servers.items()}


def main(only, is_listing):
    # At every request the SDK warns that it does not verify the certificate of localhost,
    # and it logs each retry. Both would hide the results.
    warnings.simplefilter("ignore", urllib3.exceptions.InsecureRequestWarning)
    logging.getLogger("azure").setLevel(logging.CRITICAL)
    for area in AREAS:
        importlib.import_module(f"suite.{area}")
    chosen = [check for check in CHECKS if only in check.name]
    if is_listing:
        print("\n".join(check.name for check in chosen))
        return 0
    if not any(os.environ.get(variable) for _, variable in SERVER_KINDS.values()):
        print("testing", binary(), file=sys.stderr)
    begun = time.monotonic()
    worlds = Worlds()
    try:
        passed, failed, skipped = run_all(worlds, chosen)
        worlds.close()
    finally:
        worlds.end()
    for name, log in worlds.logs().items():
        if "panicked" in log:
            failed += 1
            print(f"FAIL server.{name}_does_not_panic\n{indented(log)}")
    print(f"{time.monotonic() - begun:.1f} s", file=sys.stderr)
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    return 1 if failed or not passed else 0


def run_all(worlds, checks):
    passed = failed = skipped = 0
    for check in checks:
        begun = time.monotonic()
        try:
            check.run(worlds.get(check.server))
        except Skip as reason:
            skipped += 1
            print(f"skip {check.name}: {reason}", flush=True)
        except Exception as error:
            failed += 1
            print(f"FAIL {check.name} ({(time.monotonic() - begun) * 1000:.0f} ms)\n{indented(failure_text(error))}", flush=True)
        else:
            passed += 1
            print(f"ok   {check.name} ({(time.monotonic() - begun) * 1000:.0f} ms)", flush=True)
    return passed, failed, skipped


def failure_text(error):
    """Where and how a check failed. Frames of the SDK are left out if the error is an
    answer of the server or an assertion of the suite."""
    frames = traceback.extract_tb(error.__traceback__)[1:]
    shown = [frame for frame in frames if "/suite/" in frame.filename]
    if not isinstance(error, (AssertionError, AzureError)):
        shown = frames
    return "".join(traceback.format_list(shown)) + "".join(traceback.format_exception_only(error))


# The most characters of a failure that are shown. The message of a refusal repeats the
# service's diagnostics.
SHOWN_CHARACTERS_MAX = 2500


def indented(text):
    if len(text) > SHOWN_CHARACTERS_MAX:
        text = text[:SHOWN_CHARACTERS_MAX] + " …"
    return "\n".join("     " + line for line in text.rstrip().splitlines())
