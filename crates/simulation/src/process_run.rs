//! One run of a process: its name, the role of its host, and whether it was killed.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::horizon::Horizon;

/// The role of a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// A process whose requests can fail and that can be killed: a worker with a runtime, or
    /// the operator of a test in `operations`.
    Worker,
    /// A program that starts workflows. Its requests can fail, and it is never killed.
    User,
    /// A process whose requests never fail and are not numbered by the network, such as a process
    /// that only checks.
    Faultless,
}

/// One process, from its start until it is killed.
#[derive(Debug)]
pub struct ProcessRun {
    pub name: String,
    pub role: Role,
    /// The answers that the process waits for.
    pub horizon: Arc<Horizon>,
    is_killed: AtomicBool,
}

impl ProcessRun {
    /// A process that runs.
    pub fn new(name: String, role: Role) -> Self {
        ProcessRun { name, role, horizon: Arc::default(), is_killed: AtomicBool::new(false) }
    }

    /// A process that never fails and runs on the same host as this one.
    pub fn faultless_twin(&self) -> Self {
        let horizon = Arc::clone(&self.horizon);
        ProcessRun { horizon, ..ProcessRun::new("faultless".to_owned(), Role::Faultless) }
    }

    /// Whether the process was killed.
    pub fn is_killed(&self) -> bool {
        self.is_killed.load(Ordering::SeqCst)
    }

    /// Marks the process as killed. It stops at once, and `World` drops it.
    pub fn kill(&self) {
        self.is_killed.store(true, Ordering::SeqCst);
        self.horizon.end();
    }
}
