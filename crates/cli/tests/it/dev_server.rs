//! A running `dev` server, and commands that name it with `--endpoint`.

use std::process::{Command, Output};

use perihelion_testkit::ScratchDirectory;

use crate::program::{RunningServer, command, text};

/// A server with data in memory, on a port of its own.
pub(crate) struct DevServer {
    pub(crate) server: RunningServer,
    pub(crate) endpoint: String,
    /// The cache of the server and of all commands.
    pub(crate) scratch: ScratchDirectory,
}

impl DevServer {
    pub(crate) fn start() -> DevServer {
        let scratch = ScratchDirectory::new();
        let server = RunningServer::start(&mut command(&scratch, &["dev", "--port", "0"]));
        DevServer { endpoint: server.endpoint(), server, scratch }
    }

    /// A command for this server.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        command(&self.scratch, &[arguments, &["--endpoint", &self.endpoint]].concat())
    }

    /// Runs a command for this server to its end.
    pub(crate) fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().expect("the binary runs")
    }

    /// Runs a command that must succeed, and returns its standard output.
    pub(crate) fn succeed(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        assert!(output.status.success(), "{arguments:?}: {}", text(&output.stderr));
        text(&output.stdout)
    }
}
