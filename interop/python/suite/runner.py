"""Runs the checks: area by area, each on the server it names."""

import importlib
import logging
import os
import sys
import time
import traceback
import warnings

import urllib3
from azure.core.exceptions import AzureError

from .harness import CHECKS, WELL_KNOWN_KEY, Skip, Stage
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
    "partitions",
    "strict_gateway",
    "asynchronous",
]

# The options of each server, and the variable that names a running one.
SHAPES = {
    "one": ([], "PERIHELION_ENDPOINT"),
    "four": (["--partitions", "4"], "PERIHELION_ENDPOINT_FOUR"),
    "strict": (["--partitions", "4", "--strict-gateway"], "PERIHELION_ENDPOINT_STRICT"),
}


class Stages:
    """The servers, started when the first check asks for them."""

    def __init__(self):
        self.given = {name: os.environ.get(variable) for name, (_, variable) in SHAPES.items()}
        self.is_given = any(self.given.values())
        self.servers, self.stages = {}, {}

    def get(self, name):
        if name == "own":
            if self.is_given and not os.environ.get("PERIHELION_BIN"):
                raise Skip("needs PERIHELION_BIN to start a server of its own")
            return None
        if name not in self.stages:
            self.stages[name] = self._open(name)
        return self.stages[name]

    def _open(self, name):
        options, variable = SHAPES[name]
        if self.is_given:
            if not self.given[name]:
                raise Skip(f"{variable} is not set")
            endpoint = self.given[name].rstrip("/") + "/"
            return Stage(endpoint, os.environ.get("PERIHELION_KEY", WELL_KNOWN_KEY))
        server = self.servers[name] = Server(*options)
        return Stage(server.endpoint, WELL_KNOWN_KEY, server.ca_path)

    def close(self):
        for stage in self.stages.values():
            stage.close()

    def end(self):
        for server in self.servers.values():
            server.end()

    def complaints(self):
        """What the servers said; a panic in one is a failure whatever was answered."""
        return {name: server.complaints() for name, server in self.servers.items()}


def main(only, is_listing):
    # The SDK goes to localhost unverified on purpose and says so at every
    # request; it also logs each retry. The checks judge what comes out.
    warnings.simplefilter("ignore", urllib3.exceptions.InsecureRequestWarning)
    logging.getLogger("azure").setLevel(logging.CRITICAL)
    for area in AREAS:
        importlib.import_module(f"suite.{area}")
    chosen = [check for check in CHECKS if only in check.name]
    if is_listing:
        print("\n".join(check.name for check in chosen))
        return 0
    if not any(os.environ.get(variable) for _, variable in SHAPES.values()):
        print("testing", binary(), file=sys.stderr)
    begun = time.monotonic()
    stages = Stages()
    try:
        passed, failed, skipped = run_all(stages, chosen)
        stages.close()
    finally:
        stages.end()
    for name, said in stages.complaints().items():
        if "panicked" in said:
            failed += 1
            print(f"FAIL server.{name}_does_not_panic\n{indented(said)}")
    print(f"{time.monotonic() - begun:.1f} s", file=sys.stderr)
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    return 1 if failed or not passed else 0


def run_all(stages, checks):
    passed = failed = skipped = 0
    for check in checks:
        begun = time.monotonic()
        try:
            check.run(stages.get(check.server))
        except Skip as reason:
            skipped += 1
            print(f"skip {check.name}: {reason}", flush=True)
        except Exception as error:
            failed += 1
            print(f"FAIL {check.name} ({(time.monotonic() - begun) * 1000:.0f} ms)\n{indented(story(error))}", flush=True)
        else:
            passed += 1
            print(f"ok   {check.name} ({(time.monotonic() - begun) * 1000:.0f} ms)", flush=True)
    return passed, failed, skipped


def story(error):
    """Where in the suite a check failed, and how; the SDK's own frames only
    when the SDK itself raised something that is not an answer."""
    frames = traceback.extract_tb(error.__traceback__)[1:]
    ours = [frame for frame in frames if "/suite/" in frame.filename]
    if not isinstance(error, (AssertionError, AzureError)):
        ours = frames
    return "".join(traceback.format_list(ours)) + "".join(traceback.format_exception_only(error))


# A refusal's message repeats the service's diagnostics; its start says it all.
STORY_CHARACTERS_MAX = 2500


def indented(text):
    if len(text) > STORY_CHARACTERS_MAX:
        text = text[:STORY_CHARACTERS_MAX] + " …"
    return "\n".join("     " + line for line in text.rstrip().splitlines())
