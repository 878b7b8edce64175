//! A worker that runs until Ctrl-C, for the journey in README.md ("The first workflow"): the program
//! that `perihelion new` writes. `COSMOS_ENDPOINT` and `COSMOS_KEY` name the account; without them it is
//! the server of `perihelion dev` on this machine.
//!
//! `cargo run -p duroxide-cdb --example worker`

include!("../../cli/templates/app/main.rs");
