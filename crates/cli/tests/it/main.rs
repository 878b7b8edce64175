//! Tests of the real binary: its output and its exit codes.

mod account;
mod bank;
mod certificates;
mod crashing;
mod demo;
mod help;
mod histories;
mod kills;
mod migrate;
mod program;
mod serving;
mod stress;
mod transaction;
mod usage;
mod verbs;
mod watch;
