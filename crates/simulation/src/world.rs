//! The world of a simulation: one server and some processes, each on a tokio
//! runtime of its own, all on one thread and with one virtual clock.
//!
//! Time advances in windows. In a window each process runs up to its horizon: the paused clock of its
//! runtime jumps from timer to timer and stops at the moment at which the next answer can come,
//! or at the end of the window. Then the server runs up to the process that is furthest behind,
//! and so on. So an effect of one host on another comes through the server, at its exact time.
//! Only actions of the harness itself, such as a kill at a given moment, happen between two
//! windows. A killed process loses its runtime and all tasks at once, but its locks stay in the
//! container.

use std::cell::Cell;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Once};
use std::time::Duration;

use http::Method;
use perihelion_server::{Embedded, EmbeddedOptions};
use perihelion_wire::transport::{Endpoint, Request, Transport};

use crate::horizon::{Limits, round_up};
use crate::host_runtime::HostRuntime;
use crate::network::{Network, SimulatedTransport};
use crate::process_run::{ProcessRun, Role};
use crate::traffic::Traffic;
use crate::virtual_clock::{self, VirtualClock};

/// The times at which a process gets answers are multiples of this, unless the options say
/// otherwise.
const STEP: Duration = Duration::from_millis(1);

/// The length of a window, unless the options say otherwise.
const WINDOW: Duration = Duration::from_millis(50);

/// How long a management request may take.
const MANAGED_WITHIN: Duration = Duration::from_secs(60);

/// A process's program, called at its start and at every restart.
pub type Program = Arc<dyn Fn(Connection) -> Pin<Box<dyn Future<Output = ()> + Send>> + Send + Sync>;

/// A process's connection to the server.
#[derive(Clone)]
pub struct Connection {
    pub endpoint: Endpoint,
    pub transport: SimulatedTransport,
}

impl Connection {
    /// Another connection to the same server, whose requests never fail.
    pub fn without_faults(&self) -> Connection {
        let process = Arc::new(self.transport.process.faultless_twin());
        Connection {
            endpoint: self.endpoint.clone(),
            transport: SimulatedTransport { process, ..self.transport.clone() },
        }
    }
}

/// A machine with one process, which can be killed and restarted.
struct Host {
    name: String,
    role: Role,
    program: Program,
    /// How far the host's clock is ahead of the server's, in milliseconds.
    clock_skew_ms: i64,
    /// The time from a kill to the restart.
    restart_after: Duration,
    /// The process and its tokio runtime, while it runs.
    running: Option<(HostRuntime, Arc<ProcessRun>)>,
    /// How far the process has run, or the time of its next start.
    reached: Duration,
    /// The number of starts so far.
    start_count: u32,
}

/// The hosts, the server, and the clock.
pub struct World {
    hosts: Vec<Host>,
    embedded: Option<Embedded>,
    /// The tokio runtime of the server.
    server: HostRuntime,
    /// How far the server has run.
    served_until: Duration,
    network: Arc<Network>,
    elapsed: Duration,
    step: Duration,
    window: Duration,
    // The last field, so that everything above is dropped in virtual time.
    clock: VirtualClock,
}

thread_local! {
    /// The number of panics on this thread.
    static PANICS: Cell<u32> = const { Cell::new(0) };
}

/// The options of a world.
#[derive(Debug, Clone)]
pub struct WorldOptions {
    /// The physical partitions of a new container.
    pub partitions: u32,
    /// The request units per second of the container; `None` for no limit.
    pub throughput: Option<u32>,
    /// The options of the account. They replace `partitions` and `throughput`.
    pub account: Option<EmbeddedOptions>,
    /// Counts the requests instead of logging them, if there is one.
    pub traffic: Option<Arc<Traffic>>,
    /// The times at which a process gets answers are multiples of this. Longer steps take less
    /// real time.
    pub step: Duration,
    /// The length of a window. Longer windows take less real time.
    pub window: Duration,
}

