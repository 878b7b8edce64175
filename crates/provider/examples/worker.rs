//! A worker that runs until Ctrl-C: the program that `perihelion new` writes. README.md uses it ("The
//! first workflow"). `COSMOS_ENDPOINT` and `COSMOS_KEY` name the account. Without them the account is
//! the server of `perihelion dev` on this machine.
//!
//! `cargo run -p duroxide-cdb --example worker`

include!("../../cli/templates/app/main.rs");
