"""Time to live: an item is gone when its time to live is over."""

from .harness import check, equal, eventually, expect_error, ids, rows


def is_gone(container, name, key="p"):
    return name not in rows(container, "SELECT VALUE c.id FROM c", pk=key)


@check
def items_expire_by_their_own_ttl_and_by_the_containers(world):
    container = world.container(default_ttl=1)
    equal(container.read()["defaultTtl"], 1)
    container.create_item({"id": "default", "pk": "p"})
    container.create_item({"id": "never", "pk": "p", "ttl": -1})
    container.create_item({"id": "later", "pk": "p", "ttl": 1000})
    eventually(lambda: is_gone(container, "default"), "the item expires")
    with expect_error(404, 0, "Entity with the specified id does not exist in the system."):
        container.read_item("default", "p")
    equal(rows(container, "SELECT VALUE c.id FROM c ORDER BY c.id", pk="p"), ["later", "never"])
    equal(rows(container, "SELECT VALUE COUNT(1) FROM c"), [2])
    equal(ids(container.query_items_change_feed(start_time="Beginning")), ["never", "later"])
    equal(container.read_item("later", "p")["ttl"], 1000)


@check
def the_id_of_an_expired_item_can_be_used_again(world):
    container = world.container(default_ttl=-1)
    first = container.create_item({"id": "a", "pk": "p", "ttl": 1})
    container.create_item({"id": "b", "pk": "p"})
    eventually(lambda: is_gone(container, "a"), "the item expires")
    with expect_error(404):
        container.replace_item("a", {"id": "a", "pk": "p"})
    second = container.create_item({"id": "a", "pk": "p"})
    assert second["_rid"] != first["_rid"]
    equal(rows(container, "SELECT VALUE c.id FROM c ORDER BY c.id", pk="p"), ["a", "b"])


@check
def without_a_container_ttl_nothing_expires(world):
    container = world.container()
    item = container.create_item({"id": "a", "pk": "p", "ttl": 1})
    watched = world.container(default_ttl=1)
    watched.create_item({"id": "w", "pk": "p"})
    eventually(lambda: is_gone(watched, "w"), "a second passes")
    equal(container.read_item("a", "p")["_etag"], item["_etag"])


@check
def an_invalid_ttl_is_refused(world):
    container = world.container(default_ttl=-1)
    for ttl in (0, -2, "soon"):
        with expect_error(400):
            container.create_item({"id": "a", "pk": "p", "ttl": ttl})
