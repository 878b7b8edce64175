//! The readers. All workers share one session, so a reader must see at least the *floor* of a
//! document: the highest value that any worker has read, or that was acknowledged to its writer.

use std::sync::atomic::Ordering;

use bytes::Bytes;
use http::HeaderValue;
use perihelion_driver::operation::{Target, Verb};
use perihelion_driver::{Error, Operation, Response};
use perihelion_wire::headers;
use serde_json::Value;

use super::super::setup::PARTITIONS;
use super::{PlannedOperation, Worker, json};
use crate::world::customer;

/// Documents whose writers count up, with the index of their partition.
const COUNTED: [(usize, &str); 6] =
    [(0, "upsert"), (1, "set"), (2, "replace"), (3, "count"), (4, "swap"), (7, "head")];

/// The one document of the scratch container.
const SCRATCH: &str = "scratch/1";

impl Worker {
    pub(super) async fn read(mut self) {
        while !self.is_stopped() {
            let (index, id) = COUNTED[self.rng.usize(..COUNTED.len())];
            self.partition = PARTITIONS[index];
            let floor = self.run_record.floor(&self.name(id));
            let read = self.item(Verb::Read, id, String::new());
            if let Ok(response) = self.run(self.plan("read", id, floor, read)).await {
                self.check_value(id, floor, &json(&response.body), &response);
            }
            self.pause().await;
        }
    }

    pub(super) async fn query(mut self) {
        let body = Bytes::from_static(br#"{"query":"SELECT * FROM c WHERE IS_DEFINED(c.n)"}"#);
        while !self.is_stopped() {
            let floors = self.choose_partition();
            let target = Target::items(&self.orders);
            let query = Operation::new(Verb::Query, target, customer(self.partition), body.clone())
                .with_header(headers::MAX_ITEM_COUNT, HeaderValue::from_static("-1"));
            let result = self.run(self.plan("query", "*", 0, query)).await;
            self.check_page(&floors, &result);
            self.pause().await;
        }
    }

    /// Writes and reads in a container that is sometimes deleted and recreated. While the
    /// container is the same, a read must see what was written.
    pub(super) async fn use_scratch_container(mut self) {
        for n in 1.. {
            let epoch = self.run_record.epoch.load(Ordering::SeqCst);
            let body = Bytes::from(format!(r#"{{"id":"1","customer":"{}","n":{n}}}"#, self.partition));
            let target = Target::items(&self.scratch);
            let upsert = Operation::new(Verb::Upsert, target, customer(self.partition), body);
            let planned = PlannedOperation {
                kind: "scratch upsert",
                document: SCRATCH.to_owned(),
                value: n,
                operation: upsert,
            };
            let written = self.run(planned).await;
            let target = Target::item(&self.scratch, "1");
            let read = Operation::new(Verb::Read, target, customer(self.partition), Bytes::new());
            let planned = PlannedOperation {
                kind: "scratch read",
                document: SCRATCH.to_owned(),
                value: n,
                operation: read,
            };
            let read = self.run(planned).await;
            // The scratch container exists in even epochs. In the same epoch it was not replaced.
            if epoch.is_multiple_of(2) && self.run_record.epoch.load(Ordering::SeqCst) == epoch {
                self.check_scratch(n, &written, &read);
            }
            self.pause().await;
            if self.is_stopped() {
                return;
            }
        }
    }

    fn check_scratch(&self, n: u64, written: &Result<Response, Error>, read: &Result<Response, Error>) {
        if let Err(error) = written
            && error.is_not_found()
        {
            self.run_record.report(SCRATCH, format!("the container exists and was not found: {error:?}"));
        }
        match (written, read) {
            (Ok(_), Ok(response)) if json(&response.body)["n"].as_u64() != Some(n) => {
                self.run_record.report(SCRATCH, format!("wrote {n}, read {:?}", response.body));
            }
            (Ok(_), Err(error)) if error.is_not_found() => {
                self.run_record.report(SCRATCH, format!("wrote {n}, and it was not found: {error:?}"));
            }
            _ => {}
        }
    }

    /// Picks a partition, and returns its documents with their floors.
    pub(super) fn choose_partition(&mut self) -> Vec<(String, u64)> {
        self.partition = PARTITIONS[self.rng.usize(..PARTITIONS.len())];
        let prefix = format!("{}/", self.partition);
        let in_partition =
            |(name, floor): (String, u64)| name.strip_prefix(&prefix).map(|id| (id.to_owned(), floor));
        self.run_record.floors().into_iter().filter_map(in_partition).collect()
    }

    fn check_page(&self, floors: &[(String, u64)], result: &Result<Response, Error>) {
        let Ok(response) = result else { return };
        let page = json(&response.body);
        let rows = page["Documents"].as_array().map(Vec::as_slice).unwrap_or_default();
        for (id, floor) in floors {
            match rows.iter().find(|row| row["id"] == id.as_str()) {
                Some(row) => self.check_value(id, *floor, row, response),
                None => {
                    let problem = format!("missing from a page: {}", response.diagnostics);
                    self.run_record.report(&self.name(id), problem);
                }
            }
        }
    }

    /// Reports a problem if the document is below its floor, and raises the floor.
    pub(super) fn check_value(&self, id: &str, floor: u64, document: &Value, response: &Response) {
        let (name, n) = (self.name(id), document["n"].as_u64().unwrap_or_default());
        // Where all regions take writes, two swaps can succeed in different regions, and one
        // of them is undone later.
        if self.is_multi_write && id == "swap" {
            return;
        }
        if n < floor {
            let problem = format!("went back from {floor} to {n}: {}", response.diagnostics);
            self.run_record.report(&name, problem);
        }
        self.run_record.raise_floor(&name, n);
    }
}
