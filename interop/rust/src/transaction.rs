//! Functions that make the SDK's distributed transactions and take their answers apart, for the
//! checks.

use azure_data_cosmos::DistributedReadTransaction;
use azure_data_cosmos::clients::{
    ContainerClient, DistributedTransactionOperationResult, DistributedTransactionResponse,
};

use crate::check::{Problem, required};

/// A read transaction of documents, each given by its container, partition key and id.
pub(crate) fn read_of(
    documents: &[(&ContainerClient, &'static str, &'static str)],
) -> DistributedReadTransaction {
    let add = |reads: DistributedReadTransaction,
               document: &(&ContainerClient, &'static str, &'static str)| {
        let (container, pk, id) = *document;
        reads.read_item(container, pk, id, None)
    };
    documents.iter().fold(DistributedReadTransaction::new(), add)
}

/// The results of all operations, in order.
pub(crate) fn results(
    answer: &DistributedTransactionResponse,
) -> Result<Vec<DistributedTransactionOperationResult<'_>>, Problem> {
    (0..answer.len()).map(|index| required(answer.operation_result(index), "a result")).collect()
}

/// The status and the sub-status of each operation; sub-status 0 if it has none.
pub(crate) fn statuses(answer: &DistributedTransactionResponse) -> Vec<(u16, u16)> {
    (0..answer.len())
        .filter_map(|index| answer.operation_result(index))
        .map(|result| {
            let sub_status = result.sub_status_code().map_or(0, |sub_status| sub_status.value());
            (u16::from(result.status_code()), sub_status)
        })
        .collect()
}

/// The etag of each operation; empty if it has none.
pub(crate) fn etags(answer: &DistributedTransactionResponse) -> Vec<String> {
    (0..answer.len())
        .filter_map(|index| answer.operation_result(index))
        .map(|result| result.etag().map(ToString::to_string).unwrap_or_default())
        .collect()
}
