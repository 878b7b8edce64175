//! The SDK's driver on its emulator: the shortest way from a program to that emulator. The SDK's
//! own client sends transactions through the same method of the driver, and encodes documents in
//! the same way.

use std::sync::Arc;

use azure_data_cosmos_driver::CosmosDriver;
use azure_data_cosmos_driver::models::{
    ContainerReference, DistributedTransactionOperation as Operation,
    DistributedTransactionOperationKind as Kind, DistributedTransactionRequest as Request,
    DistributedTransactionResponse as Response, DistributedTransactionResultBody as ResultBody,
    DistributedTransactionTarget, DistributedTransactionType as Type,
};
use azure_data_cosmos_driver::options::OperationOptions;
use perihelion_bench_client::{Document, NewDocument, Problem};

use crate::emulator::{CONTAINER, DATABASE, Emulator};
use crate::store::{CREATED, Store};

#[derive(Clone)]
pub(crate) struct SdkStore {
    driver: Arc<CosmosDriver>,
    container: ContainerReference,
}

impl SdkStore {
    pub(crate) async fn open(emulator: &Emulator) -> Result<Self, Problem> {
        let driver = emulator.driver().await?;
        let container = driver.resolve_container(DATABASE, CONTAINER, OperationOptions::default()).await?;
        Ok(Self { driver, container })
    }

    fn operation(&self, kind: Kind, key: &str, id: &str) -> Operation {
        let (key, id) = (key.to_owned(), id.to_owned());
        Operation::new(kind, DistributedTransactionTarget::new(self.container.clone(), key, id))
    }

    /// Runs a transaction. Fails unless every operation ends with the status.
    async fn run(&self, kind: Type, operations: Vec<Operation>, status: u16) -> Result<Response, Problem> {
        let (sent, request) = (operations.len(), Request::new(kind, operations));
        let options = OperationOptions::default();
        let answer = self.driver.execute_distributed_transaction(request, options).await?;
        let results = answer.operation_results.iter();
        match results.filter(|result| u16::from(result.status_code) == status).count() == sent {
            true => Ok(answer),
            false => Err(format!("not all {sent} operations have the status {status}: {answer:?}").into()),
        }
    }
}

impl Store for SdkStore {
    async fn create(&self, documents: &[NewDocument<'_>]) -> Result<(), Problem> {
        let create = |document: &NewDocument<'_>| {
            let create = self.operation(Kind::Create, document.pk, document.id);
            Ok(create.with_resource_body(serde_json::to_vec(document)?))
        };
        let operations = documents.iter().map(create).collect::<Result<_, Problem>>()?;
        self.run(Type::Write, operations, CREATED).await?;
        Ok(())
    }

    async fn read(&self, names: &[(&str, &str)]) -> Result<Vec<Document>, Problem> {
        let operations = names.iter().map(|(key, id)| self.operation(Kind::Read, key, id)).collect();
        let answer = self.run(Type::Read, operations, 200).await?;
        let decode = |body: &ResultBody| match body {
            ResultBody::Bytes(document) => Ok(serde_json::from_slice(document)?),
            _ => Err("a read without its document".into()),
        };
        answer.operation_results.iter().map(|result| decode(&result.resource_body)).collect()
    }
}
