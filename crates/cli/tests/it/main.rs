//! Tests of the real binary: its output and its exit codes.

mod account;
mod bank;
mod certificates;
mod crashing;
mod dashboard;
mod demo;
mod dev_server;
mod doctor;
mod entra;
mod help;
mod histories;
mod kills;
mod metrics;
mod migrate;
mod mistakes;
mod new;
mod pages;
mod profiles;
mod program;
mod serving;
mod stopped_workers;
mod stress;
mod transaction;
mod usage;
mod verbs;
mod watch;
