//! The public surface: the provider with its builder, the provider's implementations of
//! duroxide's traits, its methods for tools (`inspect`), and the client of the published crate
//! (`duroxide-cdb` 0.1.10).

mod admin;
pub(crate) mod builder;
pub mod client;
mod inspect;
pub mod provider;
mod runtime;
