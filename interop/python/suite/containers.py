"""Containers: the default values of their definitions, replace, lists, unique keys, and
a container that is recreated while a client still knows the old one."""

from azure.cosmos import PartitionKey

from .harness import check, equal, expect_error, ids, new_container, rows, unique, user_members

ETAG_PATH = {"path": '/"_etag"/?'}


@check
def a_new_container_has_its_definition_filled_in(world):
    container = world.container()
    body = container.read()
    equal(body["partitionKey"], {"paths": ["/pk"], "kind": "Hash", "version": 2})
    equal(
        body["indexingPolicy"],
        {
            "indexingMode": "consistent",
            "automatic": True,
            "includedPaths": [{"path": "/*"}],
            "excludedPaths": [ETAG_PATH],
        },
    )
    equal(
        body["conflictResolutionPolicy"],
        {"mode": "LastWriterWins", "conflictResolutionPath": "/_ts", "conflictResolutionProcedure": ""},
    )
    equal(body["geospatialConfig"], {"type": "Geography"})
    equal(body["_self"].split("/")[:1] + body["_self"].split("/")[2:3], ["dbs", "colls"])
    for member, value in (("_docs", "docs/"), ("_sprocs", "sprocs/"), ("_conflicts", "conflicts/")):
        equal(body[member], value)


@check
def a_second_container_with_the_same_name_is_refused(world):
    container = world.container()
    with expect_error(409, 0):
        world.database.create_container(container.id, partition_key=PartitionKey(path="/other"))
    equal(container.read()["partitionKey"]["paths"], ["/pk"])


@check
def create_if_not_exists_creates_one_container(world):
    name = unique("c")
    key = PartitionKey(path="/pk")
    first = world.database.create_container_if_not_exists(name, partition_key=key).read()
    second = world.database.create_container_if_not_exists(name, partition_key=key).read()
    equal(second["_rid"], first["_rid"])


@check
def containers_are_listed_and_queried(world):
    database = world.client.create_database(unique("d"))
    names = sorted(new_container(database).id for _ in range(3))
    equal(sorted(entry["id"] for entry in database.list_containers()), names)
    pages = [[entry["id"] for entry in page] for page in database.list_containers(max_item_count=2).by_page()]
    equal([len(page) for page in pages], [2, 1])
    equal(sorted(name for page in pages for name in page), names)
    found = database.query_containers(
        "SELECT * FROM root r WHERE r.id = @id", parameters=[{"name": "@id", "value": names[2]}]
    )
    equal([entry["id"] for entry in found], [names[2]])
    world.client.delete_database(database)


@check
def a_deleted_container_is_gone(world):
    container = world.container()
    container.create_item({"id": "a", "pk": "p"})
    world.database.delete_container(container)
    with expect_error(404):
        container.read()
    with expect_error(404, 0, "Resource Not Found"):
        world.database.delete_container(container.id)


@check
def a_client_indexing_policy_is_kept(world):
    policy = {
        "indexingMode": "consistent",
        "automatic": True,
        "includedPaths": [{"path": "/name/?"}, {"path": "/tags/[]/?"}],
        "excludedPaths": [{"path": "/*"}],
        "compositeIndexes": [
            [{"path": "/name", "order": "ascending"}, {"path": "/age", "order": "descending"}]
        ],
        "spatialIndexes": [{"path": "/place/*", "types": ["Point", "Polygon"]}],
    }
    kept = world.container(indexing_policy=policy).read()["indexingPolicy"]
    equal(kept["includedPaths"], policy["includedPaths"])
    equal(kept["excludedPaths"], [{"path": "/*"}, ETAG_PATH])
    equal(kept["compositeIndexes"], policy["compositeIndexes"])
    equal(kept["spatialIndexes"][0]["path"], "/place/*")


@check
def queries_do_not_depend_on_what_is_indexed(world):
    policy = {"indexingMode": "none", "automatic": False}
    container = world.container(indexing_policy=policy)
    equal(container.read()["indexingPolicy"]["indexingMode"], "none")
    for n in range(5):
        container.create_item({"id": str(n), "pk": "p", "n": n})
    found = rows(container, "SELECT * FROM c WHERE c.n >= 3", pk="p", enable_scan_in_query=True)
    equal(ids(found), ["3", "4"])


@check
def a_container_is_replaced(world):
    container = world.container()
    before = container.read()
    policy = {"indexingMode": "consistent", "automatic": True, "includedPaths": [{"path": "/*"}],
              "excludedPaths": [{"path": "/big/*"}]}
    world.database.replace_container(
        container, partition_key=PartitionKey(path="/pk"), default_ttl=100, indexing_policy=policy
    )
    after = container.read()
    equal(after["defaultTtl"], 100)
    equal(after["indexingPolicy"]["excludedPaths"], [{"path": "/big/*"}, ETAG_PATH])
    equal(after["_rid"], before["_rid"])
    assert after["_etag"] != before["_etag"]
    world.database.replace_container(container, partition_key=PartitionKey(path="/pk"))
    assert "defaultTtl" not in container.read()


@check
def the_partition_key_of_a_container_cannot_be_replaced(world):
    container = world.container()
    with expect_error(400):
        world.database.replace_container(container, partition_key=PartitionKey(path="/other"))
    equal(container.read()["partitionKey"]["paths"], ["/pk"])


@check
def replacing_a_missing_container_is_not_found(world):
    with expect_error(404, 0):
        world.database.replace_container(unique("none"), partition_key=PartitionKey(path="/pk"))


