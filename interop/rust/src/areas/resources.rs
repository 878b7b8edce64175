//! Databases, containers and throughput.

use azure_data_cosmos::models::{
    CompositeIndex, CompositeIndexOrder, CompositeIndexProperty, ContainerProperties, IndexingPolicy,
    ThroughputProperties, TimeToLive, UniqueKey, UniqueKeyPolicy,
};
use azure_data_cosmos::options::CreateContainerOptions;
use azure_data_cosmos::{FeedScope, Query, ResourceId};
use futures::TryStreamExt;

use crate::check::{Outcome, checks, code, holds, refused, required, same};
use crate::query::query_all;
use crate::world::{Item, World, item};

checks![
    a_database_is_created_read_queried_and_deleted,
    a_second_database_of_the_same_name_is_refused,
    a_container_keeps_its_definition,
    a_container_is_replaced,
    containers_are_found_by_a_query,
    a_deleted_container_is_gone,
    a_container_is_reached_by_its_resource_id,
    a_recreated_container_is_found_by_a_client_of_the_old_one,
    manual_throughput_is_read_and_replaced,
    autoscale_throughput_is_read,
    throughput_beyond_one_partition_gives_several,
];

async fn a_database_is_created_read_queried_and_deleted(world: &World) -> Outcome {
    let name = world.fresh_name("database");
    let created = world.client.create_database(&name, None).await?;
    same!(code(created.status()), 201);
    same!(created.into_model()?.id.as_ref(), Some(&name));
    let database = world.client.database_client(name.as_str());
    same!(database.read(None).await?.into_model()?.id.as_ref(), Some(&name));

    let query = Query::from("SELECT * FROM root r WHERE r.id = @id").with_parameter("@id", &name)?;
    let found: Vec<_> = world.client.query_databases(query, None).await?.try_collect().await?;
    let names: Vec<_> = found.into_iter().map(|database| database.id).collect();
    same!(names, [Some(name)]);

    same!(code(database.delete(None).await?.status()), 204);
    same!(refused(database.read(None).await)?, 404);
    Ok(())
}

async fn a_second_database_of_the_same_name_is_refused(world: &World) -> Outcome {
    let name = world.fresh_name("database");
    world.client.create_database(&name, None).await?;
    same!(refused(world.client.create_database(&name, None).await)?, 409);
    Ok(())
}

async fn a_container_keeps_its_definition(world: &World) -> Outcome {
    let by_name_and_age = CompositeIndex::default()
        .with_property(CompositeIndexProperty::new("/name", CompositeIndexOrder::Ascending))
        .with_property(CompositeIndexProperty::new("/age", CompositeIndexOrder::Descending));
    let indexing = IndexingPolicy::default()
        .with_included_path("/*")
        .with_excluded_path("/payload/*")
        .with_composite_index(by_name_and_age.clone());
    let unique = UniqueKeyPolicy::default().with_unique_key(UniqueKey::default().with_path("/email"));
    let name = world.fresh_name("c");
    let properties = ContainerProperties::new(name.clone(), ("/tenant", "/user").into())
        .with_indexing_policy(indexing)
        .with_unique_key_policy(unique.clone())
        .with_default_ttl(TimeToLive::Seconds(3600));
    let created = world.database().create_container(properties, None).await?;
    same!(code(created.status()), 201);
    created.into_model()?;

    let container = world.database().container_client(name.as_str(), None).await?;
    let read = container.read(None).await?.into_model()?;
    same!(read.id, name);
    same!(read.partition_key.paths(), ["/tenant", "/user"]);
    same!(read.default_ttl, TimeToLive::Seconds(3600));
    same!(read.unique_key_policy, Some(unique));
    let indexing = required(read.indexing_policy, "the indexing policy")?;
    holds!(indexing.automatic);
    same!(indexing.composite_indexes, [by_name_and_age]);
    same!(indexing.excluded_paths.iter().any(|path| path.path == "/payload/*"), true);
    Ok(())
}

async fn a_container_is_replaced(world: &World) -> Outcome {
    let container = world.container().await?;
    let mut properties = container.read(None).await?.into_model()?;
    same!(properties.default_ttl, TimeToLive::Forever);
    properties.default_ttl = TimeToLive::NoDefault;
    let replaced = container.replace(properties, None).await?;
    same!(code(replaced.status()), 200);
    same!(replaced.into_model()?.default_ttl, TimeToLive::NoDefault);
    same!(container.read(None).await?.into_model()?.default_ttl, TimeToLive::NoDefault);
    Ok(())
}

