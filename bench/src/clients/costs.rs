//! The cost of a client for the program that uses it: the number of crates, the CPU time of a
//! clean release build, and the size of the stripped binary.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, ensure};
use perihelion_bench_client::children_cpu;
use tokio::process::Command;

use super::programs::{Built, Program};

/// The prefix of the benchmark's own packages, which are not counted.
const OWN_PACKAGES: &str = "perihelion-bench-";

/// The cost of one client.
pub struct Cost {
    /// The number of crates that are compiled for the library, build scripts and macros
    /// included.
    pub crates: usize,
    pub binary_bytes: u64,
    /// User and system time of a clean build: of cargo and everything it started. `None` if
    /// it was not measured.
    pub build_cpu: Option<Duration>,
}

/// The cost of each program. Clean builds are measured only if `with_builds` is true.
pub async fn all(
    programs: &[Program],
    built: &BTreeMap<Program, Built>,
    scratch: &Path,
    with_builds: bool,
) -> anyhow::Result<BTreeMap<Program, Cost>> {
    let mut costs = BTreeMap::new();
    for program in programs {
        let build_cpu = if with_builds { Some(clean_build_cpu(*program, scratch).await?) } else { None };
        let binary_bytes = fs::metadata(&built[program].plain)?.len();
        costs.insert(*program, Cost { crates: count_crates(*program).await?, binary_bytes, build_cpu });
    }
    Ok(costs)
}

async fn count_crates(program: Program) -> anyhow::Result<usize> {
    let output = Command::new("cargo")
        .args(["tree", "--edges", "normal,build", "--prefix", "none", "--no-dedupe"])
        .args(program.lock_arguments())
        .current_dir(program.directory())
        .stderr(Stdio::inherit())
        .output()
        .await
        .context("running cargo")?;
    ensure!(output.status.success(), "cargo tree ended with {}", output.status);
    Ok(unique_crates(&String::from_utf8_lossy(&output.stdout)))
}

/// The number of different lines `name v1.2.3` of `cargo tree`, without their remarks. Each
/// version of a crate counts, because each is compiled.
fn unique_crates(tree: &str) -> usize {
    let crates: BTreeSet<(&str, &str)> = tree
        .lines()
        .filter_map(|line| {
            let mut words = line.split_whitespace();
            Some((words.next()?, words.next()?))
        })
        .filter(|(name, _)| !name.starts_with(OWN_PACKAGES))
        .collect();
    crates.len()
}

/// Builds into an empty directory and returns the CPU time. Everything is downloaded before,
/// and there is no cache between cargo and the compiler.
async fn clean_build_cpu(program: Program, scratch: &Path) -> anyhow::Result<Duration> {
    eprintln!("building the client {} from nothing", program.name());
    let target = scratch.join(format!("build-{}", program.name()));
    run_cargo(program, &["fetch"]).await?;
    let before = children_cpu().map_err(anyhow::Error::from_boxed)?;
    let target_word = target.to_str().context("the scratch directory's name is not UTF-8")?;
    run_cargo(program, &["build", "--release", "--offline", "--quiet", "--target-dir", target_word]).await?;
    let after = children_cpu().map_err(anyhow::Error::from_boxed)?;
    fs::remove_dir_all(&target)?;
    Ok(after - before)
}

async fn run_cargo(program: Program, words: &[&str]) -> anyhow::Result<()> {
    let status = Command::new("cargo")
        .args(words)
        .args(program.lock_arguments())
        .current_dir(program.directory())
        .env_remove("RUSTC_WRAPPER")
        .stdout(Stdio::null())
        .status()
        .await
        .context("running cargo")?;
    ensure!(status.success(), "cargo {} ended with {status}", words.join(" "));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_crate_counts_once_per_version_and_our_own_programs_not_at_all() {
        let tree = "perihelion-bench-client-raw v0.1.0 (/bench)\nhyper v1.12.0\nbytes v1.12.1\n\
            hyper v1.12.0 (*)\nserde_derive v1.0.1 (proc-macro)\nhyper v0.14.0\n\n";
        assert_eq!(unique_crates(tree), 4);
    }
}
