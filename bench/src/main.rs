//! The benchmarks, which compare Perihelion with its peers. Servers are child processes on
//! loopback. The load client is this process in `emulators` and in the part of `transactions` that
//! compares with batches, and a child process otherwise. Results go to stdout, progress to stderr.

mod clients;
mod counters;
mod documents;
mod emulators;
mod goal;
mod growth;
mod load;
mod output;
mod providers;
mod requests;
mod rotation;
mod setup;
mod statistics;
mod targets;
mod transactions;

use clap::{Parser, Subcommand};
use tokio::signal::unix::{SignalKind, signal};

#[derive(Parser)]
#[command(about = "Side-by-side benchmarks of Perihelion against its peers")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Our server, durable and in memory, against @vercel/cosmosdb-server.
    Emulators(emulators::Options),
    /// Our client against azure_data_cosmos, and both against raw hyper.
    Clients(clients::Options),
    /// Our provider of durable workflows against duroxide's SQLite, duroxide-pg,
    /// the published duroxide-cdb, and the runtime's ceiling.
    Providers(providers::Options),
    /// Distributed transactions of our server against the same writes as one batch for each
    /// partition, and those of our client against those of azure_data_cosmos on its emulator.
    Transactions(transactions::Options),
    /// Our durable server with 10,000 to 1,000,000 documents: queries, memory and disk.
    Growth(growth::Options),
}

/// Runs on one thread, because the servers need the other cores. An interrupted run returns
/// an error instead of being killed, so that the servers it started are stopped.
#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let command = Arguments::parse().command;
    let mut terminated = signal(SignalKind::terminate())?;
    tokio::select! {
        result = run(command) => result,
        _ = tokio::signal::ctrl_c() => anyhow::bail!("interrupted"),
        _ = terminated.recv() => anyhow::bail!("terminated"),
    }
}

async fn run(command: Command) -> anyhow::Result<()> {
    match command {
        Command::Emulators(options) => emulators::run(options).await,
        Command::Clients(options) => clients::run(options).await,
        Command::Providers(options) => providers::run(options).await,
        Command::Transactions(options) => transactions::run(options).await,
        Command::Growth(options) => growth::run(options).await,
    }
}
