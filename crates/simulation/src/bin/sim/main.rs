//! `sim`: runs simulations of the whole stack in virtual time. `cargo xtask sim` builds it
//! optimised and runs it. Results go to stdout, progress to stderr.

// `libc_shim` has the numbers of the system calls of these platforms only.
#[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
mod faults;
#[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
#[path = "../../libc_shim.rs"]
mod libc_shim;
#[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
mod scale;

#[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
use perihelion_simulation::virtual_clock;

/// A simulation allocates often. mimalloc makes that faster.
#[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

#[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
fn main() -> std::process::ExitCode {
    use clap::{Parser, Subcommand};

    /// Simulations of the whole stack (duroxide's runtime, provider, driver, server, engine) in
    /// one thread and virtual time.
    #[derive(Parser)]
    #[command(name = "cargo xtask sim")]
    struct Arguments {
        #[command(subcommand)]
        command: Command,
    }

    #[derive(Subcommand)]
    enum Command {
        /// Many processes and partitions under load: request units of polls and heartbeats, lost
        /// commits, pick-up times, each with its limit. Fails if a limit is not kept.
        Scale(scale::Options),
        /// Random faults and kills: each seed is a run, and all checks must be clean.
        Faults(faults::Options),
    }

    match Arguments::parse().command {
        Command::Scale(options) => scale::run(options),
        Command::Faults(options) => faults::run(options),
    }
}

#[cfg(not(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64"))))]
fn main() -> std::process::ExitCode {
    eprintln!("the simulation runs on Linux only (x86-64 or AArch64): it replaces functions of libc");
    std::process::ExitCode::FAILURE
}
