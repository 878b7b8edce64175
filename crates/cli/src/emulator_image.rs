//! Compatibility with the official emulator image.
//!
//! Test set-ups configure that image by environment variables and arguments.
//! `perihelion server` accepts all of them, so that a test set-up only changes the
//! name of the image. Variables with an equivalent option take effect. The other
//! variables are ignored; an ignored `CERT_PATH` causes a warning. `dev` does not read
//! the variables: on a laptop `PORT` or `DATA_PATH` may belong to another program.

use std::path::PathBuf;
use std::str::FromStr;

use clap::{Args, ValueEnum};

use crate::args::{Level, ServeArgs, is_on};
use crate::exit::Failure;

/// The part of `server --help` about the image.
pub(crate) const HELP: &str = "\
Environment variables of the official emulator image:
  PORT                     as --port
  DATA_PATH                as --data
  KEY_FILE                 as --key-file
  LOG_LEVEL                as --log
  GATEWAY_PUBLIC_ENDPOINT  as --public-endpoint
  PROTOCOL                 no effect: http and https are both served
  CERT_PATH                no effect, with a warning: see `perihelion cert`
  CERT_SECRET              no effect
  ENABLE_EXPLORER          true: as --explorer. With any value also as --open-account:
                           the account document needs no signature
  EXPLORER_PORT, EXPLORER_PROTOCOL, ENABLE_TELEMETRY,
  ENABLE_OTLP_EXPORTER, ENABLE_CONSOLE_EXPORTER
                           no effect
Options and PERIHELION_ variables win over these. The image's arguments of the
same meaning are accepted too. The lines \"Now listening on: http://...\" and
\"Started\" appear on standard output once the server answers.";

// Arguments of the image for which `ServeArgs` has no option. `--cert-path` causes a warning.
// `--enable-explorer` opens the account document, and starts the dashboard unless its value means no.
// The other arguments have no effect. This is not a documentation comment, because clap would show
// such a comment as the help of `server`.
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

/// Sets options that are not on the command line to the values of the image's variables, and
/// returns the warnings. `variable` reads the environment.
pub(crate) fn apply(
    args: &mut ServeArgs,
    image: &ImageArgs,
    variable: impl Fn(&str) -> Option<String>,
) -> Result<Vec<String>, Failure> {
    // Compose files set a variable to "" when it has no value.
    let variable = |name: &str| variable(name).filter(|value| !value.is_empty());
    if args.port.is_none() {
        args.port = variable("PORT").map(|value| parse("PORT", &value, u16::from_str)).transpose()?;
    }
    if args.data.is_none() {
        args.data = variable("DATA_PATH").map(PathBuf::from);
    }
    if args.key.is_none() && args.key_file.is_none() {
        args.key_file = variable("KEY_FILE").map(PathBuf::from);
    }
    if args.public_endpoint.is_none() {
        args.public_endpoint = variable("GATEWAY_PUBLIC_ENDPOINT");
    }
    if args.log.is_none() {
        let level = |text: &str| Level::from_str(text, true);
        args.log = variable("LOG_LEVEL").map(|value| parse("LOG_LEVEL", &value, level)).transpose()?;
    }
    // A set-up that configures the explorer, even to switch it off, was written for the
    // image. It may be a test container that waits until an unsigned GET / is answered.
    args.open_account |= image.enable_explorer.is_some() || variable("ENABLE_EXPLORER").is_some();
    let has_certificate = image.cert_path.is_some() || variable("CERT_PATH").is_some();
    let warning = "CERT_PATH is ignored: the server creates its own certificate, see `perihelion cert`";
    Ok(if has_certificate { vec![warning.to_owned()] } else { Vec::new() })
}

/// Whether the image's argument or variable asks for the explorer.
pub(crate) fn wants_explorer(image: &ImageArgs, variable: impl Fn(&str) -> Option<String>) -> bool {
    match &image.enable_explorer {
        Some(None) => true,
        Some(Some(value)) => is_on(value),
        None => variable("ENABLE_EXPLORER").is_some_and(is_on),
    }
}

/// Parses the value of a variable with `read`. The failure names the variable.
fn parse<T, E: std::fmt::Display>(
    name: &str,
    value: &str,
    read: impl FnOnce(&str) -> Result<T, E>,
) -> Result<T, Failure> {
    read(value).map_err(|error| {
        let message = format!("the environment variable {name} is {value:?}: {error}");
        Failure::usage(
            message,
            "this variable of the official emulator image is read too, see `perihelion server --help`",
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn apply_all(args: &mut ServeArgs, variables: &[(&str, &str)]) -> Result<Vec<String>, Failure> {
        let find = |name: &str| {
            variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
        };
        apply(args, &ImageArgs::default(), find)
    }

    #[test]
    fn variables_of_the_emulator_image_set_options_that_are_not_on_the_command_line() {
        let mut args = ServeArgs { port: Some(1), ..ServeArgs::default() };
        let variables = [
            ("PORT", "9"),
            ("DATA_PATH", "/data"),
            ("KEY_FILE", "/key"),
            ("LOG_LEVEL", "QUIET"),
            ("GATEWAY_PUBLIC_ENDPOINT", "https://cosmos:8081"),
        ];
        let warnings = apply_all(&mut args, &variables).expect("valid");
        assert!(warnings.is_empty());
        assert_eq!(args.port, Some(1), "an option of the command line wins");
        assert_eq!(args.data, Some(PathBuf::from("/data")));
        assert_eq!(args.key_file, Some(PathBuf::from("/key")));
        assert_eq!(args.log, Some(Level::Off));
        assert_eq!(args.public_endpoint.as_deref(), Some("https://cosmos:8081"));
    }

    #[test]
    fn an_invalid_variable_is_wrong_usage_and_is_named() {
        let failure = apply_all(&mut ServeArgs::default(), &[("PORT", "eighty")]).expect_err("not a port");
        assert_eq!(failure.code(), 2);
        assert!(format!("{failure:?}").contains("PORT"));
    }

    #[test]
    fn an_ignored_certificate_gets_a_warning_and_an_empty_variable_counts_as_unset() {
        let warnings =
            apply_all(&mut ServeArgs::default(), &[("CERT_PATH", "/x.pfx"), ("PORT", "")]).expect("valid");
        assert_eq!(warnings.len(), 1);
    }
}
