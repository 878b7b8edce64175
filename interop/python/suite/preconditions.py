"""If-Match and If-None-Match on items: an update with an old etag is refused, and an
unchanged item is not sent again."""

from azure.core import MatchConditions

from .harness import Answers, check, equal, expect_error, user_members

STALE_ETAG = '"00000000-0000-0000-0000-000000000000"'
REFUSAL_TEXT = "one of the specified precondition is not met"


def if_unmodified(etag):
    return {"etag": etag, "match_condition": MatchConditions.IfNotModified}


def if_modified(etag):
    return {"etag": etag, "match_condition": MatchConditions.IfModified}


@check
def a_replace_with_the_current_etag_is_done(world):
    container = world.container()
    created = container.create_item({"id": "a", "pk": "p", "n": 1})
    replaced = container.replace_item("a", {"id": "a", "pk": "p", "n": 2}, **if_unmodified(created["_etag"]))
    equal(replaced["n"], 2)


@check
def a_replace_with_an_old_etag_is_refused(world):
    container = world.container()
    created = container.create_item({"id": "a", "pk": "p", "n": 1})
    replaced = container.replace_item("a", {"id": "a", "pk": "p", "n": 2})
    with expect_error(412, 0, REFUSAL_TEXT):
        container.replace_item("a", {"id": "a", "pk": "p", "n": 3}, **if_unmodified(created["_etag"]))
    equal(dict(container.read_item("a", "p")), dict(replaced))


@check
def one_of_two_writers_with_the_same_etag_wins(world):
    container = world.container()
    etag = container.create_item({"id": "a", "pk": "p", "n": 0})["_etag"]
    outcomes = []
    for n in (1, 2):
        try:
            container.replace_item("a", {"id": "a", "pk": "p", "n": n}, **if_unmodified(etag))
            outcomes.append(200)
        except Exception as error:
            outcomes.append(error.status_code)
    equal(outcomes, [200, 412])
    equal(container.read_item("a", "p")["n"], 1)


@check
def an_upsert_with_an_old_etag_is_refused(world):
    container = world.container()
    created = container.create_item({"id": "a", "pk": "p", "n": 1})
    with expect_error(412):
        container.upsert_item({"id": "a", "pk": "p", "n": 2}, **if_unmodified(STALE_ETAG))
    upserted = container.upsert_item({"id": "a", "pk": "p", "n": 3}, **if_unmodified(created["_etag"]))
    equal(container.read_item("a", "p")["_etag"], upserted["_etag"])
    equal(upserted["n"], 3)


@check
def a_delete_with_an_old_etag_is_refused(world):
    container = world.container()
    created = container.create_item({"id": "a", "pk": "p"})
    with expect_error(412):
        container.delete_item("a", "p", **if_unmodified(STALE_ETAG))
    equal(user_members(container.read_item("a", "p")), {"id": "a", "pk": "p"})
    container.delete_item("a", "p", **if_unmodified(created["_etag"]))
    with expect_error(404):
        container.read_item("a", "p")


@check
def a_patch_with_an_old_etag_is_refused(world):
    container = world.container()
    created = container.create_item({"id": "a", "pk": "p", "n": 1})
    add = [{"op": "incr", "path": "/n", "value": 1}]
    with expect_error(412):
        container.patch_item("a", "p", add, **if_unmodified(STALE_ETAG))
    equal(container.patch_item("a", "p", add, **if_unmodified(created["_etag"]))["n"], 2)


@check
def a_conditional_write_of_a_missing_item_is_404_and_not_412(world):
    container = world.container()
    with expect_error(404):
        container.replace_item("a", {"id": "a", "pk": "p"}, **if_unmodified(STALE_ETAG))
    with expect_error(404):
        container.delete_item("a", "p", **if_unmodified(STALE_ETAG))


@check
def if_match_with_a_star_matches_any_existing_item(world):
    container = world.container()
    container.create_item({"id": "a", "pk": "p"})
    present = {"match_condition": MatchConditions.IfPresent}
    equal(container.replace_item("a", {"id": "a", "pk": "p", "n": 1}, **present)["n"], 1)
    with expect_error(404):
        container.replace_item("b", {"id": "b", "pk": "p"}, **present)


@check
def an_unchanged_item_is_answered_with_304_and_no_body(world):
    container = world.container()
    created = container.create_item({"id": "a", "pk": "p"})
    answers = Answers()
    found = container.read_item("a", "p", raw_response_hook=answers, **if_modified(created["_etag"]))
    equal(answers.status, 304)
    equal(dict(found), {})
    equal(answers.headers["etag"], created["_etag"])
    equal(float(answers.headers["x-ms-request-charge"]), 1.0)


@check
def a_changed_item_is_answered_in_full(world):
    container = world.container()
    created = container.create_item({"id": "a", "pk": "p"})
    replaced = container.replace_item("a", {"id": "a", "pk": "p", "n": 1})
    answers = Answers()
    found = container.read_item("a", "p", raw_response_hook=answers, **if_modified(created["_etag"]))
    equal(answers.status, 200)
    equal(dict(found), dict(replaced))


@check
def an_upsert_that_must_create_is_refused_over_an_existing_item(world):
    container = world.container()
    missing = {"match_condition": MatchConditions.IfMissing}
    equal(container.upsert_item({"id": "a", "pk": "p", "n": 1}, **missing)["n"], 1)
    with expect_error(412):
        container.upsert_item({"id": "a", "pk": "p", "n": 2}, **missing)
    equal(container.read_item("a", "p")["n"], 1)
