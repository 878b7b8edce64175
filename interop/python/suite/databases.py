"""Databases: create, read, list, query, delete."""

from .harness import check, equal, expect_error, new_container, unique


@check
def a_created_database_has_the_service_members(world):
    name = unique("d")
    database = world.client.create_database(name)
    body = database.read()
    equal(list(body), ["id", "_rid", "_self", "_etag", "_colls", "_users", "_ts"])
    equal(body["id"], name)
    equal(body["_self"], f"dbs/{body['_rid']}/")
    equal(body["_colls"], "colls/")
    equal(body["_users"], "users/")
    assert body["_etag"].startswith('"') and body["_etag"].endswith('"'), body["_etag"]
    equal(body.get_response_headers()["etag"], body["_etag"])
    world.client.delete_database(name)


@check
def a_second_database_with_the_same_name_is_refused(world):
    name = unique("d")
    world.client.create_database(name)
    with expect_error(409, 0, "Resource with specified id, name, or unique index already exists."):
        world.client.create_database(name)
    world.client.delete_database(name)


@check
def create_if_not_exists_creates_one_database(world):
    name = unique("d")
    first = world.client.create_database_if_not_exists(name).read()
    second = world.client.create_database_if_not_exists(name).read()
    equal(second["_rid"], first["_rid"])
    equal(second["_etag"], first["_etag"])
    world.client.delete_database(name)


@check
def databases_are_listed_and_queried(world):
    names = sorted(unique("listed") for _ in range(3))
    for name in names:
        world.client.create_database(name)
    listed = [entry["id"] for entry in world.client.list_databases()]
    equal(sorted(name for name in listed if name in names), names)
    found = world.client.query_databases(
        "SELECT * FROM root r WHERE r.id = @id", parameters=[{"name": "@id", "value": names[1]}]
    )
    equal([entry["id"] for entry in found], [names[1]])
    for name in names:
        world.client.delete_database(name)


@check
def listed_databases_come_in_pages(world):
    names = {unique("paged") for _ in range(5)}
    for name in names:
        world.client.create_database(name)
    pages = [list(page) for page in world.client.list_databases(max_item_count=2).by_page()]
    assert all(1 <= len(page) <= 2 for page in pages), [len(page) for page in pages]
    seen = [entry["id"] for page in pages for entry in page]
    equal(len(seen), len(set(seen)))
    assert names <= set(seen), (names, seen)
    for name in names:
        world.client.delete_database(name)


@check
def a_deleted_database_is_gone_with_its_containers(world):
    database = world.client.create_database(unique("d"))
    container = new_container(database)
    container.create_item({"id": "a", "pk": "p"})
    world.client.delete_database(database)
    with expect_error(404, 0):
        world.client.get_database_client(database.id).read()
    with expect_error(404):
        container.read_item("a", "p")
    with expect_error(404, 0):
        world.client.delete_database(database.id)


@check
def a_database_name_may_have_spaces_and_letters_of_any_language(world):
    for name in (unique("with spaces and 'quotes'"), unique("データベース-ß-🚀"), unique("per%cent+plus&amp")):
        database = world.client.create_database(name)
        equal(database.read()["id"], name)
        equal(world.client.get_database_client(name).read()["id"], name)
        world.client.delete_database(name)
