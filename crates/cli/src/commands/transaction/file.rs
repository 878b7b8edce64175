//! The file of a transaction: its form, its checks, and the transaction that it becomes.

use std::path::Path;

use perihelion_client::{
    Client, DistributedReadTransaction, DistributedWriteTransaction, Error, Etag, IdempotencyToken,
    PartitionKey, Patch,
};
use serde::Deserialize;
use serde_json::Value;

use crate::commands::item::steps::{self, PatchStep};
use crate::commands::workflow::read_text;
use crate::exit::Failure;
use crate::names::{check_container, check_database, check_item_id};

/// The contents of the file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TransactionFile {
    pub(super) operations: Vec<FileOperation>,
}

/// One operation of the file.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct FileOperation {
    #[serde(rename = "do")]
    pub(super) verb: FileVerb,
    #[serde(rename = "in")]
    pub(super) container: String,
    key: Value,
    id: Option<String>,
    document: Option<Value>,
    patch: Option<Vec<PatchStep>>,
    condition: Option<String>,
    if_match: Option<String>,
    if_none_match: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum FileVerb {
    Create,
    Upsert,
    Replace,
    Delete,
    Patch,
    Read,
}

/// The transaction of a file.
pub(super) enum TransactionToRun {
    Write(DistributedWriteTransaction),
    Read(DistributedReadTransaction),
}

impl FileVerb {
    pub(super) fn name(self) -> &'static str {
        match self {
            FileVerb::Create => "create",
            FileVerb::Upsert => "upsert",
            FileVerb::Replace => "replace",
            FileVerb::Delete => "delete",
            FileVerb::Patch => "patch",
            FileVerb::Read => "read",
        }
    }
}

impl TransactionFile {
    pub(super) fn read(path: &Path) -> Result<Self, Failure> {
        let fail = |error: &dyn std::fmt::Display| {
            Failure::usage(
                format!("cannot read {}: {error}", path.display()),
                "perihelion transaction run --help shows the form of the file",
            )
        };
        let text = read_text(path)?;
        let file: TransactionFile = serde_json::from_str(&text).map_err(|error| fail(&error))?;
        match file.operations.is_empty() {
            true => Err(fail(&"it has no operations, and a transaction needs at least one")),
            false => Ok(file),
        }
    }

    /// Whether the first operation is a read. All operations must then be reads:
    /// [`TransactionFile::build`] refuses a file that mixes reads and writes.
    pub(super) fn is_read(&self) -> bool {
        self.operations.first().is_some_and(|operation| operation.verb == FileVerb::Read)
    }

    /// Builds the transaction. The error names the operation that is wrong.
    pub(super) fn build(
        &self,
        client: &Client,
        token: Option<IdempotencyToken>,
    ) -> Result<TransactionToRun, String> {
        let named = |index: usize| move |error: Error| format!("operation {index}: {}", error.message());
        if self.is_read() {
            if token.is_some() {
                return Err("--token is for writes: a file of reads can simply be run again".to_owned());
            }
            let mut transaction = client.read_transaction();
            for (index, operation) in self.operations.iter().enumerate() {
                operation.add_read(client, &mut transaction).map_err(named(index))?;
            }
            return Ok(TransactionToRun::Read(transaction));
        }
        let mut transaction = client.write_transaction();
        if let Some(token) = token {
            transaction = transaction.with_idempotency_token(token);
        }
        for (index, operation) in self.operations.iter().enumerate() {
            operation.add_write(client, &mut transaction).map_err(named(index))?;
        }
        Ok(TransactionToRun::Write(transaction))
    }
}

impl FileOperation {
    /// The id of the operation, or for a create and an upsert the id in the document. Empty if the id
    /// is missing.
    pub(super) fn id(&self) -> &str {
        let in_document = || self.document.as_ref()?.get("id")?.as_str();
        self.id.as_deref().or_else(in_document).unwrap_or_default()
    }

    fn container(&self, client: &Client) -> Result<perihelion_client::Container, Error> {
        match self.container.split_once('/') {
            Some((database, container)) if !database.is_empty() && !container.is_empty() => {
                check_database(database)
                    .and_then(|()| check_container(container))
                    .map_err(|wrong| Error::input(wrong.to_string()))?;
                Ok(client.database(database).container(container))
            }
            Some(_) | None => {
                Err(Error::input(format!("`in` is `{}`: write DATABASE/CONTAINER", self.container)))
            }
        }
    }

