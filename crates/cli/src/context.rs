//! `Context`: the account and the container that a verb works on, and the form of its result.
//! Every verb of a noun gets a context.

use std::io::IsTerminal;
use std::time::{Duration, SystemTime};

use clap::Args;
use duroxide::providers::ProviderError;
use duroxide_cdb::{ContainerName, CosmosDBProvider};
use perihelion_client::{Client, Container, Error, ErrorKind};
use serde::Serialize;

use crate::account::{Account, AccountArgs, NameArgs};
use crate::args::parse_time;
use crate::exit::Failure;
use crate::output::table::Column;
use crate::output::text::escaped;
use crate::output::{Form, OutputArgs, refuse_endless_json};
use crate::process::{Signals, print, tell};

// The options of every verb. Not a documentation comment: clap would show it as the help.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct CommonArgs {
    #[command(flatten)]
    output: OutputArgs,
    #[command(flatten)]
    names: NameArgs,
    #[command(flatten)]
    account: AccountArgs,
}

// The option of verbs that show something that changes.
#[derive(Clone, Copy, Debug, Default, Args)]
pub(crate) struct WatchArgs {
    /// Show it again and again until Ctrl-C, every 2s or as often as given: --watch=500ms. Not with -o
    /// json
    #[arg(long, value_name = "TIME", num_args = 0..=1, default_missing_value = "2s", require_equals = true)]
    #[arg(value_parser = interval)]
    watch: Option<Duration>,
}

/// The shortest and the longest pause of `--watch`. Each repetition costs requests.
const INTERVALS: std::ops::RangeInclusive<Duration> = Duration::from_millis(100)..=Duration::from_secs(3600);

fn interval(text: &str) -> Result<Duration, String> {
    parse_time(text)
        .filter(|time| INTERVALS.contains(time))
        .ok_or_else(|| format!("`{text}` is not a time from 100ms to 1h: write it like 500ms or 2s"))
}

/// Moves to the beginning of the screen and erases what follows. Earlier lines stay in the
/// terminal's history.
const ERASE_SCREEN: &str = "\x1b[H\x1b[J";

/// The account and the container that a verb works on, and the form of its result.
#[derive(Clone, Debug)]
pub(crate) struct Context {
    pub(crate) account: Account,
    pub(crate) form: Form,
}

impl CommonArgs {
    pub(crate) fn resolve(&self) -> Result<Context, Failure> {
        let context = self.resolve_unchecked()?;
        context.account.check_names()?;
        Ok(context)
    }

    /// The context, also with names that no container can have. `doctor` reports them itself.
    pub(crate) fn resolve_unchecked(&self) -> Result<Context, Failure> {
        let account = self.account.resolve_with(&self.names)?;
        Ok(Context { account, form: self.output.output })
    }
}

impl Context {
    /// This context with another container, if one is given.
    pub(crate) fn in_container(&self, name: Option<ContainerName>) -> Context {
        let mut context = self.clone();
        if let Some(ContainerName { database, container }) = name {
            (context.account.database, context.account.container) = (database, container);
            // The note says that perihelion.toml gave the names, but these are from the command line.
            context.account.names_note.clear();
        }
        context
    }

    /// Runs `work` with a client of the account.
    pub(crate) async fn with_client<R>(
        &self,
        work: impl AsyncFnOnce(&Client) -> Result<R, Failure>,
    ) -> Result<R, Failure> {
        self.account.run(work).await
    }

    /// Runs `work` with the container.
    pub(crate) async fn with_container<R>(
        &self,
        work: impl AsyncFnOnce(&Container) -> Result<R, Failure>,
    ) -> Result<R, Failure> {
        let Account { database, container, .. } = &self.account;
        self.account.run(async |client| work(&client.database(database).container(container)).await).await
    }

    /// Runs `work` with a provider on the container, which must exist.
    pub(crate) async fn with_provider<R>(
        &self,
        work: impl AsyncFnOnce(&CosmosDBProvider) -> Result<R, Failure>,
    ) -> Result<R, Failure> {
        let open = async |client: &Client| {
            let provider = CosmosDBProvider::builder()
                .with_client(client.clone())
                .with_database(&self.account.database)
                .with_container(&self.account.container)
                .for_tools()
                .open()
                .await
                .map_err(|error| self.opening_failed(error))?;
            let result = work(&provider).await;
            provider.close().await;
            result
        };
        self.account.run(open).await
    }

    /// Prints the outcome of a verb as JSON, for programs. In the form of a table nothing is printed,
    /// because the verb has told people on standard error.
    pub(crate) fn print_done<T: Serialize>(&self, done: &T) -> Result<(), Failure> {
        match self.form {
            Form::Table => Ok(()),
            Form::Json | Form::Jsonl => print(&self.form.single(done, &[])?),
        }
    }