impl Default for WorldOptions {
    fn default() -> Self {
        WorldOptions {
            partitions: 1,
            throughput: None,
            account: None,
            traffic: None,
            step: STEP,
            window: WINDOW,
        }
    }
}

/// Runs `scene` in a new world whose container has `partitions` physical partitions, and
/// returns its result. See [`simulate_with`].
pub fn simulate<R: Send>(seed: u64, partitions: u32, scene: impl FnOnce(&mut World) -> R + Send) -> R {
    simulate_with(seed, WorldOptions { partitions, ..WorldOptions::default() }, scene)
}

/// Runs `scene` in a new world, on a thread of its own, and returns its result. On a new
/// thread the first state of hash maps and random numbers depends on the seed only.
pub fn simulate_with<R: Send>(
    seed: u64,
    options: WorldOptions,
    scene: impl FnOnce(&mut World) -> R + Send,
) -> R {
    count_panics();
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            let clock = VirtualClock::begin(seed);
            fastrand::seed(seed);
            let mut world = World::open(clock, options);
            let result = with_log(|| scene(&mut world));
            assert_eq!(PANICS.get(), 0, "a task has panicked");
            result
        });
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// Runs the scene. When `SIMULATION_LOG` is set (to a filter such as
/// `duroxide_cdb=debug`), logs go to standard error. Otherwise nothing is logged: duroxide's
/// runtime would print its warnings to standard output.
fn with_log<R>(scene: impl FnOnce() -> R) -> R {
    let filter = std::env::var("SIMULATION_LOG").unwrap_or_else(|_| "off".to_owned());
    let filter = tracing_subscriber::EnvFilter::new(filter);
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).finish();
    let _until_dropped = tracing_subscriber::util::SubscriberInitExt::set_default(log);
    scene()
}

/// Counts the panics of each thread: tokio catches panics of tasks, so a test would not see
/// them.
fn count_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let default_hook = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            PANICS.set(PANICS.get() + 1);
            default_hook(panic);
        }));
    });
}

impl World {
    fn open(clock: VirtualClock, options: WorldOptions) -> World {
        let server = HostRuntime::new();
        let account = options.account.unwrap_or_else(|| {
            EmbeddedOptions::default().with_partitions(options.partitions).with_throughput(options.throughput)
        });
        let embedded = server.block_on(Embedded::open(account)).expect("the engine opens in memory");
        World {
            hosts: Vec::new(),
            embedded: Some(embedded),
            server,
            served_until: Duration::ZERO,
            network: Arc::new(Network::new(options.traffic)),
            elapsed: Duration::ZERO,
            step: options.step,
            window: options.window,
            clock,
        }
    }

    /// The network between the hosts and the server.
    pub fn network(&self) -> &Arc<Network> {
        &self.network
    }

    /// The virtual time that has passed.
    pub fn elapsed(&self) -> Duration {
        self.elapsed
    }

    /// Adds a host and returns its index. The host's process starts in the next window. The
    /// host's clock is ahead of the server's by `clock_skew_ms`. A killed process is restarted
    /// after `restart_after`.
    pub fn add_host(
        &mut self,
        role: Role,
        clock_skew_ms: i64,
        restart_after: Duration,
        program: Program,
    ) -> usize {
        let name = format!("{role:?}{}", self.hosts.len());
        let reached = self.elapsed;
        let host = Host {
            name,
            role,
            program,
            clock_skew_ms,
            restart_after,
            running: None,
            reached,
            start_count: 0,
        };
        self.hosts.push(host);
        self.hosts.len() - 1
    }

    /// Sets the clock of a host: from now on it is ahead of the server's by `clock_skew_ms`.
    pub fn set_clock_skew_ms(&mut self, host: usize, clock_skew_ms: i64) {
        self.hosts[host].clock_skew_ms = clock_skew_ms;
    }

