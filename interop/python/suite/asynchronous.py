"""The asynchronous client of the SDK: asyncio over aiohttp."""

import asyncio

from azure.core import MatchConditions
from azure.cosmos import PartitionKey
from azure.cosmos.aio import CosmosClient

from .harness import check, equal, expect_error, same_elements, unique, user_members


def asynchronously(scenario):
    """Makes a check of an asynchronous function: runs it on a new container, with a new
    client."""

    def run(world):
        async def play():
            async with CosmosClient(world.endpoint, world.key) as client:
                database = client.get_database_client(world.database.id)
                container = await database.create_container(unique("c"), partition_key=PartitionKey(path="/pk"))
                await scenario(container)

        asyncio.run(play())

    run.__name__, run.__module__ = scenario.__name__, scenario.__module__
    return run


@check
@asynchronously
async def items_are_created_read_replaced_and_deleted(container):
    created = await container.create_item({"id": "a", "pk": "p", "n": 1})
    equal(dict(await container.read_item("a", "p")), dict(created))
    replaced = await container.replace_item(
        "a", {"id": "a", "pk": "p", "n": 2}, etag=created["_etag"], match_condition=MatchConditions.IfNotModified
    )
    equal(replaced["n"], 2)
    with expect_error(412):
        await container.upsert_item(
            {"id": "a", "pk": "p"}, etag=created["_etag"], match_condition=MatchConditions.IfNotModified
        )
    equal((await container.patch_item("a", "p", [{"op": "incr", "path": "/n", "value": 1}]))["n"], 3)
    await container.delete_item("a", "p")
    with expect_error(404):
        await container.read_item("a", "p")


@check
@asynchronously
async def batches_are_atomic(container):
    results = await container.execute_item_batch(
        [("create", ({"id": "a", "pk": "p"},)), ("create", ({"id": "b", "pk": "p"},))], partition_key="p"
    )
    equal([result["statusCode"] for result in results], [201, 201])
    with expect_error(409) as error:
        await container.execute_item_batch(
            [("delete", ("a",)), ("create", ({"id": "b", "pk": "p"},))], partition_key="p"
        )
    equal([result["statusCode"] for result in error.value.operation_responses], [424, 409])
    equal(user_members(await container.read_item("a", "p")), {"id": "a", "pk": "p"})


@check(on="four")
@asynchronously
async def many_writers_and_queries_at_once(container):
    await asyncio.gather(*(container.create_item({"id": str(n), "pk": f"p{n % 8}", "n": n}) for n in range(80)))
    ordered = [row async for row in container.query_items("SELECT VALUE c.n FROM c ORDER BY c.n")]
    equal(ordered, list(range(80)))
    counts = [row async for row in container.query_items("SELECT VALUE COUNT(1) FROM c", partition_key="p3")]
    equal(counts, [10])
    found = await asyncio.gather(*(container.read_item(str(n), f"p{n % 8}") for n in range(80)))
    equal([item["n"] for item in found], list(range(80)))


@check(on="strict")
@asynchronously
async def query_plans_are_used(container):
    for n in range(20):
        await container.create_item({"id": f"{n:02}", "pk": f"p{n}", "n": n})
    ordered = [row async for row in container.query_items("SELECT VALUE c.n FROM c ORDER BY c.n DESC")]
    equal(ordered, list(range(19, -1, -1)))
    equal([row async for row in container.query_items("SELECT VALUE SUM(c.n) FROM c")], [190])


@check(on="four")
@asynchronously
async def the_change_feed_and_read_many_work(container):
    for n in range(12):
        await container.create_item({"id": str(n), "pk": f"p{n}"})
    seen = [item["id"] async for item in container.query_items_change_feed(start_time="Beginning")]
    same_elements(seen, [str(n) for n in range(12)])
    found = await container.read_items(items=[(str(n), f"p{n}") for n in range(12)])
    equal([item["id"] for item in found], [str(n) for n in range(12)])


@check
@asynchronously
async def one_of_many_writers_with_the_same_etag_wins(container):
    etag = (await container.create_item({"id": "a", "pk": "p", "n": -1}))["_etag"]

    async def attempt(n):
        try:
            await container.replace_item(
                "a", {"id": "a", "pk": "p", "n": n}, etag=etag, match_condition=MatchConditions.IfNotModified
            )
            return 200
        except Exception as error:
            return error.status_code

    equal(sorted(await asyncio.gather(*(attempt(n) for n in range(10)))), [200] + [412] * 9)
