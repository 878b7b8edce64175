//! A container's handle: every method is one line over one exchange.

use std::sync::Arc;

use perihelion_driver::{Container as DriverContainer, Driver, OperationOptions};
use perihelion_model::partition_key::PartitionKey;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::answer::{Item, Written, encode};
use crate::batch::{self, Batch, BatchResults};
use crate::change_feed::{self, Change, ChangeFeed, ChangeFeedOptions};
use crate::items::{self, ItemOptions};
use crate::patch::Patch;
use crate::properties::ContainerProperties;
use crate::query::{self, Query, QueryFeed};
use crate::read_many::{self, ManyItems};
use crate::throughput::{ProvisionedThroughput, Throughput};
use crate::{Error, Etag, FeedRange, manage, throughput};

/// A container by name: making one sends nothing, cloning one is cheap, and
/// all handles of one client share what was learnt about the container.
///
/// Methods take a partition key as whatever is at hand: `"ada"`, `7`, `true`,
/// `()` for null, a tuple for a hierarchical key, or a
/// [`PartitionKey`].
#[derive(Clone)]
pub struct Container {
    driver: Driver,
    inner: Arc<DriverContainer>,
}

impl Container {
    pub(crate) fn new(driver: &Driver, database: &str, name: &str) -> Self {
        Container { driver: driver.clone(), inner: driver.container(database, name) }
    }

    /// The container's name.
    pub fn name(&self) -> &str {
        self.inner.name()
    }

    /// The name of its database.
    pub fn database_name(&self) -> &str {
        self.inner.database()
    }

    /// The driver underneath, for operations that have no method here.
    pub fn driver(&self) -> &Driver {
        &self.driver
    }

    pub(crate) fn inner(&self) -> &Arc<DriverContainer> {
        &self.inner
    }

