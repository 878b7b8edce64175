//! `Dashboard`: starts the dashboard on a socket, and ends it when it is dropped.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use perihelion_client::Client;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use crate::access::{Access, Secret};
use crate::app::{Acted, App};
use crate::bulk::Jobs;
use crate::http::Listener;
use crate::once::Once;
use crate::samples::Samples;
use crate::site;
use crate::source::{ReadCounters, Source};

/// The options of a dashboard: what it shows, and who may use it.
#[derive(Clone, Default)]
#[non_exhaustive]
pub struct DashboardOptions {
    /// The database of the workflows.
    pub database: String,
    /// The container of the workflows.
    pub container: String,
    /// The account, as pages name it. It must not contain a key.
    pub account: String,
    /// Whether the dashboard only reads, and changes no workflow and no item.
    pub is_read_only: bool,
    /// The token that a person types to sign in: at least 16 and at most 1,000 ASCII letters, digits
    /// and signs, without spaces. If this is `None`, a random token is made when `needs_token` is set,
    /// or when other machines can reach the dashboard.
    pub token: Option<String>,
    /// Whether people must sign in even if only this machine can reach the dashboard.
    pub needs_token: bool,
    /// Reads the server's counters, for charts.
    pub counters: Option<ReadCounters>,
}

impl DashboardOptions {
    /// A dashboard of the workflows in this container.
    pub fn new(database: impl Into<String>, container: impl Into<String>) -> Self {
        DashboardOptions { database: database.into(), container: container.into(), ..Self::default() }
    }

    /// Sets the account, as pages name it.
    pub fn with_account(mut self, account: impl Into<String>) -> Self {
        self.account = account.into();
        self
    }

    /// Sets whether the dashboard only reads, and changes no workflow and no item.
    pub fn with_read_only(mut self, is_read_only: bool) -> Self {
        self.is_read_only = is_read_only;
        self
    }

    /// Sets the token that a person types to sign in.
    pub fn with_token(mut self, token: impl Into<String>) -> Self {
        self.token = Some(token.into());
        self
    }

    /// Sets whether people must sign in even if only this machine can reach the dashboard.
    pub fn with_token_needed(mut self, needs_token: bool) -> Self {
        self.needs_token = needs_token;
        self
    }

    /// Sets the function that reads the server's counters, for charts.
    pub fn with_counters(mut self, counters: ReadCounters) -> Self {
        self.counters = Some(counters);
        self
    }
}

/// Why a dashboard cannot start.
#[derive(Debug)]
pub struct StartError(String);

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for StartError {}

/// A dashboard that runs. Dropping it ends it and closes its connections. Its bulk actions then change no
/// further workflow; the changes that are under way are finished if the runtime goes on. A program that
/// ends calls [`close`](Dashboard::close), which waits for them.
#[derive(Debug)]
pub struct Dashboard {
    listener: Listener,
    /// The token that was made; `None` if it was given or is not needed.
    made_token: Option<Secret>,
    sampling: Option<JoinHandle<()>>,
    jobs: Arc<Jobs>,
    sent_forms: Arc<Once<Acted>>,
}

impl Dashboard {
    /// Starts a dashboard on a bound socket. Sends no request to the account until a page is opened:
    /// the account may be unreachable, and the container may be missing. If there are counters, they
    /// are read every five seconds from the start on, so that charts also show the time before their page
    /// was opened.
    pub fn start(
        socket: TcpListener,
        client: Client,
        options: DashboardOptions,
    ) -> Result<Dashboard, StartError> {
        let failed =
            |error: std::io::Error| StartError(format!("the dashboard cannot use its socket: {error}"));
        let no_random = |error| StartError(format!("the system gives no random numbers: {error}"));
        let address = socket.local_addr().map_err(failed)?;
        let is_loopback = address.ip().to_canonical().is_loopback();
        let mut made_token = None;
        let token = match options.token {
            Some(text) => Some(Secret::chosen(&text).ok_or_else(|| {
                StartError(
                    "the dashboard's token must be at least 16 and at most 1,000 ASCII letters, digits or signs"
                        .to_owned(),
                )
            })?),
            None if is_loopback && !options.needs_token => None,
            None => {
                let token = Secret::random().map_err(no_random)?;
                made_token = Some(token.clone());
                Some(token)
            }
        };
        let counters = options.counters.clone();
        let jobs = Arc::<Jobs>::default();
        let sent_forms = Arc::<Once<Acted>>::default();
        let names = (options.database, options.container);
        let app = Arc::new(App {
            source: Source::new(client, names, options.account, options.counters),
            access: Access::new(is_loopback, token, address.port()).map_err(no_random)?,
            is_read_only: options.is_read_only,
            hub: Arc::default(),
            notices: Default::default(),
            sent_forms: Arc::clone(&sent_forms),
            jobs: Arc::clone(&jobs),
            samples: Arc::<Samples>::default(),
            details: Default::default(),
        });
        let sampling = counters.map(|read| {
            let app_of_sampling = Arc::clone(&app);
            app.samples.collect(read, move || app_of_sampling.source.own_units())
        });
        let listener = Listener::serve(socket, move |request| site::answer(Arc::clone(&app), request));
        Ok(Dashboard { listener: listener.map_err(failed)?, made_token, sampling, jobs, sent_forms })
    }

    /// The address that it listens on.
    pub fn address(&self) -> SocketAddr {
        self.listener.address()
    }

    /// Ends the dashboard. Stops its bulk actions, and waits for their changes and for other actions that are
    /// under way, for `wait_max` at most. Returns the bulk actions that are not finished, each in words for
    /// the person who has ended the dashboard.
    pub async fn close(self, wait_max: Duration) -> Vec<String> {
        let ended = tokio::time::timeout(wait_max, self.sent_forms.ended());
        tokio::join!(self.jobs.close(wait_max), ended).0
    }

    /// The token that was made for this run; `None` if it was given or is not needed.
    pub fn made_token(&self) -> Option<&str> {
        self.made_token.as_ref().map(Secret::reveal)
    }

    /// The path of the link that signs a person in with the token that was made; `None` if the token was
    /// given or is not needed. The token is behind a `#`, which browsers do not send.
    pub fn sign_in_path(&self) -> Option<String> {
        self.made_token().map(|token| format!("/#token={token}"))
    }
}

impl Drop for Dashboard {
    fn drop(&mut self) {
        self.jobs.stop();
        if let Some(sampling) = &self.sampling {
            sampling.abort();
        }
    }
}
