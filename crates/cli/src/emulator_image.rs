//! Being a drop-in for the official emulator image.
//!
//! Test set-ups configure that image by environment variables and arguments;
//! `perihelion server` takes them all, so that only an image name changes.
//! Those that ask for something we have are obeyed, the others are tolerated,
//! and what somebody would miss is said in a warning. `dev` ignores them: on
//! a laptop a stray `PORT` or `DATA_PATH` belongs to another program.

use std::path::PathBuf;
use std::str::FromStr;

use clap::{Args, ValueEnum};

use crate::args::{Level, ServeArgs};
use crate::exit::Failure;

/// What `server --help` says about it.
pub(crate) const HELP: &str = "\
Environment variables of the official emulator image:
  PORT                     as --port
  DATA_PATH                as --data
  KEY_FILE                 as --key-file
  LOG_LEVEL                as --log
  GATEWAY_PUBLIC_ENDPOINT  as --public-endpoint
  PROTOCOL                 no effect: http and https are both served
  CERT_PATH, CERT_SECRET   no effect, with a warning: see `perihelion cert`
  ENABLE_EXPLORER          as --open-account: the account document needs no signature
  EXPLORER_PORT, EXPLORER_PROTOCOL, ENABLE_TELEMETRY,
  ENABLE_OTLP_EXPORTER, ENABLE_CONSOLE_EXPORTER
                           no effect
Options and PERIHELION_ variables win over these. The image's arguments of the
same meaning are accepted too. The lines \"Now listening on: http://...\" and
\"Started\" appear on standard output once the server answers.";

// Arguments of the image that have no effect here. Not a documentation comment:
// clap would show it as the help of `server`.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct ImageArgs {
    #[arg(long, hide = true)]
    protocol: Option<String>,
    #[arg(long, hide = true)]
    cert_path: Option<String>,
    #[arg(long, hide = true)]
    cert_secret: Option<String>,
    #[arg(long, hide = true, num_args = 0..=1)]
    enable_explorer: Option<Option<String>>,
    #[arg(long, hide = true)]
    explorer_port: Option<String>,
    #[arg(long, hide = true)]
    explorer_protocol: Option<String>,
    #[arg(long, hide = true, num_args = 0..=1)]
    enable_telemetry: Option<Option<String>>,
    #[arg(long, hide = true, alias = "enable-otlp-exporter", num_args = 0..=1)]
    enable_otlp: Option<Option<String>>,
    #[arg(long, hide = true, alias = "enable-console-exporter", num_args = 0..=1)]
    enable_console: Option<Option<String>>,
}

/// Fills what was not typed from the image's variables, and returns what the
/// user should hear about. `variable` reads the environment.
pub(crate) fn apply(
    typed: &mut ServeArgs,
    image: &ImageArgs,
    variable: impl Fn(&str) -> Option<String>,
) -> Result<Vec<String>, Failure> {
    // An empty variable is how compose files say "not set".
    let variable = |name: &str| variable(name).filter(|value| !value.is_empty());
    if typed.port.is_none() {
        typed.port = variable("PORT").map(|value| parse("PORT", &value, u16::from_str)).transpose()?;
    }
    if typed.data.is_none() {
        typed.data = variable("DATA_PATH").map(PathBuf::from);
    }
    if typed.key.is_none() && typed.key_file.is_none() {
        typed.key_file = variable("KEY_FILE").map(PathBuf::from);
    }
    if typed.public_endpoint.is_none() {
        typed.public_endpoint = variable("GATEWAY_PUBLIC_ENDPOINT");
    }
    if typed.log.is_none() {
        let level = |text: &str| Level::from_str(text, true);
        typed.log = variable("LOG_LEVEL").map(|value| parse("LOG_LEVEL", &value, level)).transpose()?;
    }
    // Whoever configures the explorer believes to start the image, and may be
    // a test container that waits for GET / to answer.
    typed.open_account |= image.enable_explorer.is_some() || variable("ENABLE_EXPLORER").is_some();
    let certificate = image.cert_path.is_some() || variable("CERT_PATH").is_some();
    let advice = "CERT_PATH is ignored: the server makes its own certificate, see `perihelion cert`";
    Ok(if certificate { vec![advice.to_owned()] } else { Vec::new() })
}

fn parse<T, E: std::fmt::Display>(
    name: &str,
    value: &str,
    read: impl FnOnce(&str) -> Result<T, E>,
) -> Result<T, Failure> {
    read(value).map_err(|error| {
        let what = format!("the environment variable {name} is {value:?}: {error}");
        Failure::usage(
            what,
            "it is read as the official emulator image reads it, see `perihelion server --help`",
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn applied(typed: &mut ServeArgs, variables: &[(&str, &str)]) -> Result<Vec<String>, Failure> {
        let find = |name: &str| {
            variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
        };
        apply(typed, &ImageArgs::default(), find)
    }

    #[test]
    fn the_images_variables_fill_what_was_not_typed() {
        let mut typed = ServeArgs { port: Some(1), ..ServeArgs::default() };
        let variables = [
            ("PORT", "9"),
            ("DATA_PATH", "/data"),
            ("KEY_FILE", "/key"),
            ("LOG_LEVEL", "QUIET"),
            ("GATEWAY_PUBLIC_ENDPOINT", "https://cosmos:8081"),
        ];
        let notes = applied(&mut typed, &variables).expect("applied");
        assert!(notes.is_empty());
        assert_eq!(typed.port, Some(1), "what was typed wins");
        assert_eq!(typed.data, Some(PathBuf::from("/data")));
        assert_eq!(typed.key_file, Some(PathBuf::from("/key")));
        assert_eq!(typed.log, Some(Level::Off));
        assert_eq!(typed.public_endpoint.as_deref(), Some("https://cosmos:8081"));
    }

    #[test]
    fn a_senseless_variable_is_wrong_usage_and_names_itself() {
        let failure = applied(&mut ServeArgs::default(), &[("PORT", "eighty")]).expect_err("not a port");
        assert_eq!(failure.code(), 2);
        assert!(format!("{failure:?}").contains("PORT"));
    }

    #[test]
    fn an_ignored_certificate_is_mentioned_and_an_empty_variable_is_none() {
        let notes =
            applied(&mut ServeArgs::default(), &[("CERT_PATH", "/x.pfx"), ("PORT", "")]).expect("applied");
        assert_eq!(notes.len(), 1);
    }
}
