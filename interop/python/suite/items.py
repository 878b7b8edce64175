"""Single items: every operation, the members that the service adds, and unusual
text, numbers, ids and keys."""

import re
import time

from azure.cosmos import partition_key as keys

from .harness import Answers, check, equal, expect_error, ids, rows, same_elements, user_members

ETAG = re.compile(r'^"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"$')
ITEM_BYTES_MAX = 2 * 1024 * 1024


@check
def a_created_item_comes_back_with_system_members(world):
    container = world.container()
    answers = Answers()
    sent = {"id": "a", "pk": "p", "name": "Ada", "tags": ["x", {"y": None}]}
    created = container.create_item(sent, raw_response_hook=answers)
    equal(answers.status, 201)
    equal(list(created), [*sent, "_rid", "_self", "_etag", "_attachments", "_ts"])
    equal(user_members(created), sent)
    assert ETAG.match(created["_etag"]), created["_etag"]
    equal(created["_attachments"], "attachments/")
    properties = container.read()
    equal(created["_self"], f"{properties['_self']}docs/{created['_rid']}/")
    assert abs(created["_ts"] - time.time()) < 60, created["_ts"]


@check
def an_answer_carries_the_headers_that_sdks_read(world):
    container = world.container()
    created = container.create_item({"id": "a", "pk": "p"})
    headers = created.get_response_headers()
    equal(headers["etag"], created["_etag"])
    assert 5 < float(headers["x-ms-request-charge"]) < 7, headers["x-ms-request-charge"]
    assert re.match(r"^0:-1#\d+$", headers["x-ms-session-token"]), headers["x-ms-session-token"]
    equal(headers["x-ms-alt-content-path"], f"dbs/{world.database.id}/colls/{container.id}")
    equal(headers["x-ms-content-path"], container.read()["_rid"])
    assert re.match(r"^[0-9a-f-]{36}$", headers["x-ms-activity-id"]), headers["x-ms-activity-id"]


@check
def an_item_is_read_as_it_was_created(world):
    container = world.container()
    created = container.create_item({"id": "a", "pk": "p", "n": 1})
    answers = Answers()
    found = container.read_item("a", "p", raw_response_hook=answers)
    equal(dict(found), dict(created))
    equal(answers.status, 200)
    equal(float(answers.headers["x-ms-request-charge"]), 1.0)
    equal(answers.headers["etag"], created["_etag"])
    equal(answers.headers["x-ms-item-lsn"], answers.headers["lsn"])


@check
def an_id_is_generated_on_request(world):
    container = world.container()
    created = container.create_item({"pk": "p"}, enable_automatic_id_generation=True)
    assert re.match(r"^[0-9a-f-]{36}$", created["id"]), created["id"]
    equal(container.read_item(created["id"], "p")["_etag"], created["_etag"])


@check
def an_item_without_id_is_refused(world):
    container = world.container()
    with expect_error(400, text="'id; ' - are missing"):
        container.create_item({"pk": "p"})


@check
def a_second_item_with_the_same_id_is_refused_in_its_partition_only(world):
    container = world.container()
    first = container.create_item({"id": "a", "pk": "p", "n": 1})
    with expect_error(409, 0, "Entity with the specified id already exists in the system."):
        container.create_item({"id": "a", "pk": "p", "n": 2})
    container.create_item({"id": "a", "pk": "q", "n": 3})
    equal(container.read_item("a", "p")["_etag"], first["_etag"])
    equal(container.read_item("a", "q")["n"], 3)


@check
def a_replaced_item_keeps_its_rid_and_loses_what_was_not_sent(world):
    container = world.container()
    created = container.create_item({"id": "a", "pk": "p", "n": 1, "old": True})
    answers = Answers()
    replaced = container.replace_item("a", {"id": "a", "pk": "p", "n": 2}, raw_response_hook=answers)
    equal(answers.status, 200)
    equal(user_members(replaced), {"id": "a", "pk": "p", "n": 2})
    equal(replaced["_rid"], created["_rid"])
    assert replaced["_etag"] != created["_etag"]
    equal(dict(container.read_item("a", "p")), dict(replaced))


