"""Stored procedures, triggers and functions can be stored, listed, queried,
replaced and deleted. They are never run, and a request to run one is refused."""

from .harness import check, equal, expect_error, ids, rows

NOT_RUN = "not supported by this server"


@check
def stored_procedures_are_stored_but_not_run(world):
    scripts = world.container().scripts
    body = "function () { getContext().getResponse().setBody(1); }"
    created = scripts.create_stored_procedure({"id": "hello", "body": body})
    equal(created["body"], body)
    equal(scripts.get_stored_procedure("hello")["_etag"], created["_etag"])
    with expect_error(409):
        scripts.create_stored_procedure({"id": "hello", "body": body})
    scripts.replace_stored_procedure("hello", {"id": "hello", "body": "function () {}"})
    equal([entry["body"] for entry in scripts.list_stored_procedures()], ["function () {}"])
    with expect_error(400, text=NOT_RUN):
        scripts.execute_stored_procedure("hello", partition_key="p")
    scripts.delete_stored_procedure("hello")
    with expect_error(404):
        scripts.get_stored_procedure("hello")
    equal(list(scripts.list_stored_procedures()), [])


@check
def triggers_are_stored_and_a_write_that_names_one_is_refused(world):
    container = world.container()
    trigger = {"id": "t", "body": "function () {}", "triggerType": "Pre", "triggerOperation": "All"}
    created = container.scripts.create_trigger(trigger)
    equal((created["triggerType"], created["triggerOperation"]), ("Pre", "All"))
    equal(ids(container.scripts.query_triggers("SELECT * FROM c WHERE c.id = 't'")), ["t"])
    equal(ids(container.scripts.query_triggers("SELECT * FROM c WHERE c.id = 'u'")), [])
    with expect_error(400, text=NOT_RUN):
        container.create_item({"id": "a", "pk": "p"}, pre_trigger_include="t")
    equal(rows(container, "SELECT * FROM c"), [])


@check
def functions_are_stored_and_a_query_that_calls_one_is_refused(world):
    container = world.container()
    container.create_item({"id": "a", "pk": "p"})
    function = {"id": "same", "body": "function (x) { return x; }"}
    equal(container.scripts.create_user_defined_function(function)["body"], function["body"])
    equal(ids(container.scripts.list_user_defined_functions()), ["same"])
    with expect_error(400, text="runs no scripts"):
        rows(container, "SELECT VALUE udf.same(c.id) FROM c", pk="p")
    container.scripts.delete_user_defined_function("same")
    equal(ids(container.scripts.list_user_defined_functions()), [])
