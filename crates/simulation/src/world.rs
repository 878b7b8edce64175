//! The world of a simulation: one server and some processes, each on a tokio
//! runtime of its own, all on one thread and with one virtual clock.
//!
//! Time goes in steps. In a step every host runs until the same moment: the paused clock of
//! its runtime jumps from timer to timer and stops at that moment. A step is short while
//! requests are under way and grows while nothing happens. An effect of one host reaches another
//! host in a later step, so no effect comes before its cause. A killed process loses its
//! runtime and all tasks at once, but its locks stay in the container.

use std::cell::Cell;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Once};
use std::time::Duration;

use http::Method;
use perihelion_server::{Embedded, EmbeddedOptions};
use perihelion_wire::transport::{Endpoint, Request, Transport};
use tokio::runtime::{Builder, Runtime};

use crate::network::{Network, SimulatedTransport};
use crate::process_run::{ProcessRun, Role};
use crate::traffic::Traffic;
use crate::virtual_clock::VirtualClock;

/// The length of a step while requests are under way, unless the options say otherwise.
const STEP_MIN: Duration = Duration::from_millis(1);

/// The longest step. A host may see an effect of another host this late. Locks and poll
/// intervals are much longer.
const STEP_MAX: Duration = Duration::from_millis(50);

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
        let process = Arc::new(ProcessRun::new("faultless".to_owned(), Role::Faultless));
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
    running: Option<(Runtime, Arc<ProcessRun>)>,
    /// The time of the next start, if the process does not run.
    starts_at: Duration,
    /// The number of starts so far.
    start_count: u32,
}

/// The hosts, the server, and the clock.
pub struct World {
    hosts: Vec<Host>,
    embedded: Option<Embedded>,
    /// The tokio runtime of the server.
    server: Runtime,
    network: Arc<Network>,
    elapsed: Duration,
    /// The length of the next step.
    step: Duration,
    /// The length of a step while requests are under way.
    step_min: Duration,
    // The last field, so that everything above is dropped in virtual time.
    shim: VirtualClock,
}

thread_local! {
    /// The number of panics on this thread.
    static PANICS: Cell<u32> = const { Cell::new(0) };
}

/// What a world is made of.
#[derive(Debug, Clone)]
pub struct WorldOptions {
    /// The physical partitions of a new container.
    pub partitions: u32,
    /// The request units per second of the container; `None` for no limit.
    pub throughput: Option<u32>,
    /// The whole account, instead of partitions and throughput.
    pub account: Option<EmbeddedOptions>,
    /// Counts the requests instead of logging them, if there is one.
    pub traffic: Option<Arc<Traffic>>,
    /// The length of a step while requests are under way. Longer steps take less real time.
    pub step_min: Duration,
}

impl Default for WorldOptions {
    fn default() -> Self {
        WorldOptions { partitions: 1, throughput: None, account: None, traffic: None, step_min: STEP_MIN }
    }
}

/// Runs `scene` in a new world whose container has `partitions` physical partitions, and
/// returns its result. See [`simulate_with`].
pub fn simulate<R: Send>(seed: u64, partitions: u32, scene: impl FnOnce(&mut World) -> R + Send) -> R {
    simulate_with(seed, WorldOptions { partitions, ..WorldOptions::default() }, scene)
}

/// [`simulate`] with an account of these options, such as its regions.
pub fn simulate_account<R: Send>(
    seed: u64,
    account: EmbeddedOptions,
    scene: impl FnOnce(&mut World) -> R + Send,
) -> R {
    simulate_with(seed, WorldOptions { account: Some(account), ..WorldOptions::default() }, scene)
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
            let shim = VirtualClock::begin(seed);
            fastrand::seed(seed);
            let mut world = World::open(shim, options);
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

/// A new tokio runtime on the current thread, with a paused clock.
fn new_runtime() -> Runtime {
    Builder::new_current_thread().enable_time().start_paused(true).build().expect("a runtime starts")
}

impl World {
    fn open(shim: VirtualClock, options: WorldOptions) -> World {
        let server = new_runtime();
        let account = options.account.unwrap_or_else(|| {
            EmbeddedOptions::default().with_partitions(options.partitions).with_throughput(options.throughput)
        });
        let embedded = server.block_on(Embedded::open(account)).expect("the engine opens in memory");
        World {
            hosts: Vec::new(),
            embedded: Some(embedded),
            server,
            network: Arc::new(Network::new(options.traffic)),
            elapsed: Duration::ZERO,
            step: options.step_min,
            step_min: options.step_min,
            shim,
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

    /// Adds a host and returns its index. The host's process starts in the next step. The
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
        let starts_at = self.elapsed;
        let host = Host {
            name,
            role,
            program,
            clock_skew_ms,
            restart_after,
            running: None,
            starts_at,
            start_count: 0,
        };
        self.hosts.push(host);
        self.hosts.len() - 1
    }

    /// Steps the clock of a host: from now on it is ahead of the server's by `clock_skew_ms`.
    pub fn set_clock_skew_ms(&mut self, host: usize, clock_skew_ms: i64) {
        self.hosts[host].clock_skew_ms = clock_skew_ms;
    }

    /// Sends a management request to the server in the next step: `path` follows
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
        let end = self.elapsed + time_limit;
        while self.elapsed < end && !self.network.has_too_many_requests() {
            self.step_once();
            if is_done(self) {
                return true;
            }
        }
        false
    }

    /// Runs the server and then each host for one step.
    fn step_once(&mut self) {
        let until = self.elapsed + self.step;
        run_until(&self.server, &self.shim, until);
        for index in 0..self.hosts.len() {
            self.remove_killed(index);
            self.start_if_due(index);
            let host = &self.hosts[index];
            if let Some((runtime, _)) = &host.running {
                self.shim.set_clock_skew_ms(host.clock_skew_ms);
                run_until(runtime, &self.shim, until);
                self.shim.set_clock_skew_ms(0);
            }
        }
        self.elapsed = until;
        self.shim.set_elapsed(until);
        let is_active = self.network.take_activity();
        self.step = if is_active { self.step_min } else { (self.step * 2).min(STEP_MAX) };
    }

    /// Drops the process of a host, with all its tasks, if it was killed.
    fn remove_killed(&mut self, index: usize) {
        let host = &mut self.hosts[index];
        if host.running.as_ref().is_some_and(|(_, process)| process.is_killed()) {
            host.running = None;
            host.starts_at = self.elapsed + host.restart_after;
        }
    }

    /// Starts the process of a host if it does not run and its start is due.
    fn start_if_due(&mut self, index: usize) {
        let host = &mut self.hosts[index];
        let (Some(embedded), None) = (&self.embedded, &host.running) else { return };
        if host.starts_at > self.elapsed {
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
        let runtime = new_runtime();
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

/// Runs the tasks of a runtime until this moment of virtual time.
fn run_until(runtime: &Runtime, shim: &VirtualClock, until: Duration) {
    let until = tokio::time::Instant::from_std(shim.instant(until));
    runtime.block_on(async { tokio::time::sleep_until(until).await });
}