@check
def replacing_with_another_partition_key_finds_nothing(world):
    container = world.container()
    container.create_item({"id": "a", "pk": "p"})
    with expect_error(404):
        container.replace_item("a", {"id": "a", "pk": "q"})
    with expect_error(404):
        container.replace_item("b", {"id": "b", "pk": "p"})
    equal(container.read_item("a", "p")["pk"], "p")


@check
def an_upsert_creates_with_201_and_replaces_with_200(world):
    container = world.container()
    answers = Answers()
    first = container.upsert_item({"id": "a", "pk": "p", "n": 1}, raw_response_hook=answers)
    second = container.upsert_item({"id": "a", "pk": "p", "m": 2}, raw_response_hook=answers)
    equal([status for status in answers.statuses if status in (200, 201)][-2:], [201, 200])
    equal(user_members(second), {"id": "a", "pk": "p", "m": 2})
    equal(second["_rid"], first["_rid"])
    assert second["_etag"] != first["_etag"]


@check
def a_deleted_item_is_gone(world):
    container = world.container()
    created = container.create_item({"id": "a", "pk": "p"})
    answers = Answers()
    equal(container.delete_item(created, "p", raw_response_hook=answers), None)
    equal(answers.status, 204)
    with expect_error(404, 0, "Entity with the specified id does not exist in the system."):
        container.read_item("a", "p")
    with expect_error(404, 0):
        container.delete_item("a", "p")
    again = container.create_item({"id": "a", "pk": "p"})
    assert again["_rid"] != created["_rid"]


@check
def a_missing_item_is_not_found_in_another_partition(world):
    container = world.container()
    container.create_item({"id": "a", "pk": "p"})
    with expect_error(404, 0) as error:
        container.read_item("a", "q")
    equal(float(error.value.headers["x-ms-request-charge"]), 1.0)


@check
def a_write_may_ask_for_no_body(world):
    container = world.container()
    created = container.create_item({"id": "a", "pk": "p"}, no_response=True)
    equal(dict(created), {})
    etag = created.get_response_headers()["etag"]
    equal(container.read_item("a", "p")["_etag"], etag)
    replaced = container.replace_item("a", {"id": "a", "pk": "p", "n": 1}, no_response=True)
    upserted = container.upsert_item({"id": "a", "pk": "p", "n": 2}, no_response=True)
    patched = container.patch_item("a", "p", [{"op": "incr", "path": "/n", "value": 1}], no_response=True)
    equal([dict(replaced), dict(upserted), dict(patched)], [{}, {}, {}])
    found = container.read_item("a", "p")
    equal(found["n"], 3)
    equal(found["_etag"], patched.get_response_headers()["etag"])


@check
def a_client_may_ask_for_no_bodies_at_all(world):
    container = world.container()
    quiet = world.same_container(container, world.new_client(no_response_on_write=True))
    equal(dict(quiet.create_item({"id": "a", "pk": "p"})), {})
    equal(user_members(quiet.create_item({"id": "b", "pk": "p"}, no_response=False)), {"id": "b", "pk": "p"})
    equal(user_members(quiet.read_item("a", "p")), {"id": "a", "pk": "p"})


@check
def all_items_are_read_in_pages(world):
    container = world.container()
    for n in range(7):
        container.create_item({"id": str(n), "pk": f"p{n % 3}"})
    pages = [ids(page) for page in container.read_all_items(max_item_count=3).by_page()]
    equal([len(page) for page in pages], [3, 3, 1])
    equal([name for page in pages for name in page], [str(n) for n in range(7)])


@check
def read_items_fetches_many_at_once(world):
    container = world.container()
    for n in range(30):
        container.create_item({"id": f"i{n}", "pk": f"p{n % 4}", "n": n})
    wanted = [(f"i{n}", f"p{n % 4}") for n in range(0, 30, 3)]
    found = container.read_items(items=[*wanted, ("missing", "p0"), ("i1", "p0")])
    equal(ids(found), [name for name, _ in wanted])
    assert float(found.get_response_headers()["x-ms-request-charge"]) > 0


