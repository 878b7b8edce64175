"""Session tokens: every answer has one, the SDK sends it with its next requests, and the
server answers from a state that is at least as new."""

import re

from .harness import Answers, check, equal, expect_error, rows, user_members

TOKEN = re.compile(r"^(\d+):(-1)#(\d+)$")


def lsn(token):
    """The LSN in a session token."""
    return int(TOKEN.match(token).group(3))


@check
def every_write_advances_the_session_token(world):
    container = world.container()
    tokens = []
    for n in range(3):
        tokens.append(container.upsert_item({"id": "a", "pk": "p", "n": n}).get_response_headers()["x-ms-session-token"])
    lsns = [lsn(token) for token in tokens]
    equal(lsns, [lsns[0], lsns[0] + 1, lsns[0] + 2])
    read = container.read_item("a", "p").get_response_headers()
    equal(read["x-ms-session-token"], tokens[-1])


@check
def the_sdk_sends_back_the_token_it_was_given(world):
    container = world.container()
    token = container.create_item({"id": "a", "pk": "p"}).get_response_headers()["x-ms-session-token"]
    answers = Answers()
    container.read_item("a", "p", raw_response_hook=answers)
    equal(answers.all[-1].request.headers.get("x-ms-session-token"), token)


@check
def a_query_answers_with_the_current_token(world):
    container = world.container()
    token = container.create_item({"id": "a", "pk": "p"}).get_response_headers()["x-ms-session-token"]
    answers = Answers()
    equal(rows(container, "SELECT VALUE c.id FROM c", pk="p", raw_response_hook=answers), ["a"])
    equal(answers.headers["x-ms-session-token"], token)


@check
def one_client_reads_what_another_wrote_by_its_token(world):
    container = world.container()
    reader = world.same_container(container, world.new_client())
    with expect_error(404):
        reader.read_item("a", "p")
    written = container.create_item({"id": "a", "pk": "p"})
    token = written.get_response_headers()["x-ms-session-token"]
    equal(user_members(reader.read_item("a", "p", session_token=token)), {"id": "a", "pk": "p"})


@check
def a_session_token_ahead_of_the_server_is_refused(world):
    container = world.container()
    token = container.create_item({"id": "a", "pk": "p"}).get_response_headers()["x-ms-session-token"]
    future = f"0:-1#{lsn(token) + 1000}"
    with expect_error(404, 1002):
        container.read_item("a", "p", session_token=future)
    with expect_error(404, 1002):
        rows(container, "SELECT * FROM c", pk="p", session_token=future)


@check
def a_broken_token_is_refused(world):
    container = world.container()
    container.create_item({"id": "a", "pk": "p"})
    with expect_error(400):
        container.read_item("a", "p", session_token="0:nonsense")


@check(on="four")
def every_range_has_a_token_of_its_own(world):
    container = world.container()
    ranges = set()
    for n in range(40):
        token = container.create_item({"id": str(n), "pk": f"p{n}"}).get_response_headers()["x-ms-session-token"]
        assert TOKEN.match(token), token
        ranges.add(TOKEN.match(token).group(1))
    equal(sorted(ranges), ["0", "1", "2", "3"])
    for n in range(40):
        equal(container.read_item(str(n), f"p{n}")["pk"], f"p{n}")
    equal(rows(container, "SELECT VALUE COUNT(1) FROM c"), [40])