    /// Creates a document. One of the same id in the same partition makes it
    /// fail with 409, [`Error::is_conflict`].
    ///
    /// ```no_run
    /// # async fn example(orders: perihelion_client::Container) -> Result<(), perihelion_client::Error> {
    /// let order = serde_json::json!({"id": "1", "customer": "ada", "total": 12.5});
    /// let written = orders.create("ada", &order).await?;
    /// println!("{} RU, version {}", written.charge(), written.etag()?);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn create<T: Serialize + ?Sized>(
        &self,
        key: impl Into<PartitionKey>,
        value: &T,
    ) -> Result<Written, Error> {
        items::create(self, key.into(), encode(value)?, &ItemOptions::default()).await
    }

    /// [`Container::create`] with options.
    pub async fn create_with<T: Serialize + ?Sized>(
        &self,
        key: impl Into<PartitionKey>,
        value: &T,
        options: &ItemOptions,
    ) -> Result<Written, Error> {
        items::create(self, key.into(), encode(value)?, options).await
    }

    /// Reads a document. Its absence is 404, [`Error::is_not_found`].
    ///
    /// ```no_run
    /// # #[derive(serde::Deserialize)] struct Order { total: f64 }
    /// # async fn example(orders: perihelion_client::Container) -> Result<(), perihelion_client::Error> {
    /// let order = orders.read::<Order>("ada", "1").await?;
    /// println!("{} for {} RU", order.value.total, order.charge());
    /// # Ok(())
    /// # }
    /// ```
    pub async fn read<T: DeserializeOwned>(
        &self,
        key: impl Into<PartitionKey>,
        id: &str,
    ) -> Result<Item<T>, Error> {
        items::read(self, key.into(), id, &ItemOptions::default()).await
    }

    /// [`Container::read`] with options.
    pub async fn read_with<T: DeserializeOwned>(
        &self,
        key: impl Into<PartitionKey>,
        id: &str,
        options: &ItemOptions,
    ) -> Result<Item<T>, Error> {
        items::read(self, key.into(), id, options).await
    }

    /// Reads a document that may be absent.
    pub async fn find<T: DeserializeOwned>(
        &self,
        key: impl Into<PartitionKey>,
        id: &str,
    ) -> Result<Option<Item<T>>, Error> {
        items::find(self, key.into(), id, &ItemOptions::default()).await
    }

    /// [`Container::find`] with options.
    pub async fn find_with<T: DeserializeOwned>(
        &self,
        key: impl Into<PartitionKey>,
        id: &str,
        options: &ItemOptions,
    ) -> Result<Option<Item<T>>, Error> {
        items::find(self, key.into(), id, options).await
    }

    /// Reads a document unless it still has the etag `seen`; `None` then, for
    /// 1 RU and without a body.
    pub async fn read_if_changed<T: DeserializeOwned>(
        &self,
        key: impl Into<PartitionKey>,
        id: &str,
        seen: &Etag,
    ) -> Result<Option<Item<T>>, Error> {
        items::read_if_changed(self, key.into(), id, seen, &ItemOptions::default()).await
    }

    /// Replaces a document that must exist. `value` holds the same id and
    /// partition key.
    pub async fn replace<T: Serialize + ?Sized>(
        &self,
        key: impl Into<PartitionKey>,
        id: &str,
        value: &T,
    ) -> Result<Written, Error> {
        items::replace(self, key.into(), id, encode(value)?, &ItemOptions::default()).await
    }

    /// [`Container::replace`] with options: only if unchanged, say.
    ///
    /// ```no_run
    /// # #[derive(serde::Serialize, serde::Deserialize)] struct Order { total: f64 }
    /// # use perihelion_client::ItemOptions;
    /// # async fn example(orders: perihelion_client::Container) -> Result<(), perihelion_client::Error> {
    /// let mut order = orders.read::<Order>("ada", "1").await?;
    /// order.value.total += 1.0;
    /// let unchanged = ItemOptions::new().with_if_match(order.etag()?);
    /// match orders.replace_with("ada", "1", &order.value, &unchanged).await {
    ///     Err(error) if error.is_precondition_failed() => println!("someone else was faster"),
    ///     outcome => drop(outcome?),
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn replace_with<T: Serialize + ?Sized>(
        &self,
        key: impl Into<PartitionKey>,
        id: &str,
        value: &T,
        options: &ItemOptions,
    ) -> Result<Written, Error> {
        items::replace(self, key.into(), id, encode(value)?, options).await
    }

    /// Creates a document or replaces it.
    pub async fn upsert<T: Serialize + ?Sized>(
        &self,
        key: impl Into<PartitionKey>,
        value: &T,
    ) -> Result<Written, Error> {
        items::upsert(self, key.into(), encode(value)?, &ItemOptions::default()).await
    }

    /// [`Container::upsert`] with options.
    pub async fn upsert_with<T: Serialize + ?Sized>(
        &self,
        key: impl Into<PartitionKey>,
        value: &T,
        options: &ItemOptions,
    ) -> Result<Written, Error> {
        items::upsert(self, key.into(), encode(value)?, options).await
    }

    /// Deletes a document. Its absence is 404, [`Error::is_not_found`].
    pub async fn delete(&self, key: impl Into<PartitionKey>, id: &str) -> Result<Written, Error> {
        items::delete(self, key.into(), id, &ItemOptions::default()).await
    }

    /// [`Container::delete`] with options.
    pub async fn delete_with(
        &self,
        key: impl Into<PartitionKey>,
        id: &str,
        options: &ItemOptions,
    ) -> Result<Written, Error> {
        items::delete(self, key.into(), id, options).await
    }

    /// Updates parts of a document on the server, without reading it first.
    ///
    /// ```no_run
    /// # use perihelion_client::Patch;
    /// # #[derive(serde::Deserialize)] struct Order { revision: u32 }
    /// # async fn example(orders: perihelion_client::Container) -> Result<(), perihelion_client::Error> {
    /// let patch = Patch::new().set("/status", "paid")?.increment("/revision", 1)?;
    /// let order = orders.patch("ada", "1", &patch).await?.into_item::<Order>()?;
    /// println!("now at revision {}", order.value.revision);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn patch(
        &self,
        key: impl Into<PartitionKey>,
        id: &str,
        patch: &Patch,
    ) -> Result<Written, Error> {
        items::patch(self, key.into(), id, patch, &ItemOptions::default()).await
    }

    /// [`Container::patch`] with options.
    pub async fn patch_with(
        &self,
        key: impl Into<PartitionKey>,
        id: &str,
        patch: &Patch,
        options: &ItemOptions,
    ) -> Result<Written, Error> {
        items::patch(self, key.into(), id, patch, options).await
    }

    /// Deletes all documents of a partition key, in the background: some may be
    /// seen for a while. The account must have the feature enabled.
    pub async fn delete_partition(&self, key: impl Into<PartitionKey>) -> Result<(), Error> {
        manage::delete_partition(self, key.into()).await
    }

    /// What the service knows of the container.
    pub async fn properties(&self) -> Result<ContainerProperties, Error> {
        manage::read_container(self).await
    }

    /// Replaces the container's properties: index policy and time to live may
    /// change. With the etag of properties that were read, only if nobody else
    /// changed them since.
    pub async fn replace_properties(
        &self,
        properties: &ContainerProperties,
    ) -> Result<ContainerProperties, Error> {
        manage::replace_container(self, properties).await
    }

    /// Deletes the container, with everything in it.
    pub async fn delete_container(&self) -> Result<(), Error> {
        manage::delete_container(self).await
    }

    /// The throughput of its own; `None` when it shares its database's, or the
    /// account is serverless.
    pub async fn throughput(&self) -> Result<Option<ProvisionedThroughput>, Error> {
        throughput::read(&self.driver, &self.resource_id().await?).await
    }

    /// Changes the throughput of its own, between fixed and scaling too.
    ///
    /// ```no_run
    /// # use perihelion_client::{Container, Error, Throughput};
    /// # async fn example(orders: Container) -> Result<(), Error> {
    /// let now = orders.replace_throughput(Throughput::autoscale(10_000)).await?;
    /// println!("{:?}, still changing: {}", now.throughput, now.is_pending);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn replace_throughput(&self, throughput: Throughput) -> Result<ProvisionedThroughput, Error> {
        throughput::replace(&self.driver, &self.resource_id().await?, throughput).await
    }

    async fn resource_id(&self) -> Result<String, Error> {
        let properties = self.properties().await?;
        properties.resource_id.ok_or_else(|| Error::answer("the container's properties have no _rid"))
    }

    /// Applies a batch: all of its operations, or none and an error that names
    /// the one at fault ([`Error::operation_index`]).
    pub async fn batch(&self, batch: Batch) -> Result<BatchResults, Error> {
        batch::execute(self, batch).await
    }

    /// Asks a query: over all partitions, or where [`Query::in_partition`] says.
    /// Nothing is sent before the first page is asked for.
    ///
    /// ```no_run
    /// # use perihelion_client::Query;
    /// # #[derive(serde::Deserialize)] struct Order { total: f64 }
    /// # async fn example(orders: perihelion_client::Container) -> Result<(), perihelion_client::Error> {
    /// let count: Option<u64> = orders.query("SELECT VALUE COUNT(1) FROM c").first().await?;
    /// let open = Query::new("SELECT * FROM c WHERE c.status = @status ORDER BY c.total")
    ///     .with_parameter("@status", "open")
    ///     .in_partition("ada");
    /// let mut rows = orders.query::<Order>(open).into_stream();
    /// while let Some(order) = rows.next().await {
    ///     println!("{}", order?.total);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn query<T: DeserializeOwned>(&self, query: impl Into<Query>) -> QueryFeed<T> {
        QueryFeed::new(self, query.into())
    }

    /// All documents, a page or a document at a time.
    pub fn read_all<T: DeserializeOwned>(&self) -> QueryFeed<T> {
        self.query("SELECT * FROM c")
    }

    /// Reads many documents by key and id, with as few requests as it takes:
    /// one query for those that lie in the same physical partition, a point
    /// read for one that is alone. The answers come in the order they were
    /// asked for, `None` for what is absent.
    ///
    /// ```no_run
    /// # #[derive(serde::Deserialize)] struct Order { total: f64 }
    /// # async fn example(orders: perihelion_client::Container) -> Result<(), perihelion_client::Error> {
    /// let found = orders.read_many::<Order>([("ada", "1"), ("bob", "2"), ("ada", "3")]).await?;
    /// println!("{} of 3 for {} RU", found.items.iter().flatten().count(), found.charge());
    /// # Ok(())
    /// # }
    /// ```
    pub async fn read_many<T: DeserializeOwned>(
        &self,
        items: impl IntoIterator<Item = (impl Into<PartitionKey>, impl Into<String>)>,
    ) -> Result<ManyItems<T>, Error> {
        self.read_many_with(items, &OperationOptions::default()).await
    }

    /// [`Container::read_many`] with options; they hold for each request.
    pub async fn read_many_with<T: DeserializeOwned>(
        &self,
        items: impl IntoIterator<Item = (impl Into<PartitionKey>, impl Into<String>)>,
        options: &OperationOptions,
    ) -> Result<ManyItems<T>, Error> {
        let items = items.into_iter().map(|(key, id)| (key.into(), id.into())).collect();
        read_many::read_many(self, items, options).await
    }

    /// What was created and replaced, each document as it is now. Nothing is
    /// sent before the first page is asked for. See [`ChangeFeed`].
    pub fn change_feed<T: DeserializeOwned>(&self, options: ChangeFeedOptions) -> ChangeFeed<T> {
        ChangeFeed::new(self, change_feed::Mode::Latest, options)
    }

    /// Every version and every deletion, from now on or from a token: for
    /// accounts with continuous backup. See [`ChangeFeed`].
    pub fn all_changes<T: DeserializeOwned>(&self, options: ChangeFeedOptions) -> ChangeFeed<Change<T>> {
        ChangeFeed::new(self, change_feed::Mode::All, options)
    }

    /// One range for each physical partition that the container has now, to
    /// divide work by; see [`Query::in_range`].
    pub async fn feed_ranges(&self) -> Result<Vec<FeedRange>, Error> {
        query::feed_ranges(self).await
    }
}

impl std::fmt::Debug for Container {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Container({}/{})", self.database_name(), self.name())
    }
}
