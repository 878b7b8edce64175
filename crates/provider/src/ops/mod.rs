//! One file per operation of the contract; `contract` and `admin` call them.

pub(crate) mod abandon_orchestration;
pub(crate) mod abandon_work;
pub(crate) mod ack_orchestration;
pub(crate) mod ack_work;
mod ahead;
pub(crate) mod append;
pub(crate) mod cached;
pub(crate) mod claim;
pub(crate) mod commit;
pub(crate) mod count;
pub(crate) mod delete;
pub(crate) mod deliver;
pub(crate) mod enqueue;
pub(crate) mod fetch_orchestration;
pub(crate) mod fetch_work;
pub(crate) mod grant;
pub(crate) mod handover;
pub(crate) mod list;
pub(crate) mod litter;
pub(crate) mod page;
pub(crate) mod patience;
pub(crate) mod payload;
pub(crate) mod poll;
pub(crate) mod prune;
pub(crate) mod purge;
pub(crate) mod read;
pub(crate) mod reconcile;
pub(crate) mod renew;
pub(crate) mod retain;
pub(crate) mod sessions;
pub(crate) mod stage;
#[cfg(test)]
mod tests;
pub(crate) mod turn;
pub(crate) mod unpack;