async fn containers_are_found_by_a_query(world: &World) -> Outcome {
    let name = world.fresh_name("c");
    world.container_of(ContainerProperties::new(name.clone(), "/pk".into())).await?;
    let query = Query::from("SELECT * FROM root r WHERE r.id = @id").with_parameter("@id", &name)?;
    let found: Vec<ContainerProperties> =
        world.database().query_containers(query, None).await?.try_collect().await?;
    same!(found.iter().map(|container| container.id.as_ref()).collect::<Vec<_>>(), [name.as_str()]);
    Ok(())
}

async fn a_deleted_container_is_gone(world: &World) -> Outcome {
    let container = world.container().await?;
    same!(code(container.delete(None).await?.status()), 204);
    same!(refused(container.read(None).await)?, 404);
    Ok(())
}

async fn a_container_is_reached_by_its_resource_id(world: &World) -> Outcome {
    let container = world.container().await?;
    container.create_item("a", "1", item("a", "1", 7), None).await?;
    let id_of = |id: Option<String>| required(id, "the resource id").map(ResourceId::from);
    let database_id = id_of(world.database().read(None).await?.into_model()?.system_properties.resource_id)?;
    let container_id = id_of(container.read(None).await?.into_model()?.system_properties.resource_id)?;

    let database = world.client.database_client(database_id);
    let same_container = database.container_client(container_id, None).await?;
    // Only queries are sent: the SDK addresses items by name.
    let found: Vec<Item> = query_all(&same_container, FeedScope::partition("a"), "SELECT * FROM c").await?;
    same!(found, [item("a", "1", 7)]);
    let found: Vec<Item> = query_all(&same_container, FeedScope::full_container(), "SELECT * FROM c").await?;
    same!(found.len(), 1);
    Ok(())
}

async fn a_recreated_container_is_found_by_a_client_of_the_old_one(world: &World) -> Outcome {
    let properties = ContainerProperties::new(world.fresh_name("c"), "/pk".into());
    let old = world.container_of(properties.clone()).await?;
    old.create_item("a", "1", item("a", "1", 1), None).await?;
    old.delete(None).await?;
    world.container_of(properties).await?;

    // The SDK sends the resource id of the container that it knows, gets the answer that the
    // container with this name has another id, and finds the new container.
    same!(refused(old.read_item("a", "1", None).await)?, 404);
    same!(code(old.create_item("a", "2", item("a", "2", 2), None).await?.status()), 201);
    let read: Item = old.read_item("a", "2", None).await?.into_model()?;
    same!(read.rank, 2);
    Ok(())
}

async fn manual_throughput_is_read_and_replaced(world: &World) -> Outcome {
    let name = world.fresh_name("c");
    let options = CreateContainerOptions::default().with_throughput(ThroughputProperties::manual(400));
    let properties = ContainerProperties::new(name.clone(), "/pk".into());
    world.database().create_container(properties, Some(options)).await?;
    let container = world.database().container_client(name.as_str(), None).await?;
    let found = required(container.read_throughput(None).await?, "the throughput")?;
    same!(found.throughput(), Some(400));

    let poller = container.begin_replace_throughput(ThroughputProperties::manual(500), None).await?;
    same!(poller.await?.into_model()?.throughput(), Some(500));
    let found = required(container.read_throughput(None).await?, "the throughput")?;
    same!(found.throughput(), Some(500));
    Ok(())
}

async fn autoscale_throughput_is_read(world: &World) -> Outcome {
    let name = world.fresh_name("c");
    let options =
        CreateContainerOptions::default().with_throughput(ThroughputProperties::autoscale(5000, Some(42)));
    let properties = ContainerProperties::new(name.clone(), "/pk".into());
    world.database().create_container(properties, Some(options)).await?;
    let container = world.database().container_client(name.as_str(), None).await?;
    let found = required(container.read_throughput(None).await?, "the throughput")?;
    same!(found.autoscale_maximum(), Some(5000));
    same!(found.autoscale_increment(), Some(42));
    same!(found.throughput(), Some(500));
    Ok(())
}

async fn throughput_beyond_one_partition_gives_several(world: &World) -> Outcome {
    let name = world.fresh_name("c");
    let options = CreateContainerOptions::default().with_throughput(ThroughputProperties::manual(11_000));
    let properties = ContainerProperties::new(name.clone(), "/pk".into());
    world.database().create_container(properties, Some(options)).await?;
    let container = world.database().container_client(name.as_str(), None).await?;
    same!(container.read_feed_ranges(None).await?.len(), world.partitions().max(2));
    Ok(())
}