UNIQUE_EMAIL = {"uniqueKeys": [{"paths": ["/email"]}, {"paths": ["/first", "/last"]}]}


@check
def unique_keys_hold_within_a_partition_only(world):
    container = world.container(unique_key_policy=UNIQUE_EMAIL)
    equal(container.read()["uniqueKeyPolicy"]["uniqueKeys"][1]["paths"], ["/first", "/last"])
    container.create_item({"id": "1", "pk": "p", "email": "a@x", "first": "A", "last": "B"})
    with expect_error(409, text="Entity with the specified id already exists in the system."):
        container.create_item({"id": "2", "pk": "p", "email": "a@x", "first": "C", "last": "D"})
    with expect_error(409):
        container.upsert_item({"id": "2", "pk": "p", "email": "b@x", "first": "A", "last": "B"})
    container.create_item({"id": "2", "pk": "p", "email": "b@x", "first": "A", "last": "C"})
    container.create_item({"id": "1", "pk": "q", "email": "a@x", "first": "A", "last": "B"})
    equal(rows(container, "SELECT VALUE COUNT(1) FROM c", pk="p"), [2])


@check
def a_unique_value_is_free_again_after_replace_and_delete(world):
    container = world.container(unique_key_policy={"uniqueKeys": [{"paths": ["/email"]}]})
    container.create_item({"id": "1", "pk": "p", "email": "a"})
    container.replace_item("1", {"id": "1", "pk": "p", "email": "b"})
    container.create_item({"id": "2", "pk": "p", "email": "a"})
    container.delete_item("1", "p")
    container.create_item({"id": "3", "pk": "p", "email": "b"})
    with expect_error(409):
        container.patch_item("3", "p", [{"op": "set", "path": "/email", "value": "a"}])
    equal(container.read_item("3", "p")["email"], "b")


@check
def unique_keys_cannot_be_dropped(world):
    container = world.container(unique_key_policy=UNIQUE_EMAIL)
    with expect_error(403, text="unique index cannot be modified"):
        world.database.replace_container(container, partition_key=PartitionKey(path="/pk"))


@check
def a_recreated_container_is_found_by_a_client_that_cached_the_old_one(world):
    container = world.container("/pk")
    container.create_item({"id": "a", "pk": "old"})
    other = world.new_client().get_database_client(world.database.id)
    other.delete_container(container.id)
    other.create_container(container.id, partition_key=PartitionKey(path="/kind"))
    # The client still sends the resource id of the old container. It gets 400/1024 and reads
    # the container again.
    created = container.create_item({"id": "a", "kind": "q"})
    equal(user_members(created), {"id": "a", "kind": "q"})
    equal(user_members(container.read_item("a", "q")), {"id": "a", "kind": "q"})


@check
def nested_and_quoted_partition_key_paths_work(world):
    container = world.container('/address/"zip code"')
    item = {"id": "a", "address": {"zip code": "8000"}}
    container.create_item(item)
    equal(user_members(container.read_item("a", "8000")), item)
    equal(rows(container, 'SELECT VALUE c.address["zip code"] FROM c', pk="8000"), ["8000"])


@check
def a_container_with_the_first_hash_version_works(world):
    container = world.container(partition_key=PartitionKey(path="/pk", version=1))
    for key in ("p", 5, True, None):
        container.create_item({"id": "a", "pk": key})
        equal(container.read_item("a", key)["pk"], key)
    equal(container.read()["partitionKey"].get("version", 1), 1)


@check
def quota_and_statistics_are_reported(world):
    container = world.container()
    for n in range(3):
        container.create_item({"id": str(n), "pk": "p"})
    body = container.read(populate_quota_info=True, populate_partition_key_range_statistics=True)
    headers = body.get_response_headers()
    assert "documentsCount=3" in headers["x-ms-resource-usage"], headers["x-ms-resource-usage"]
    assert "x-ms-resource-quota" in headers


@check
def a_container_name_may_have_letters_of_any_language(world):
    key = PartitionKey(path="/schlüssel")
    container = world.database.create_container(unique("конт ейнер-日本 🚀+%&'"), partition_key=key)
    item = {"id": "ü", "schlüssel": "ß"}
    container.create_item(item)
    equal(user_members(container.read_item("ü", "ß")), item)
    equal(rows(container, "SELECT VALUE c.id FROM c"), ["ü"])
    equal(rows(container, 'SELECT VALUE c["schlüssel"] FROM c', pk="ß"), ["ß"])
    equal(ids(container.query_items_change_feed(start_time="Beginning")), ["ü"])
    world.database.delete_container(container)


@check
def search_policies_computed_properties_and_a_conflict_path_are_kept(world):
    vectors = {"vectorEmbeddings": [
        {"path": "/v", "dataType": "float32", "dimensions": 3, "distanceFunction": "cosine"}
    ]}
    words = {"defaultLanguage": "en-US", "fullTextPaths": [{"path": "/t", "language": "en-US"}]}
    computed = [{"name": "low", "query": "SELECT VALUE LOWER(c.name) FROM c"}]
    body = world.container(
        vector_embedding_policy=vectors, full_text_policy=words, computed_properties=computed,
        conflict_resolution_policy={"mode": "LastWriterWins", "conflictResolutionPath": "/n"},
    ).read()
    equal(body["vectorEmbeddingPolicy"], vectors)
    equal(body["fullTextPolicy"], words)
    equal(body["computedProperties"], computed)
    equal(body["conflictResolutionPolicy"]["conflictResolutionPath"], "/n")