    /// The container, for messages.
    pub(crate) fn container_name(&self) -> String {
        format!("{}/{}", self.account.database, self.account.container)
    }

    /// The container, the account and the places that named them, for the messages of verbs that
    /// change something.
    pub(crate) fn target(&self) -> String {
        format!("{} on {}{}", self.container_name(), self.account.described(), self.account.names_note)
    }

    /// Says on standard error which action follows, and where.
    pub(crate) fn announce(&self, action: &str) {
        tell(escaped(&format!("{action} in {}", self.target())));
    }

    fn opening_failed(&self, error: ProviderError) -> Failure {
        let MissingContainer(message) = self.missing_container();
        match error.message == message {
            true => Failure::not_found(message).with_advice(&format!(
                "check --database and --container; `perihelion container list` shows what there is. A worker \
                 creates it when it starts, as does `perihelion container create {} --workflows`",
                self.container_name()
            )),
            false => Failure::provider(error),
        }
    }

    /// The failure of a request to the container or one of its items. `what` names the request. If the
    /// container does not exist, the message is about the container.
    pub(crate) fn request_failed(&self, what: &str, error: &Error) -> Failure {
        if error.is_container_not_found() {
            return self.missing_container().into_failure();
        }
        match error.kind() {
            _ if error.is_not_found() => {
                Failure::not_found(format!("{what}: there is no such item in {}", self.container_name()))
            }
            ErrorKind::Input => Failure::usage(
                format!("{what}: {}", first_line(&error.to_string())),
                "see --help for the forms",
            ),
            _ => Failure::runtime(format!("{what}: {}", first_line(&error.to_string()))),
        }
    }

    /// The failure of a request that reads the properties of the container.
    pub(crate) fn container_failed(&self, error: &Error) -> Failure {
        match error.is_not_found() {
            true => self.missing_container().into_failure(),
            false => Failure::runtime(format!(
                "cannot read {}: {}",
                self.container_name(),
                first_line(&error.to_string())
            )),
        }
    }

    fn missing_container(&self) -> MissingContainer {
        MissingContainer(format!("the container {} does not exist", self.container_name()))
    }

    /// Prints a list.
    pub(crate) fn print_list<T: Serialize>(&self, columns: &[Column<T>], rows: &[T]) -> Result<(), Failure> {
        print(&self.form.list(columns, rows, now_ms())?)
    }

    /// Prints the text that `render` returns: once, or with --watch again and again. With --watch a
    /// transient failure is printed too, and does not end the command.
    pub(crate) async fn show(
        &self,
        watch: WatchArgs,
        mut render: impl AsyncFnMut(&CosmosDBProvider) -> Result<String, Failure>,
    ) -> Result<(), Failure> {
        if watch.watch.is_some() && self.form == Form::Json {
            return Err(refuse_endless_json("--watch shows a result again and again"));
        }
        self.with_provider(async |provider| match watch.watch {
            Some(interval) => self.repeat(interval, async || render(provider).await).await,
            None => print(&render(provider).await?),
        })
        .await
    }

    /// Prints the text that `render` returns again and again, until a signal.
    async fn repeat(
        &self,
        interval: Duration,
        mut render: impl AsyncFnMut() -> Result<String, Failure>,
    ) -> Result<(), Failure> {
        let mut signals = Signals::listen()?;
        let is_terminal = std::io::stdout().is_terminal();
        loop {
            let rendered = tokio::select! {
                rendered = render() => rendered,
                _ = signals.next() => return Ok(()),
            };
            match rendered {
                Ok(text) if is_terminal => print(&format!("{ERASE_SCREEN}{text}"))?,
                Ok(text) => print(&text)?,
                Err(failure) if failure.is_transient() => tell(escaped(failure.message())),
                Err(failure) => return Err(failure),
            }
            tokio::select! {
                () = tokio::time::sleep(interval) => {}
                _ = signals.next() => return Ok(()),
            }
        }
    }
}

/// The message about a container that does not exist. The provider has the same message.
struct MissingContainer(String);

impl MissingContainer {
    fn into_failure(self) -> Failure {
        Failure::not_found(self.0)
            .with_advice("check --database and --container; `perihelion container list` shows what there is")
    }
}

/// The first line of the service's message. Details of the request follow it.
pub(crate) fn first_line(message: &str) -> &str {
    message.lines().next().unwrap_or_default().trim_end_matches([',', ' ', '\r'])
}

/// Milliseconds since 1970.
pub(crate) fn now_ms() -> u64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_millis()).unwrap_or(u64::MAX)
}
