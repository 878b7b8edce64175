//! The handle of a container. The work is done in the modules `items`, `batch`,
//! `query`, `read_many`, `change_feed`, `manage` and `throughput`.

use perihelion_driver::{Driver, OperationOptions};
use perihelion_model::partition_key::PartitionKey;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::batch::{self, Batch, BatchResults};
use crate::change_feed::{self, Change, ChangeFeed, ChangeFeedOptions};
use crate::handle::ContainerHandle;
use crate::items::{self, ItemOptions};
use crate::patch::Patch;
use crate::properties::ContainerProperties;
use crate::query::{self, Query, QueryFeed};
use crate::read_many::{self, ManyItems};
use crate::response::{Item, Written, encode};
use crate::throughput::{ProvisionedThroughput, Throughput};
use crate::{Error, Etag, FeedRange, KeySpace, manage, throughput};

/// The handle of a container. Getting one sends no request, cloning one is cheap,
/// and all handles of one client share the container's cached metadata.
///
/// Methods take as a partition key anything that converts to [`PartitionKey`]:
/// `"ada"`, `7`, `true`, `()` for null, or a tuple for a hierarchical key.
#[derive(Clone)]
pub struct Container {
    handle: ContainerHandle,
}

impl Container {
    pub(crate) fn new(driver: &Driver, database: &str, name: &str) -> Self {
        Container { handle: ContainerHandle::new(driver, database, name) }
    }

    /// The container's name.
    pub fn name(&self) -> &str {
        self.handle.name()
    }

    /// The name of the container's database.
    pub fn database_name(&self) -> &str {
        self.handle.database_name()
    }

    /// The driver of the client, for operations that have no method in this crate.
    pub fn driver(&self) -> &Driver {
        self.handle.driver()
    }

    pub(crate) fn handle(&self) -> &ContainerHandle {
        &self.handle
    }

