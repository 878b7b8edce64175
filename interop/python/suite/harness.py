"""Checks and worlds.

A check is a function whose name is a claim. It takes one `World` and raises an
exception if the claim does not hold. A world is one running server with one client
and one database. All checks of that server share the world. Most checks create their
own containers, so that no check sees the items of another. Some checks that only
read share a container.
"""

import itertools
import json
import os
import ssl
import time
import urllib.error
import urllib.request
from dataclasses import dataclass, field

from azure.cosmos import CosmosClient, PartitionKey, exceptions

WELL_KNOWN_KEY = "C2y6yDjf5/R+ob0N8A7Cgv30VRDJIWEHLM+4QDU5DE2nQ9nDuVTqobD4b8mGGyPMbIZnqyMsEcaGQy67XIw/Jw=="

# The longest wait for something that only needs time, such as an expiry or the next
# second. It is long, because the machine may be busy.
WAIT_SECONDS_MAX = 10.0
# The pause between two polls.
POLL_SECONDS = 0.05

CHECKS = []


@dataclass
class Check:
    name: str
    run: object
    # The server of the check: "one", "four" or "strict" (see `runner`), or "own" if the
    # check starts its own server.
    server: str


def check(function=None, *, on="one"):
    """Registers a check that runs against the server called `on`."""

    def register(function):
        area = function.__module__.rsplit(".", 1)[-1]
        CHECKS.append(Check(f"{area}.{function.__name__}", function, on))
        return function

    return register(function) if function else register


class Skip(Exception):
    """Raised if a check cannot be run here, with the reason."""


_names = itertools.count()


def unique(prefix):
    """A name that no other check and no earlier run on the same server uses."""
    return f"{prefix}-{os.getpid()}-{next(_names)}-{time.time_ns() % 10**9}"


@dataclass
class World:
    """One running server, with a client and a database."""

    endpoint: str
    key: str
    # The file with the CA of the server, if it is known.
    ca_path: str | None = None
    client: CosmosClient = field(init=False)

    def __post_init__(self):
        self.client = self.new_client()
        self._database = None

    @property
    def database(self):
        if self._database is None:
            self._database = self.client.create_database(unique("interop"))
        return self._database

    def new_client(self, **options):
        return CosmosClient(self.endpoint, options.pop("key", self.key), **options)

    def container(self, *paths, **options):
        """A new container, partitioned by `/pk` by default."""
        return new_container(self.database, *paths, **options)

    def same_container(self, container, client):
        """The same container through another client, which shares no cache."""
        return client.get_database_client(self.database.id).get_container_client(container.id)

    def manage(self, method, path, body=None):
        """Sends a request to the management interface and returns the JSON of the answer."""
        request = urllib.request.Request(
            f"{self.endpoint}_perihelion/{path}",
            method=method,
            data=None if body is None else json.dumps(body).encode(),
        )
        try:
            with urllib.request.urlopen(request, context=ssl._create_unverified_context()) as answer:
                return json.loads(answer.read())
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{method} {path} gave {error.code}: {error.read().decode()}") from error

    def split(self, container, range_id=None):
        """Splits one range of a container and returns the ids of its children."""
        body = {"database": self.database.id, "container": container.id}
        if range_id is not None:
            body["range"] = range_id
        return self.manage("POST", "split", body)["children"]

    def close(self):
        if self._database is not None:
            self.client.delete_database(self._database)
        self.client.__exit__(None, None, None)


def new_container(database, *paths, **options):
    """A new container. Several paths make a hierarchical partition key."""
    paths = list(paths) or ["/pk"]
    if len(paths) == 1:
        key = PartitionKey(path=paths[0])
    else:
        key = PartitionKey(path=paths, kind="MultiHash")
    options.setdefault("partition_key", key)
    return database.create_container(unique("c"), **options)


class Answers:
    """Collects the raw answers of a call: pass `raw_response_hook=answers`."""

    def __init__(self):
        self.all = []

    def __call__(self, response):
        self.all.append(response.http_response)

    @property
    def status(self):
        return self.all[-1].status_code

    @property
    def headers(self):
        return self.all[-1].headers

    @property
    def statuses(self):
        return [answer.status_code for answer in self.all]


class expect_error:
    """A block that has to be refused with this status. If they are given, the sub-status
    must be this one, and the message must contain the text:

        with expect_error(404) as error: ...
        error.value.message
    """

    def __init__(self, status, sub_status=None, text=None):
        self.status, self.sub_status, self.text = status, sub_status, text
        self.value = None

    def __enter__(self):
        return self

    def __exit__(self, kind, error, _trace):
        if kind is None:
            raise AssertionError(f"nothing was refused; expected status {self.status}")
        if not isinstance(error, (exceptions.CosmosHttpResponseError, exceptions.CosmosBatchOperationError)):
            return False
        self.value = error
        if error.status_code != self.status:
            raise AssertionError(f"status {error.status_code}, expected {self.status}: {error}") from error
        if self.sub_status is not None and (error.sub_status or 0) != self.sub_status:
            raise AssertionError(
                f"sub-status {error.sub_status}, expected {self.sub_status}: {error}"
            ) from error
        if self.text is not None and self.text not in str(error):
            raise AssertionError(f"the message does not say {self.text!r}: {error}") from error
        return True


def equal(found, expected):
    """Asserts equality. A bool is never equal to a number (in Python 1 == True)."""
    assert_same(found, expected, "")


def assert_same(found, expected, place):
    if isinstance(expected, dict) and isinstance(found, dict):
        if found.keys() != expected.keys():
            raise AssertionError(f"members{place}: {sorted(found)} instead of {sorted(expected)}")
        for name, value in expected.items():
            assert_same(found[name], value, f"{place}.{name}")
    elif isinstance(expected, (list, tuple)) and isinstance(found, (list, tuple)):
        if len(found) != len(expected):
            raise AssertionError(f"{len(found)} elements{place} instead of {len(expected)}: {found!r} / {expected!r}")
        for index, (one, other) in enumerate(zip(found, expected)):
            assert_same(one, other, f"{place}[{index}]")
    elif isinstance(expected, bool) != isinstance(found, bool) or found != expected:
        raise AssertionError(f"value{place}: {found!r} instead of {expected!r}")


def same_elements(found, expected):
    """Asserts equality of two lists of JSON values in any order."""
    as_key = lambda value: json.dumps(value, sort_keys=True)
    equal(sorted(found, key=as_key), sorted(expected, key=as_key))


def user_members(item):
    """The members of an item without those that the service adds."""
    return {name: value for name, value in item.items() if not name.startswith("_")}


def ids(items):
    return [item["id"] for item in items]


def rows(container, query, *, pk=None, parameters=None, **options):
    """All rows of a query: in the partition `pk`, or in all partitions if `pk` is None."""
    if pk is None:
        options.setdefault("enable_cross_partition_query", True)
    else:
        options["partition_key"] = pk
    if parameters is not None:
        parameters = [{"name": name, "value": value} for name, value in parameters.items()]
    return list(container.query_items(query, parameters=parameters, **options))


def pages(paged, continuation=None):
    """Every page of a paged answer, with the continuation token after the page."""
    iterator = paged.by_page(continuation)
    for page in iterator:
        yield list(page), iterator.continuation_token


def eventually(condition, what):
    """Waits until `condition()` is true, for things that only need time. `what` describes
    the condition."""
    deadline = time.monotonic() + WAIT_SECONDS_MAX
    while not condition():
        assert time.monotonic() < deadline, f"not within {WAIT_SECONDS_MAX} s: {what}"
        time.sleep(POLL_SECONDS)