@check
def read_items_takes_ids_that_need_escaping(world):
    container = world.container()
    names = ['quote"d', "it's", "back`tick", "日本", "a b"]
    for name in names:
        container.create_item({"id": name, "pk": name})
    equal(ids(container.read_items(items=[(name, name) for name in names])), names)


@check
def all_items_of_a_partition_are_deleted_at_once(world):
    container = world.container()
    for n in range(10):
        container.create_item({"id": str(n), "pk": "p" if n % 2 else "q"})
    container.delete_all_items_by_partition_key("p")
    equal(rows(container, "SELECT VALUE COUNT(1) FROM c", pk="p"), [0])
    equal(rows(container, "SELECT VALUE c.id FROM c", pk="q"), ["0", "2", "4", "6", "8"])


SPECIAL_IDS = [
    "with space", "plus+plus", "per%cent", "%2F", "%20", "a&b=c", "semi;colon", "comma,", "quote\"d", "it's",
    "<tag>", "{brace}", "[bracket]", "pipe|", "caret^", "back`tick", "tilde~", "at@", "dollar$", "bang!", "*star*",
    "(paren)", "colon:", "dot.dot", ".hidden", "trailing.", "...", "-", "_", "ümläut", "日本語", "🚀👩‍🚀", "e\u0301", "\u00a0nbsp",
    "0", "true", "null", "UPPER", "upper",
]


@check
def ids_may_have_every_legal_character(world):
    container = world.container()
    for name in SPECIAL_IDS:
        container.create_item({"id": name, "pk": "p"})
    for name in SPECIAL_IDS:
        equal(user_members(container.read_item(name, "p")), {"id": name, "pk": "p"})
        equal(user_members(container.replace_item(name, {"id": name, "pk": "p", "n": 1}))["id"], name)
        equal(rows(container, "SELECT VALUE c.n FROM c WHERE c.id = @id", pk="p", parameters={"@id": name}), [1])
    same_elements(rows(container, "SELECT VALUE c.id FROM c", pk="p"), SPECIAL_IDS)
    for name in SPECIAL_IDS:
        container.delete_item(name, "p")
    equal(rows(container, "SELECT * FROM c", pk="p"), [])


@check
def ids_may_be_long(world):
    container = world.container()
    for name in ("i" * 255, "i" * 1023, "é" * 255):
        container.create_item({"id": name, "pk": "p"})
        equal(container.read_item(name, "p")["id"], name)
    with expect_error(400):
        container.create_item({"id": "i" * 1024, "pk": "p"})


@check
def partition_keys_may_have_every_character(world):
    container = world.container()
    values = [*SPECIAL_IDS, "slash/slash", "back\\slash", "question?", "hash#", "", " ", "line\nfeed", "\u0000nul",
              "\u2028", "k" * 2000]
    for value in values:
        container.create_item({"id": "a", "pk": value})
    for value in values:
        equal(container.read_item("a", value)["pk"], value)
        equal(rows(container, "SELECT VALUE c.pk FROM c", pk=value), [value])
    equal(rows(container, "SELECT VALUE COUNT(1) FROM c"), [len(values)])


@check
def partition_keys_of_different_types_are_different_partitions(world):
    container = world.container()
    values = ["1", 1, 1.5, -1, 0, True, False, "true", None, "null", 2**53, -1e300]
    for place, value in enumerate(values):
        container.create_item({"id": "a", "pk": value, "place": place})
    for place, value in enumerate(values):
        key = keys.NullPartitionKeyValue if value is None else value
        equal(container.read_item("a", key)["place"], place)
    equal(container.read_item("a", 1.0)["place"], values.index(1))


@check
def an_item_without_partition_key_lives_in_a_partition_of_its_own(world):
    container = world.container()
    container.create_item({"id": "a", "pk": None, "n": "null"})
    container.create_item({"id": "a", "n": "undefined"})
    equal(container.read_item("a", keys.NonePartitionKeyValue)["n"], "undefined")
    equal(container.read_item("a", keys.NullPartitionKeyValue)["n"], "null")
    container.delete_item("a", keys.NonePartitionKeyValue)
    with expect_error(404):
        container.read_item("a", keys.NonePartitionKeyValue)
    equal(container.read_item("a", keys.NullPartitionKeyValue)["n"], "null")