    /// Creates a document. Fails with 409, [`Error::is_conflict`], when the
    /// partition has a document of this id.
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
        self.create_with(key, value, &ItemOptions::default()).await
    }

    /// [`Container::create`] with options.
    pub async fn create_with<T: Serialize + ?Sized>(
        &self,
        key: impl Into<PartitionKey>,
        value: &T,
        options: &ItemOptions,
    ) -> Result<Written, Error> {
        items::create(&self.handle, key.into(), encode(value)?, options).await
    }

    /// Reads a document. Fails with 404, [`Error::is_not_found`], when it does not
    /// exist.
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
        self.read_with(key, id, &ItemOptions::default()).await
    }

    /// [`Container::read`] with options.
    pub async fn read_with<T: DeserializeOwned>(
        &self,
        key: impl Into<PartitionKey>,
        id: &str,
        options: &ItemOptions,
    ) -> Result<Item<T>, Error> {
        items::read(&self.handle, key.into(), id, options).await
    }

    /// Reads a document; `None` when it does not exist. Fails with 404,
    /// [`Error::is_container_not_found`], when the container does not exist.
    pub async fn find<T: DeserializeOwned>(
        &self,
        key: impl Into<PartitionKey>,
        id: &str,
    ) -> Result<Option<Item<T>>, Error> {
        self.find_with(key, id, &ItemOptions::default()).await
    }

    /// [`Container::find`] with options.
    pub async fn find_with<T: DeserializeOwned>(
        &self,
        key: impl Into<PartitionKey>,
        id: &str,
        options: &ItemOptions,
    ) -> Result<Option<Item<T>>, Error> {
        items::find(&self.handle, key.into(), id, options).await
    }

    /// Reads a document if it has another etag than `seen`. Otherwise returns
    /// `None`, for 1 RU and without transferring the document. Fails with 404,
    /// [`Error::is_not_found`], when the document does not exist.
    pub async fn read_if_changed<T: DeserializeOwned>(
        &self,
        key: impl Into<PartitionKey>,
        id: &str,
        seen: &Etag,
    ) -> Result<Option<Item<T>>, Error> {
        items::read_if_changed(&self.handle, key.into(), id, seen, &ItemOptions::default()).await
    }

    /// Replaces a document that must exist. `value` must have the same id and partition
    /// key.
    pub async fn replace<T: Serialize + ?Sized>(
        &self,
        key: impl Into<PartitionKey>,
        id: &str,
        value: &T,
    ) -> Result<Written, Error> {
        self.replace_with(key, id, value, &ItemOptions::default()).await
    }

    /// [`Container::replace`] with options, such as an etag.
    ///
    /// ```no_run
    /// # #[derive(serde::Serialize, serde::Deserialize)] struct Order { total: f64 }
    /// # use perihelion_client::ItemOptions;
    /// # async fn example(orders: perihelion_client::Container) -> Result<(), perihelion_client::Error> {
    /// let mut order = orders.read::<Order>("ada", "1").await?;
    /// order.value.total += 1.0;
    /// let unchanged = ItemOptions::new().with_if_match(order.etag()?);
    /// match orders.replace_with("ada", "1", &order.value, &unchanged).await {
    ///     Err(error) if error.is_precondition_failed() => println!("the document was changed meanwhile"),
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
        items::replace(&self.handle, key.into(), id, encode(value)?, options).await
    }

    /// Creates a document or replaces it.
    pub async fn upsert<T: Serialize + ?Sized>(
        &self,
        key: impl Into<PartitionKey>,
        value: &T,
    ) -> Result<Written, Error> {
        self.upsert_with(key, value, &ItemOptions::default()).await
    }

    /// [`Container::upsert`] with options.
    pub async fn upsert_with<T: Serialize + ?Sized>(
        &self,
        key: impl Into<PartitionKey>,
        value: &T,
        options: &ItemOptions,
    ) -> Result<Written, Error> {
        items::upsert(&self.handle, key.into(), encode(value)?, options).await
    }

    /// Deletes a document. Fails with 404, [`Error::is_not_found`], when it does
    /// not exist.
    pub async fn delete(&self, key: impl Into<PartitionKey>, id: &str) -> Result<Written, Error> {
        self.delete_with(key, id, &ItemOptions::default()).await
    }

    /// [`Container::delete`] with options.
    pub async fn delete_with(
        &self,
        key: impl Into<PartitionKey>,
        id: &str,
        options: &ItemOptions,
    ) -> Result<Written, Error> {
        items::delete(&self.handle, key.into(), id, options).await
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
        self.patch_with(key, id, patch, &ItemOptions::default()).await
    }

    /// [`Container::patch`] with options.
    pub async fn patch_with(
        &self,
        key: impl Into<PartitionKey>,
        id: &str,
        patch: &Patch,
        options: &ItemOptions,
    ) -> Result<Written, Error> {
        items::patch(&self.handle, key.into(), id, patch, options).await
    }

    /// Deletes all documents of a partition key. The service deletes them in the
    /// background, so reads may return some of them for a while. The account must have
    /// the feature "delete by partition key" enabled.
    pub async fn delete_partition(&self, key: impl Into<PartitionKey>) -> Result<(), Error> {
        manage::delete_partition(&self.handle, key.into()).await
    }

    /// Reads the properties of the container.
    pub async fn properties(&self) -> Result<ContainerProperties, Error> {
        manage::read_container(&self.handle).await
    }

    /// Replaces the properties of the container; the indexing policy and the time
    /// to live can change. When `properties` have an etag that is not the container's
    /// current etag, the call fails with 412, [`Error::is_precondition_failed`].
    pub async fn replace_properties(
        &self,
        properties: &ContainerProperties,
    ) -> Result<ContainerProperties, Error> {
        manage::replace_container(&self.handle, properties).await
    }

    /// Deletes the container with all its documents.
    pub async fn delete_container(&self) -> Result<(), Error> {
        manage::delete_container(&self.handle).await
    }

    /// Reads the throughput of the container; `None` when it shares its database's
    /// throughput, or the account is serverless.
    pub async fn throughput(&self) -> Result<Option<ProvisionedThroughput>, Error> {
        throughput::read(self.handle.driver(), &self.resource_id().await?).await
    }

    /// Changes the throughput of the container, also between manual and autoscale.
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
        throughput::replace(self.handle.driver(), &self.resource_id().await?, throughput).await
    }

    async fn resource_id(&self) -> Result<String, Error> {
        let properties = self.properties().await?;
        properties.resource_id.ok_or_else(|| Error::answer("the container's properties have no _rid"))
    }

    /// Applies all operations of a batch, or none. When the service refuses an
    /// operation, the error names it ([`Error::operation_index`]).
    pub async fn batch(&self, batch: Batch) -> Result<BatchResults, Error> {
        batch::execute(&self.handle, batch).await
    }

    /// Runs a query over the whole container, or over a part of it with
    /// [`Query::in_partition`] or [`Query::in_range`]. No request is sent before the
    /// first page is read.
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
        QueryFeed::new(&self.handle, query.into())
    }

    /// The service's plan for a query over the whole container, as the service writes it: what
    /// the client has to merge, and the statement for each partition. This method is for tools:
    /// [`Container::query`] reads its plan itself. The service also returns a plan for a statement
    /// whose rows need no merging.
    pub async fn query_plan(&self, query: impl Into<Query>) -> Result<serde_json::Value, Error> {
        query::read_plan(&self.handle, &query.into()).await
    }

    /// Reads all documents.
    pub fn read_all<T: DeserializeOwned>(&self) -> QueryFeed<T> {
        self.query("SELECT * FROM c")
    }

    /// Reads many documents by key and id with few requests: one query for up to a
    /// hundred documents of a physical partition, or a point read for a single document.
    /// Documents that have the same id are read by different queries. The result has the order
    /// of `items`, with `None` for a document that does not exist.
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

    /// [`Container::read_many`] with options for each of its requests.
    pub async fn read_many_with<T: DeserializeOwned>(
        &self,
        items: impl IntoIterator<Item = (impl Into<PartitionKey>, impl Into<String>)>,
        options: &OperationOptions,
    ) -> Result<ManyItems<T>, Error> {
        let items = items.into_iter().map(|(key, id)| (key.into(), id.into())).collect();
        read_many::read_many(&self.handle, items, options).await
    }

    /// The change feed in latest-version mode: every document that was created, replaced
    /// or patched, as it is now. No request is sent before the first page is read.
    /// See [`ChangeFeed`].
    pub fn change_feed<T: DeserializeOwned>(&self, options: ChangeFeedOptions) -> ChangeFeed<T> {
        ChangeFeed::new(&self.handle, change_feed::Mode::Latest, options)
    }

    /// The change feed with all versions and deletes, from now on or from a token.
    /// The account must have continuous backup. See [`ChangeFeed`].
    pub fn all_changes<T: DeserializeOwned>(&self, options: ChangeFeedOptions) -> ChangeFeed<Change<T>> {
        ChangeFeed::new(&self.handle, change_feed::Mode::All, options)
    }

    /// One range for each physical partition that the container has now. Several
    /// readers can share the work, each with some of the ranges: see
    /// [`Query::in_range`].
    pub async fn feed_ranges(&self) -> Result<Vec<FeedRange>, Error> {
        self.handle.feed_ranges().await
    }

    /// How the container's partition keys are spread over its physical partitions now. After
    /// the first call this usually sends no request.
    pub async fn key_space(&self) -> Result<KeySpace, Error> {
        Ok(KeySpace::new(self.handle.metadata().await?))
    }
}

impl std::fmt::Debug for Container {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.handle.fmt(f)
    }
}