    fn key(&self) -> Result<PartitionKey, Error> {
        let list = match &self.key {
            Value::Array(list) => Value::Array(list.clone()),
            one => Value::Array(vec![one.clone()]),
        };
        PartitionKey::from_header(&list.to_string()).ok_or_else(|| {
            Error::input(
                "`key` must be a text, a number, true, false or null, or a list of up to three of them",
            )
        })
    }

    fn etag(text: Option<&String>) -> Result<Option<Etag>, Error> {
        text.map(|text| Etag::parse(text)).transpose()
    }

    fn document(&self) -> Result<&Value, Error> {
        self.document
            .as_ref()
            .ok_or_else(|| Error::input(format!("a {} needs a `document`", self.verb.name())))
    }

    /// Refuses members that the operation does not take, so that a mistake in the file is not ignored.
    fn check_members(&self) -> Result<(), Error> {
        let has_document = matches!(self.verb, FileVerb::Create | FileVerb::Upsert | FileVerb::Replace);
        let is_patch = self.verb == FileVerb::Patch;
        let may_match = !matches!(self.verb, FileVerb::Create | FileVerb::Read);
        let has_id_in_document = matches!(self.verb, FileVerb::Create | FileVerb::Upsert);
        for (name, is_given, is_allowed) in [
            ("id", self.id.is_some(), !has_id_in_document),
            ("document", self.document.is_some(), has_document),
            ("patch", self.patch.is_some(), is_patch),
            ("condition", self.condition.is_some(), is_patch),
            ("ifMatch", self.if_match.is_some(), may_match),
            ("ifNoneMatch", self.if_none_match.is_some(), self.verb == FileVerb::Read),
        ] {
            if is_given && !is_allowed {
                return Err(Error::input(format!("a {} does not take `{name}`", self.verb.name())));
            }
        }
        Ok(())
    }

    /// Refuses an id that no item can have. An operation without an id is refused when it is added to
    /// the transaction, and that error says what is missing.
    fn check_id(&self) -> Result<(), Error> {
        match self.id() {
            "" => Ok(()),
            id => check_item_id(id).map_err(|wrong| Error::input(wrong.to_string())),
        }
    }

    fn add_read(&self, client: &Client, reads: &mut DistributedReadTransaction) -> Result<(), Error> {
        if self.verb != FileVerb::Read {
            let verb = self.verb.name();
            return Err(Error::input(format!(
                "a {verb} cannot be in a transaction that reads: use two files"
            )));
        }
        self.check_members()?;
        let (container, key) = (self.container(client)?, self.key()?);
        self.check_id()?;
        match Self::etag(self.if_none_match.as_ref())? {
            Some(seen) => reads.read_if_changed(&container, key, self.id(), &seen)?,
            None => reads.read(&container, key, self.id())?,
        };
        Ok(())
    }

    fn add_write(&self, client: &Client, writes: &mut DistributedWriteTransaction) -> Result<(), Error> {
        self.check_members()?;
        let (container, key, id) = (self.container(client)?, self.key()?, self.id());
        self.check_id()?;
        let etag = Self::etag(self.if_match.as_ref())?;
        match (self.verb, &etag) {
            (FileVerb::Create, _) => writes.create(&container, key, self.document()?)?,
            (FileVerb::Upsert, None) => writes.upsert(&container, key, self.document()?)?,
            (FileVerb::Upsert, Some(etag)) => {
                writes.upsert_if_match(&container, key, self.document()?, etag)?
            }
            (FileVerb::Replace, None) => writes.replace(&container, key, id, self.document()?)?,
            (FileVerb::Replace, Some(etag)) => {
                writes.replace_if_match(&container, key, id, self.document()?, etag)?
            }
            (FileVerb::Delete, None) => writes.delete(&container, key, id)?,
            (FileVerb::Delete, Some(etag)) => writes.delete_if_match(&container, key, id, etag)?,
            (FileVerb::Patch, None) => writes.patch(&container, key, id, &self.patch()?)?,
            (FileVerb::Patch, Some(etag)) => {
                writes.patch_if_match(&container, key, id, &self.patch()?, etag)?
            }
            (FileVerb::Read, _) => {
                return Err(Error::input("a read cannot be in a transaction that writes: use two files"));
            }
        };
        Ok(())
    }

    fn patch(&self) -> Result<Patch, Error> {
        let patch = steps::build(self.patch.iter().flatten())?;
        Ok(match &self.condition {
            Some(condition) => patch.with_condition(condition),
            None => patch,
        })
    }
}
