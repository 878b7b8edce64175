//! The writers: one loop for each kind of write. The `stamp` in a document is the id of the
//! operation that wrote it. A witness recognises the write by its stamp.

use perihelion_driver::operation::{Idempotency, Verb};
use perihelion_driver::{Error, Response};
use serde_json::json as value;

use super::{Worker, json, witness};

impl Worker {
    pub(super) async fn upsert(mut self) {
        for n in 1.. {
            let body = format!(r#"{{"id":"upsert","customer":"{}","n":{n}}}"#, self.partition);
            let upsert = self.item(Verb::Upsert, "upsert", body);
            let result = self.run(self.plan("upsert", "upsert", n, upsert)).await;
            self.acknowledge("upsert", n, &result);
            self.pause().await;
            if self.is_stopped() {
                return;
            }
        }
    }

    pub(super) async fn replace(mut self) {
        for n in 1.. {
            let body = format!(r#"{{"id":"replace","customer":"{}","n":{n}}}"#, self.partition);
            let replace = self.item(Verb::Replace, "replace", body);
            let result = self.run(self.plan("replace", "replace", n, replace)).await;
            self.acknowledge("replace", n, &result);
            self.pause().await;
            if self.is_stopped() {
                return;
            }
        }
    }

    /// Sets a value by a patch, which is idempotent.
    pub(super) async fn set(mut self) {
        for n in 1.. {
            let body = format!(r#"{{"operations":[{{"op":"set","path":"/n","value":{n}}}]}}"#);
            let set = self.item(Verb::Patch, "set", body).with_idempotency(Idempotency::Idempotent);
            let result = self.run(self.plan("set", "set", n, set)).await;
            self.acknowledge("set", n, &result);
            self.pause().await;
            if self.is_stopped() {
                return;
            }
        }
    }

    /// Increments a value by a patch, which is not idempotent. The value in the answer must
    /// be above all values that were acknowledged before.
    pub(super) async fn count(mut self) {
        while !self.is_stopped() {
            let floor = self.run_record.floor("p3/count");
            let body = r#"{"operations":[{"op":"incr","path":"/n","value":1}]}"#;
            let count = self.item(Verb::Patch, "count", body.to_owned());
            let result = self.run(self.plan("increment", "count", 1, count)).await;
            if let Ok(response) = &result {
                let n = json(&response.body)["n"].as_u64().unwrap();
                if n <= floor {
                    let problem = format!(
                        "is {n} after an increment, and was {floor} before: {}",
                        response.diagnostics
                    );
                    self.run_record.report("p3/count", problem);
                }
                self.acknowledge("count", n, &result);
            }
            self.pause().await;
        }
    }

    /// Compare and swap, in competition with another worker. Each swap adds the id of its
    /// operation to the member `by` of the document, and no swap removes one. So the document
    /// shows at the end which swaps were applied.
    pub(super) async fn swap(mut self) {
        while !self.is_stopped() {
            if let Ok(response) = self.fetch("swap").await {
                let (mut document, id) = (json(&response.body), self.run_record.next_id());
                let n = document["n"].as_u64().unwrap() + 1;
                document["n"] = value!(n);
                document["by"][id.to_string()] = value!(true);
                let mut swap = self
                    .item(Verb::Replace, "swap", document.to_string())
                    .with_if_match(response.headers["etag"].clone());
                if self.rng.bool() {
                    swap = swap.with_witness(witness("swap", format!("/by/{id}"), value!(true)));
                }
                let result = self.run(self.plan("swap", "swap", n, swap)).await;
                self.acknowledge_contested("swap", n, &result);
            }
            self.pause().await;
        }
    }

    /// Creates documents with ids that another worker creates as well.
    pub(super) async fn contest(mut self) {
        for n in 1.. {
            let (id, stamp) = (format!("contest-{n}"), self.run_record.next_id());
            let body = format!(r#"{{"id":"{id}","customer":"{}","n":{n},"stamp":{stamp}}}"#, self.partition);
            let mut create = self.item(Verb::Create, &id, body);
            if self.rng.bool() {
                create = create.with_witness(witness(&id, "/stamp".to_owned(), value!(stamp)));
            }
            let result = self.run(self.plan("create", &id, n, create)).await;
            self.acknowledge_contested(&id, n, &result);
            self.pause().await;
            if self.is_stopped() {
                return;
            }
        }
    }

    /// Deletes its document and creates it again. After a successful delete, the create
    /// must not be refused. After a successful create, the delete must not be refused.
    pub(super) async fn cycle(mut self) {
        // `None` when it is not known whether the document exists.
        let mut exists = Some(true);
        while !self.is_stopped() {
            exists = match exists {
                Some(true) => self.delete_own().await,
                Some(false) => self.create_own().await,
                None => self.find_own().await,
            };
            self.pause().await;
        }
    }

    /// Deletes the worker's document. Returns whether the document exists now.
    async fn delete_own(&mut self) -> Option<bool> {
        let delete = self.item(Verb::Delete, "cycle", String::new());
        match self.run(self.plan("delete", "cycle", 0, delete)).await {
            Ok(_) => Some(false),
            Err(error) => {
                if error.is_not_found() {
                    self.run_record
                        .report("p6/cycle", format!("does not exist before its delete: {error:?}"));
                }
                None
            }
        }
    }

    /// Creates the worker's document. Returns whether the document exists now.
    async fn create_own(&mut self) -> Option<bool> {
        let stamp = self.run_record.next_id();
        let body = format!(r#"{{"id":"cycle","customer":"{}","stamp":{stamp}}}"#, self.partition);
        let create = self.item(Verb::Create, "cycle", body).with_witness(witness(
            "cycle",
            "/stamp".to_owned(),
            value!(stamp),
        ));
        match self.run(self.plan("create", "cycle", stamp.into(), create)).await {
            Ok(_) => Some(true),
            Err(error) => {
                if error.is_conflict() {
                    self.run_record.report("p6/cycle", format!("exists before its create: {error:?}"));
                }
                None
            }
        }
    }

    /// Reads whether the worker's document exists.
    async fn find_own(&mut self) -> Option<bool> {
        match self.fetch("cycle").await {
            Ok(_) => Some(true),
            Err(error) if error.is_not_found() => Some(false),
            Err(_) => None,
        }
    }

    /// Runs a batch that is not idempotent, because it increments.
    pub(super) async fn batch(mut self) {
        while !self.is_stopped() {
            let stamp = self.run_record.next_id();
            let body = format!(
                r#"[{{"operationType":"Create","resourceBody":{{"id":"batch-{stamp}","customer":"{0}","stamp":{stamp}}}}},
                {{"operationType":"Patch","id":"count","resourceBody":{{"operations":[{{"op":"incr","path":"/n","value":1}}]}}}}]"#,
                self.partition
            );
            let mut batch = self.item(Verb::Batch, "", body);
            if self.rng.bool() {
                let id = format!("batch-{stamp}");
                batch = batch.with_witness(witness(&id, "/stamp".to_owned(), value!(stamp)));
            }
            let _ = self.run(self.plan("batch", "batch", stamp.into(), batch)).await;
            self.pause().await;
        }
    }

    /// Runs a batch with a condition: the document `head` must have the etag that was read.
    pub(super) async fn guarded_batch(mut self) {
        while !self.is_stopped() {
            if let Ok(response) = self.fetch("head").await {
                let stamp = self.run_record.next_id();
                let n = json(&response.body)["n"].as_u64().unwrap() + 1;
                let etag = value!(response.etag().unwrap());
                let body = format!(
                    r#"[{{"operationType":"Replace","id":"head","ifMatch":{etag},"resourceBody":{{"id":"head","customer":"{0}","n":{n}}}}},
                    {{"operationType":"Create","resourceBody":{{"id":"entry-{n}-{stamp}","customer":"{0}","stamp":{stamp}}}}}]"#,
                    self.partition
                );
                let mut batch = self.item(Verb::Batch, "", body).with_idempotency(Idempotency::Conditional);
                if self.rng.bool() {
                    let id = format!("entry-{n}-{stamp}");
                    batch = batch.with_witness(witness(&id, "/stamp".to_owned(), value!(stamp)));
                }
                let result = self.run(self.plan("guarded batch", "head", n, batch)).await;
                if result.as_ref().is_ok_and(|response| response.status.code == 200) {
                    self.acknowledge("head", n, &result);
                }
            }
            self.pause().await;
        }
    }

    /// Raises the floor of a document for which two workers compete, if the write was
    /// acknowledged. Where all regions take writes, the floor stays, because the other
    /// worker's write may win later.
    fn acknowledge_contested(&self, id: &str, n: u64, result: &Result<Response, Error>) {
        if !self.is_multi_write {
            self.acknowledge(id, n, result);
        }
    }

    /// Raises the floor of a document if the write was acknowledged.
    fn acknowledge(&self, id: &str, n: u64, result: &Result<Response, Error>) {
        if result.is_ok() {
            self.run_record.raise_floor(&self.name(id), n);
        }
    }
}
