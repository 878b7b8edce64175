//! Asks the Azure CLI (`az login`) for a token of the user.

use std::ffi::OsString;
use std::process::Stdio;
use std::time::{Duration, SystemTime};

use perihelion_client::credential::AccessToken;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::Command;
use tokio::time::timeout;

use super::{NoToken, TokenOrigin, token_answer};
use crate::output::text::cut;

/// The program of the Azure CLI.
const PROGRAM: &str = if cfg!(windows) { "az.cmd" } else { "az" };

/// How long the program may take. It needs one or two seconds, and more on a slow machine. With the
/// wait for the metadata service before it, this is less than the 30 s for which the driver waits.
const WAIT_MAX: Duration = Duration::from_secs(20);

/// The most bytes that are read of each output of the program. A token has a few kilobytes.
const OUTPUT_BYTES_MAX: u64 = 256 * 1024;

/// The most characters of the program's message in an error.
const MESSAGE_CHARS_MAX: usize = 300;

/// The variables with secrets for accounts. The Azure CLI does not need them.
const SECRET_VARIABLES: [&str; 4] =
    ["AZURE_COSMOS_CONNECTION_STRING", "COSMOS_CONNECTION_STRING", "COSMOS_KEY", "COSMOSDB_KEY"];

/// What the Azure CLI printed, and whether it succeeded.
struct Printed {
    is_success: bool,
    stdout: Vec<u8>,
    stderr: Vec<u8>,
}

/// The program of the Azure CLI, and how long it may take.
#[derive(Debug)]
pub(super) struct AzureCli {
    program: OsString,
    wait_max: Duration,
}

impl Default for AzureCli {
    fn default() -> AzureCli {
        AzureCli { program: PROGRAM.into(), wait_max: WAIT_MAX }
    }
}

impl AzureCli {
    /// Another program, in place of the one in PATH.
    #[cfg(all(test, unix))]
    pub(super) fn at(program: &std::path::Path) -> AzureCli {
        AzureCli { program: program.into(), ..AzureCli::default() }
    }

    pub(super) async fn token(
        &self,
        scope: &str,
        tenant: Option<&str>,
        now: SystemTime,
    ) -> Result<AccessToken, NoToken> {
        let failed = |why: String, advice: &str| NoToken::new(TokenOrigin::AzureCli, why, advice);
        let by_hand = "Try `az account get-access-token` by hand";
        for (name, text) in [("the scope", Some(scope)), ("AZURE_TENANT_ID", tenant)] {
            if text.is_some_and(|text| !is_plain(text)) {
                let advice = "Check the endpoint of the account and AZURE_TENANT_ID";
                return Err(failed(
                    format!("{name} has characters that are not passed to a program"),
                    advice,
                ));
            }
        }
        let run = timeout(self.wait_max, self.run(scope, tenant)).await;
        let run =
            run.map_err(|_| failed(format!("it took longer than {} s", self.wait_max.as_secs()), by_hand))?;
        let printed = run.map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => {
                let advice = "Install the Azure CLI and run `az login`, or set AZURE_TENANT_ID, \
                              AZURE_CLIENT_ID and AZURE_CLIENT_SECRET";
                failed(format!("`{PROGRAM}` is not in PATH"), advice)
            }
            _ => failed(format!("it does not run: {error}"), by_hand),
        })?;
        if !printed.is_success {
            let advice = "Run `az login`, with --tenant if the account is in another tenant";
            return Err(failed(message(&printed.stderr), advice));
        }
        token_answer::parse(&printed.stdout, now).map_err(|why| failed(why, by_hand))
    }

    /// Runs the Azure CLI to its end, without [`SECRET_VARIABLES`] in its environment. Its process is
    /// killed if this future is dropped.
    async fn run(&self, scope: &str, tenant: Option<&str>) -> std::io::Result<Printed> {
        let mut command = Command::new(&self.program);
        command.args(["account", "get-access-token", "--output", "json", "--scope", scope]);
        if let Some(tenant) = tenant {
            command.args(["--tenant", tenant]);
        }
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
        for name in SECRET_VARIABLES {
            command.env_remove(name);
        }
        // Python may load modules of its working directory, which may be a cloned repository.
        command.current_dir(safe_directory());
        let mut child = command.spawn()?;
        let (stdout, stderr) = tokio::join!(read(child.stdout.take()), read(child.stderr.take()));
        let (stdout, stderr) = (stdout?, stderr?);
        let status = child.wait().await?;
        Ok(Printed { is_success: status.success(), stdout, stderr })
    }
}

async fn read(output: Option<impl AsyncRead + Unpin>) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    if let Some(output) = output {
        output.take(OUTPUT_BYTES_MAX).read_to_end(&mut bytes).await?;
    }
    Ok(bytes)
}

/// A directory that only the system's administrator writes to.
fn safe_directory() -> String {
    match cfg!(windows) {
        true => std::env::var("SystemRoot").unwrap_or_else(|_| "C:\\Windows".to_owned()),
        false => "/".to_owned(),
    }
}

/// Whether a text has only characters of names, addresses and URLs. `az.cmd` is a script of `cmd`, in
/// which other characters have a meaning.
fn is_plain(text: &str) -> bool {
    text.chars().all(|c| c.is_ascii_alphanumeric() || "-._:/[]".contains(c))
}

/// The first line of the program's message that is neither empty nor a warning.
fn message(stderr: &[u8]) -> String {
    let text = String::from_utf8_lossy(stderr);
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with("WARNING"));
    let line =
        lines.map(|line| line.trim_start_matches("ERROR: ")).next().unwrap_or("it failed without a message");
    cut(line.trim_end_matches('.'), MESSAGE_CHARS_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_message_is_the_first_line_that_is_not_a_warning() {
        let stderr = b"WARNING: a new version\n\nERROR: Please run 'az login' to setup account.\nmore\n";
        assert_eq!(message(stderr), "Please run 'az login' to setup account");
        assert_eq!(message(b""), "it failed without a message");
    }

    #[tokio::test]
    async fn a_scope_with_characters_of_a_shell_is_not_passed_to_a_program() {
        let cli = AzureCli::default();
        let failure = cli.token("https://a&calc/.default", None, SystemTime::now()).await.unwrap_err();
        assert!(failure.why().contains("not passed to a program"), "{failure}");
    }

    #[cfg(unix)]
    #[tokio::test]
    async fn the_wait_for_a_program_that_does_not_end_is_limited() {
        use std::os::unix::fs::PermissionsExt;
        let scratch = perihelion_testkit::ScratchDirectory::new();
        let program = scratch.path().join("az");
        std::fs::write(&program, "#!/bin/sh\nexec sleep 600\n").unwrap();
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
        let cli = AzureCli { program: program.into(), wait_max: Duration::from_millis(50) };
        let waited =
            timeout(Duration::from_secs(10), cli.token("https://a/.default", None, SystemTime::now()));
        let failure = waited.await.expect("it ends in time").unwrap_err();
        assert!(failure.why().contains("it took longer than"), "{failure}");
    }
}
