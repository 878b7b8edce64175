//! The list of samples. Two programs compile these files: the example `samples` and the
//! tests of this crate, which run every sample. Both include this file with `#[path]`.
//! For such a file the compiler looks for modules beside it, not in a directory `all/`.

use std::error::Error;
use std::pin::Pin;
use std::sync::Arc;

use duroxide::providers::Provider;

mod cancellation;
mod continue_as_new;
mod control_flow;
mod error_handling;
mod events;
mod fan_out;
mod hello_world;
mod human_approval;
mod key_values;
mod polling;
mod queues;
mod saga;
mod sessions;
mod sub_orchestrations;
mod tags;
mod timers;
mod typed;
mod versioning;

/// A sample: its name, one line about it, and the function that runs it on a store.
pub(crate) struct Sample {
    pub(crate) name: &'static str,
    pub(crate) about: &'static str,
    pub(crate) run: fn(Arc<dyn Provider>) -> Running,
}

/// A sample that runs. An error or a panic means that its result is wrong.
pub(crate) type Running = Pin<Box<dyn Future<Output = Result<(), Box<dyn Error>>>>>;

/// Calls a macro with the name of every sample and with one line about it, in a good order
/// for reading them.
macro_rules! each_sample {
    ($call:ident) => {
        $call! {
            hello_world: "an orchestration calls an activity and returns a greeting",
            control_flow: "branches and loops, and time and random values that survive a replay",
            typed: "inputs and outputs of your own types",
            fan_out: "many activities at the same time, and one result",
            timers: "a delay that survives a restart, and a time limit for slow work",
            error_handling: "retries, a fallback, and a workflow that fails",
            saga: "several bookings, and their cancellation when one fails",
            sub_orchestrations: "workflows that start other workflows",
            events: "a workflow that waits for an event, but not for ever",
            queues: "a workflow that receives messages in order, over many executions",
            human_approval: "a workflow that waits for a person",
            polling: "a workflow that follows a job elsewhere, and a client that follows the workflow",
            key_values: "values of a workflow that clients and other workflows read",
            continue_as_new: "a workflow that runs for ever without a growing history",
            cancellation: "a workflow that is cancelled, with its children and activities",
            versioning: "new code while workflows of the old code still run",
            sessions: "activities that use what is in the memory of one machine",
            tags: "activities for machines with special equipment",
        }
    };
}

/// All samples.
pub(crate) fn samples() -> Vec<Sample> {
    macro_rules! rows {
        ($($name:ident: $about:literal,)+) => {
            vec![$(Sample {
                name: stringify!($name),
                about: $about,
                run: |store| Box::pin($name::run(store)),
            }),+]
        };
    }
    each_sample!(rows)
}
