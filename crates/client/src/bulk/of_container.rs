//! The methods of [`Container`] that start a bulk.

use futures_core::Stream;

use super::{Bulk, BulkOperation, BulkOptions, IterStream};
use crate::{Container, Error};

impl Container {
    /// Runs any number of operations in few requests: up to a hundred operations of a
    /// physical partition share a request. The operations are independent of each other:
    /// each has its own result, and operations on the same document may be applied in any
    /// order. Results come in the order of `operations`.
    ///
    /// `operations` is read while results are taken, and a bounded number of operations is
    /// in memory. No request is sent before the first result is asked for. When the service
    /// throttles a partition, fewer requests are sent to it, and throttled operations are
    /// sent again.
    ///
    /// ```no_run
    /// # use perihelion_client::{BulkOperation, Container, Error};
    /// # #[derive(serde::Serialize)] struct Order { id: String, customer: String }
    /// # async fn example(container: Container, orders: Vec<Order>) -> Result<(), Error> {
    /// let operations = orders.iter().map(|order| BulkOperation::upsert(order.customer.as_str(), order));
    /// let mut bulk = container.bulk(operations);
    /// while let Some(result) = bulk.next().await {
    ///     if let Some(error) = result.error() {
    ///         println!("order {}: {error}", orders[result.index() as usize].id);
    ///     }
    /// }
    /// println!("{} RU in {} requests", bulk.totals().charge, bulk.totals().requests);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// When the response to a request is lost, operations that may be repeated are sent
    /// again. The others are reported as ambiguous
    /// ([`BulkError::is_ambiguous`](crate::BulkError::is_ambiguous)); see
    /// [`BulkOperation::repeat_if_lost`].
    pub fn bulk<'a, I>(&self, operations: I) -> Bulk<'a>
    where
        I: IntoIterator<Item = Result<BulkOperation, Error>>,
        I::IntoIter: Send + 'a,
    {
        self.bulk_with(operations, BulkOptions::default())
    }

    /// [`Container::bulk`] with options.
    pub fn bulk_with<'a, I>(&self, operations: I, options: BulkOptions) -> Bulk<'a>
    where
        I: IntoIterator<Item = Result<BulkOperation, Error>>,
        I::IntoIter: Send + 'a,
    {
        self.bulk_stream(IterStream(operations.into_iter()), options)
    }

    /// [`Container::bulk`] with operations that arrive over time. While a request to a
    /// partition is under way, operations for this partition gather until they fill a
    /// request, or the answer arrives.
    pub fn bulk_stream<'a>(
        &self,
        operations: impl Stream<Item = Result<BulkOperation, Error>> + Send + 'a,
        options: BulkOptions,
    ) -> Bulk<'a> {
        Bulk::new(self.handle(), operations, options)
    }
}
