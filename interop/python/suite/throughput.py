"""Offers: manual and autoscale throughput of containers and databases."""

from azure.cosmos import ThroughputProperties

from .harness import check, equal, new_container, unique


def offers_of(world, resource):
    """The offers of a database or container, from the list of all offers. `get_throughput`
    is not used, because azure-cosmos 4.17.1 fails if there is no offer: it treats its own
    404 as the 404 of a recreated container."""
    link = resource.read()["_self"]
    return [offer for offer in world.client.client_connection.ReadOffers() if offer["resource"] == link]


@check
def manual_throughput_is_read_and_replaced(world):
    container = world.container(offer_throughput=400)
    offer = container.get_throughput()
    equal(offer.offer_throughput, 400)
    equal(offer.properties["offerVersion"], "V2")
    equal(offer.properties["resource"].strip("/"), container.read()["_self"].strip("/"))
    equal(container.replace_throughput(1000).offer_throughput, 1000)
    equal(container.get_throughput().offer_throughput, 1000)


@check
def autoscale_throughput_is_read_and_replaced(world):
    scale = ThroughputProperties(auto_scale_max_throughput=4000, auto_scale_increment_percent=0)
    container = world.container(offer_throughput=scale)
    equal(container.get_throughput().auto_scale_max_throughput, 4000)
    container.replace_throughput(ThroughputProperties(auto_scale_max_throughput=8000))
    offer = container.get_throughput()
    equal(offer.auto_scale_max_throughput, 8000)
    equal(offer.properties["content"]["offerAutopilotSettings"]["maxThroughput"], 8000)


@check
def a_container_that_shares_its_database_throughput_has_no_offer(world):
    database = world.client.create_database(unique("shared"), offer_throughput=500)
    equal(database.get_throughput().offer_throughput, 500)
    container = new_container(database)
    equal(offers_of(world, container), [])
    dedicated = new_container(database, offer_throughput=400)
    equal(dedicated.get_throughput().offer_throughput, 400)
    equal([offer["content"]["offerThroughput"] for offer in offers_of(world, dedicated)], [400])
    equal(database.replace_throughput(700).offer_throughput, 700)
    equal(database.get_throughput().offer_throughput, 700)
    world.client.delete_database(database)


@check
def a_database_may_have_autoscale_throughput(world):
    scale = ThroughputProperties(auto_scale_max_throughput=5000)
    database = world.client.create_database(unique("scaled"), offer_throughput=scale)
    equal(database.get_throughput().auto_scale_max_throughput, 5000)
    world.client.delete_database(database)


@check
def a_database_without_throughput_has_no_offer(world):
    database = world.client.create_database(unique("plain"))
    equal(offers_of(world, database), [])
    world.client.delete_database(database)
