//! One file per command, and the part that `dev` and `server` share.

pub(crate) mod cert;
pub(crate) mod demo;
pub(crate) mod dev;
pub(crate) mod migrate;
pub(crate) mod server;

mod serve;
