//! What duroxide 0.1.29 asks of a provider: its validations, as that version
//! has them, and the workflows of the provider's own tests on its runtime.

#[allow(dead_code, reason = "the worlds over the wire and on disk are the provider's own tests' concern")]
#[path = "../../../../crates/provider/tests/it/place.rs"]
mod place;
mod validations;
#[path = "../../../../crates/provider/tests/it/workflow.rs"]
mod workflow;
