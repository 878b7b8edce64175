"""Users and permissions, and clients that have only the token of a permission."""

from azure.cosmos import CosmosClient

from .harness import check, equal, expect_error, ids, rows, unique


def permitted(world, container, mode, **members):
    """The token of a new permission on a container."""
    user = world.database.create_user({"id": unique("user")})
    resource = members.pop("resource", f"dbs/{world.database.id}/colls/{container.id}")
    permission = user.create_permission({"id": "p", "permissionMode": mode, "resource": resource, **members})
    return resource, permission.properties["_token"]


def through(world, container, tokens):
    """The container, through a client that has these tokens and no key."""
    client = CosmosClient(world.endpoint, tokens, connection_verify=world.ca_path)
    return client.get_database_client(world.database.id).get_container_client(container.id)


@check
def users_are_created_listed_queried_replaced_and_deleted(world):
    database = world.database
    name, renamed = unique("user"), unique("user")
    created = database.create_user({"id": name})
    with expect_error(409):
        database.create_user({"id": name})
    assert name in ids(database.list_users())
    found = database.query_users("SELECT * FROM u WHERE u.id = @id", parameters=[{"name": "@id", "value": name}])
    equal(ids(found), [name])
    properties = created.read()
    properties["id"] = renamed
    equal(database.replace_user(name, properties).id, renamed)
    with expect_error(404):
        database.get_user_client(name).read()
    equal(database.upsert_user({"id": renamed}).id, renamed)
    database.delete_user(renamed)
    assert renamed not in ids(database.list_users())


@check
def permissions_are_created_listed_queried_replaced_and_deleted(world):
    user = world.database.create_user({"id": unique("user")})
    # The resource of a permission need not exist.
    body = {"id": "one", "permissionMode": "read", "resource": "dbs/AQAAAA==/colls/AQAAAJ0fgTc="}
    created = user.create_permission(body)
    assert created.properties["_token"].startswith("type=resource&ver=1&sig=")
    equal(ids(user.list_permissions()), ["one"])
    found = user.query_permissions("SELECT * FROM p WHERE p.id = @id", parameters=[{"name": "@id", "value": "one"}])
    equal(ids(found), ["one"])
    properties = {**created.properties, "id": "two", "permissionMode": "all"}
    equal(user.replace_permission("one", properties).permission_mode, "all")
    equal(user.get_permission("two").permission_mode, "all")
    equal(user.upsert_permission({**body, "id": "three"}).id, "three")
    user.delete_permission("two")
    with expect_error(404):
        user.get_permission("two")
    equal(ids(user.list_permissions()), ["three"])


@check
def a_client_with_a_read_token_reads_and_cannot_write(world):
    container = world.container("/id")
    container.create_item({"id": "a", "n": 1})
    link, token = permitted(world, container, "read")
    reader = through(world, container, {link: token})
    equal(reader.read_item("a", "a")["n"], 1)
    equal(ids(reader.read_all_items()), ["a"])
    equal(ids(rows(reader, "SELECT * FROM c")), ["a"])
    with expect_error(403):
        reader.create_item({"id": "b"})
    with expect_error(403):
        reader.delete_item("a", "a")
    equal(ids(container.read_all_items()), ["a"])


@check
def a_client_with_the_token_of_a_partition_key_is_kept_to_that_key(world):
    container = world.container("/key")
    container.create_item({"id": "other", "key": 2})
    link, token = permitted(world, container, "all", resourcePartitionKey=[1])
    writer = through(world, container, {link: token})
    writer.create_item({"id": "own", "key": 1})
    equal(ids(rows(writer, "SELECT * FROM c", pk=1)), ["own"])
    with expect_error(403):
        writer.create_item({"id": "more", "key": 2})
    with expect_error(403):
        writer.read_item("other", 2)
    writer.delete_item("own", 1)
    equal(ids(container.read_all_items()), ["other"])


@check
def a_client_with_the_token_of_a_document_can_delete_it(world):
    container = world.container("/id")
    container.create_item({"id": "a"})
    container.create_item({"id": "b"})
    link = f"dbs/{world.database.id}/colls/{container.id}/docs/a"
    _, token = permitted(world, container, "all", resource=link)
    owner = through(world, container, {link: token})
    equal(owner.read_item("a", "a")["id"], "a")
    owner.delete_item("a", "a")
    equal(ids(container.read_all_items()), ["b"])


@check
def a_client_without_a_key_and_without_a_token_is_refused(world):
    with expect_error(401):
        CosmosClient(world.endpoint, {}, connection_verify=world.ca_path)
