//! The operations on orchestrations: fetch an instance, commit its turn, deliver its messages.

pub(crate) mod abandon;
pub(crate) mod ack;
pub(crate) mod append;
pub(crate) mod claim;
pub(crate) mod claim_cached;
pub(crate) mod commit;
pub(crate) mod deliver;
pub(crate) mod direct_dispatch;
pub(crate) mod fetch;
pub(crate) mod held_lock;
pub(crate) mod leftovers;
pub(crate) mod lock_instance;
pub(crate) mod pace;
pub(crate) mod renew;
pub(crate) mod send_commit;
pub(crate) mod stage;
pub(crate) mod unpack;