    /// Sends a management request to the server in the next window: `path` follows
    /// `/_perihelion/`, `body` is JSON or empty. The answer is dropped.
    pub fn manage(&self, method: Method, path: &str, body: String) {
        let Some(embedded) = &self.embedded else { return };
        let (transport, endpoint) = (embedded.transport(), embedded.endpoint());
        let target = format!("/_perihelion/{path}").parse().expect("a path");
        self.server.spawn(async move {
            let deadline = (tokio::time::Instant::now() + MANAGED_WITHIN).into_std();
            let (headers, route) = Default::default();
            let request = Request { endpoint, method, target, headers, body: body.into(), deadline, route };
            drop(transport.send(request).await);
        });
    }

    /// Kills the process of a host, if it runs.
    pub fn kill(&mut self, host: usize) {
        if let Some((_, process)) = &self.hosts[host].running
            && !process.is_killed()
        {
            process.kill();
            self.network.count_kill();
        }
    }

    /// Runs until `is_done` returns `true`, and then returns `true`. Returns `false` if
    /// `time_limit` has passed before, or if there are too many requests.
    pub fn run(&mut self, time_limit: Duration, mut is_done: impl FnMut(&mut World) -> bool) -> bool {
        let end = round_up(self.elapsed + time_limit, self.step);
        while self.elapsed < end && !self.network.has_too_many_requests() {
            self.run_window((self.elapsed + self.window).min(end));
            if is_done(self) {
                return true;
            }
        }
        false
    }

    /// Runs the hosts and the server until this moment.
    fn run_window(&mut self, end: Duration) {
        while self.served_until < end {
            for index in 0..self.hosts.len() {
                self.run_host(index, end);
            }
            let reached = self.hosts.iter().map(|host| host.reached).min();
            self.served_until = reached.map_or(end, |reached| reached.min(end));
            let until = tokio::time::Instant::from_std(virtual_clock::instant(self.served_until));
            self.server.run_until(async { tokio::time::sleep_until(until).await }, || false);
        }
        self.elapsed = end;
        self.clock.set_elapsed(end);
    }

    /// Runs the process of a host up to its horizon, if it is not there yet.
    fn run_host(&mut self, index: usize, end: Duration) {
        self.remove_killed(index);
        self.start_if_due(index, end);
        let limits = Limits { end, floor: self.served_until + self.step, step: self.step };
        let host = &mut self.hosts[index];
        let Some((runtime, process)) = &host.running else { return };
        if process.horizon.target(limits) <= host.reached {
            return;
        }
        self.clock.set_clock_skew_ms(host.clock_skew_ms);
        host.reached = runtime.run_until(process.horizon.reach(limits), || process.is_killed());
        self.clock.set_clock_skew_ms(0);
        self.remove_killed(index);
    }

    /// Drops the process of a host, with all its tasks, if it was killed.
    fn remove_killed(&mut self, index: usize) {
        let host = &mut self.hosts[index];
        if host.running.as_ref().is_some_and(|(_, process)| process.is_killed()) {
            self.clock.set_elapsed(host.reached);
            host.running = None;
            host.reached += host.restart_after;
        }
    }

    /// Starts the process of a host if it does not run and its start is due before `end`.
    fn start_if_due(&mut self, index: usize, end: Duration) {
        let host = &mut self.hosts[index];
        let (Some(embedded), None) = (&self.embedded, &host.running) else { return };
        if host.reached >= end {
            return;
        }
        host.start_count += 1;
        let process = Arc::new(ProcessRun::new(format!("{}.{}", host.name, host.start_count), host.role));
        let transport = SimulatedTransport {
            network: Arc::clone(&self.network),
            process: Arc::clone(&process),
            server: self.server.handle().clone(),
            inner: embedded.transport(),
        };
        // The clock of the new runtime begins with the time of the start.
        self.clock.set_elapsed(host.reached);
        let runtime = HostRuntime::new();
        runtime.spawn((host.program)(Connection { endpoint: embedded.endpoint(), transport }));
        host.running = Some((runtime, process));
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.hosts.clear();
        self.embedded = None;
    }
}