@check
def text_is_stored_unchanged(world):
    container = world.container()
    texts = ["", " ", "\u0000", "\u0001\u001f", "\"\\/\b\f\n\r\t", "日本語", "🚀", "e\u0301", "\ufeffbom", "\u2028\u2029",
             "\uffff", "</script>", "${x}", "a" * 10_000]
    item = {"id": "a", "pk": "p", "texts": texts, "ключ 🔑 \"quoted\"": "value", "": "empty name"}
    container.create_item(item)
    equal(user_members(container.read_item("a", "p")), item)
    equal(rows(container, "SELECT VALUE c.texts FROM c", pk="p"), [texts])


@check
def utf8_bodies_and_escaped_bodies_store_the_same_item(world):
    container = world.container()
    compact = world.same_container(container, world.new_client(enable_compact_utf8_item_writes=True))
    item = {"id": "ü", "pk": "日本", "text": "🚀 ünï"}
    compact.create_item(item)
    equal(user_members(container.read_item("ü", "日本")), item)


@check
def a_lone_surrogate_becomes_the_replacement_character(world):
    container = world.container()
    container.create_item({"id": "a", "pk": "p", "text": "x\ud800y"})
    equal(container.read_item("a", "p")["text"], "x\ufffdy")


@check
def numbers_are_exact_to_64_bits(world):
    container = world.container()
    whole = [0, 1, -1, 2**31, 2**53, 2**53 + 1, -(2**53) - 1, 2**63 - 1, -(2**63), 2**64 - 1]
    real = [0.1, 0.30000000000000004, 1 / 3, 1.5, -2.25, 1e-7, 1e21, 1.7976931348623157e308, 5e-324, 3.141592653589793]
    container.create_item({"id": "a", "pk": "p", "whole": whole, "real": real})
    found = container.read_item("a", "p")
    equal(found["whole"], whole)
    assert all(isinstance(value, int) for value in found["whole"]), found["whole"]
    equal(found["real"], real)
    # A query returns whole numbers below 2^63 unchanged. The last number is larger.
    equal(rows(container, "SELECT VALUE c.whole FROM c", pk="p")[0][:9], whole[:9])
    equal(rows(container, "SELECT VALUE c.real FROM c", pk="p"), [real])


@check
def nested_values_and_the_order_of_members_are_stored_unchanged(world):
    container = world.container()
    nested = "leaf"
    for depth in range(60):
        nested = {"d": nested} if depth % 2 else [nested]
    item = {"id": "a", "pk": "p", "z": 1, "a": {}, "m": [], "nested": nested, "mixed": [None, True, False, 0, "", {}, []]}
    container.create_item(item)
    found = container.read_item("a", "p")
    equal(user_members(found), item)
    equal(list(user_members(found)), list(item))


@check
def an_item_may_have_almost_two_megabytes(world):
    container = world.container()
    text = "x" * (ITEM_BYTES_MAX - 2000)
    container.create_item({"id": "big", "pk": "p", "text": text})
    equal(len(container.read_item("big", "p")["text"]), len(text))
    with expect_error(413, text="Request size is too large"):
        container.create_item({"id": "bigger", "pk": "p", "text": "x" * (ITEM_BYTES_MAX + 1000)})
    with expect_error(413):
        container.upsert_item({"id": "big", "pk": "p", "text": "x" * (3 * 1024 * 1024)})
    equal(rows(container, "SELECT VALUE c.id FROM c", pk="p"), ["big"])
    equal(len(container.read_item("big", "p")["text"]), len(text))


@check
def system_members_that_a_client_sends_are_replaced(world):
    container = world.container()
    first = container.create_item({"id": "a", "pk": "p"})
    again = container.create_item({**first, "id": "b", "n": 1})
    equal(user_members(again), {"id": "b", "pk": "p", "n": 1})
    assert again["_rid"] != first["_rid"] and again["_etag"] != first["_etag"]
    equal(user_members(container.replace_item(first, {**first, "n": 2})), {"id": "a", "pk": "p", "n": 2})
