//! A PostgreSQL for the run. It is installed with apt if there is none, started in a temporary
//! directory on a free port, and stopped at the end. It has its default settings, so commits
//! are flushed. PostgreSQL refuses to run as root, so root starts it as the user of its
//! package.

use std::fs;
use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use tokio::process::{Child, Command};

use crate::targets::free_port;

/// The directory in which Debian's packages have a directory for each version.
const VERSIONS: &str = "/usr/lib/postgresql";
/// The user that the packages create.
const USER: &str = "postgres";
/// The time limit of the start, which writes a few megabytes and flushes them.
const START_LIMIT: Duration = Duration::from_secs(60);
/// The time between two checks whether the server is ready.
const START_POLL: Duration = Duration::from_millis(20);

pub struct Postgres {
    /// The directory with PostgreSQL's programs.
    programs: PathBuf,
    /// The server is killed when this value is dropped.
    server: Child,
    home: PathBuf,
    port: u16,
    /// The number of databases so far.
    databases: AtomicU32,
}

/// A user and its group, by number.
#[derive(Clone, Copy)]
struct Identity {
    user: u32,
    group: u32,
}

impl Postgres {
    pub async fn start() -> anyhow::Result<Self> {
        let programs = match find_programs() {
            Some(programs) => programs,
            None => install().await?,
        };
        let home = std::env::temp_dir().join(format!("perihelion-bench-postgres-{}", std::process::id()));
        fs::create_dir_all(&home).with_context(|| format!("creating {}", home.display()))?;
        let identity = take_identity(&home)?;
        let data = home.join("data");
        let mut init = as_user(&programs.join("initdb"), identity);
        init.args(["--auth=trust", "--username=postgres", "--encoding=UTF8", "--no-instructions", "-D"]);
        run(init.arg(&data).current_dir(&home)).await?;
        let port = free_port()?;
        let log = fs::File::create(home.join("log"))?;
        let mut command = as_user(&programs.join("postgres"), identity);
        command.arg("-D").arg(&data).arg("-k").arg(&home).args(["-h", "127.0.0.1", "-p", &port.to_string()]);
        command.current_dir(&home).stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        let server = command.kill_on_drop(true).spawn().context("starting postgres")?;
        let mut postgres = Postgres { programs, server, home, port, databases: AtomicU32::new(0) };
        postgres.wait_until_ready().await?;
        Ok(postgres)
    }

    async fn wait_until_ready(&mut self) -> anyhow::Result<()> {
        let spawned = Instant::now();
        loop {
            let mut ask = Command::new(self.programs.join("pg_isready"));
            ask.args(["-q", "-h", "127.0.0.1", "-p", &self.port.to_string()]);
            if ask.status().await?.success() {
                return Ok(());
            }
            if self.server.try_wait()?.is_some() || spawned.elapsed() > START_LIMIT {
                let log = fs::read_to_string(self.home.join("log")).unwrap_or_default();
                bail!("PostgreSQL does not start:\n{log}");
            }
            tokio::time::sleep(START_POLL).await;
        }
    }

    /// Creates a database and returns its address.
    pub async fn create_database(&self) -> anyhow::Result<String> {
        let name = format!("bench{}", self.databases.fetch_add(1, Ordering::Relaxed));
        let mut create = Command::new(self.programs.join("createdb"));
        create.args(["-h", "127.0.0.1", "-p", &self.port.to_string(), "-U", USER, &name]);
        run(&mut create).await?;
        Ok(format!("postgres://{USER}@127.0.0.1:{}/{name}", self.port))
    }

    pub async fn stop(mut self) -> anyhow::Result<()> {
        self.server.kill().await.context("ending PostgreSQL")?;
        fs::remove_dir_all(&self.home).context("removing PostgreSQL's data")
    }
}

/// The directory with the programs of the newest version that is installed.
fn find_programs() -> Option<PathBuf> {
    let versions = fs::read_dir(VERSIONS).ok()?.filter_map(|entry| Some(entry.ok()?.path().join("bin")));
    let complete = versions.filter(|programs| programs.join("initdb").is_file());
    complete.max_by_key(|programs| version(programs))
}

fn version(programs: &Path) -> u32 {
    let directory = programs.parent().and_then(Path::file_name);
    directory.and_then(|name| name.to_str()?.parse().ok()).unwrap_or(0)
}

async fn install() -> anyhow::Result<PathBuf> {
    eprintln!("installing PostgreSQL with apt");
    run(Command::new("apt-get").args(["update", "-q"])).await?;
    let mut install = Command::new("apt-get");
    install.args(["install", "-q", "-y", "--no-install-recommends", "postgresql"]);
    run(install.env("DEBIAN_FRONTEND", "noninteractive")).await?;
    find_programs().with_context(|| format!("apt installed no PostgreSQL in {VERSIONS}"))
}

/// Returns the user that PostgreSQL has to run as, and makes that user the owner of `home`.
/// `None` if the benchmark does not run as root.
fn take_identity(home: &Path) -> anyhow::Result<Option<Identity>> {
    use std::os::unix::fs::MetadataExt;
    if fs::metadata(home)?.uid() != 0 {
        return Ok(None);
    }
    let users = fs::read_to_string("/etc/passwd").context("reading /etc/passwd")?;
    let identity = parse_identity(&users).with_context(|| format!("there is no user {USER}"))?;
    chown(home, Some(identity.user), Some(identity.group))
        .with_context(|| format!("changing the owner of {}", home.display()))?;
    Ok(Some(identity))
}

fn parse_identity(users: &str) -> Option<Identity> {
    users.lines().find_map(|line| {
        let mut fields = line.split(':');
        (fields.next()? == USER).then_some(())?;
        let mut numbers = fields.skip(1).map(str::parse);
        Some(Identity { user: numbers.next()?.ok()?, group: numbers.next()?.ok()? })
    })
}

fn as_user(program: &Path, identity: Option<Identity>) -> Command {
    let mut command = Command::new(program);
    if let Some(Identity { user, group }) = identity {
        command.uid(user).gid(group);
    }
    command
}

async fn run(command: &mut Command) -> anyhow::Result<()> {
    let answer =
        command.stdin(Stdio::null()).output().await.with_context(|| format!("starting {command:?}"))?;
    let errors = String::from_utf8_lossy(&answer.stderr);
    ensure!(answer.status.success(), "{command:?} ended with {}:\n{errors}", answer.status);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_user_of_the_package_is_found_among_others() {
        let users = "root:x:0:0:root:/root:/bin/bash\npostgres:x:107:114:,,,:/var/lib/postgresql:/bin/bash\n";
        let found = parse_identity(users).expect("a user");
        assert_eq!((found.user, found.group), (107, 114));
        assert!(parse_identity("root:x:0:0:root:/root:/bin/bash\n").is_none());
    }
}
