//! A world: one server and some processes, each on a tokio runtime of its own,
//! all on this thread and by one virtual clock.
//!
//! The world goes on in steps. In a step every host runs until the same moment:
//! its paused clock goes from timer to timer and stops there. A step is short
//! while requests are under way and grows while nothing happens. What one host
//! does reaches another in the next step, so that nothing comes before its
//! cause. Killing a process drops its runtime with every task where it stands;
//! none gets to say goodbye, and its locks stay.

use std::cell::Cell;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Once};
use std::time::Duration;

use perihelion_server::{Embedded, EmbeddedOptions};
use perihelion_wire::transport::Endpoint;
use tokio::runtime::{Builder, Runtime};

use crate::libc_shim::Virtual;
use crate::network::{Life, Network, Role, Tap};

/// The length of a step while requests are under way: what timers count in.
const STEP_MIN: Duration = Duration::from_millis(1);

/// The longest step: what a timer of one host may make another wait, beside
/// which a lock's seconds and a poll's interval are long.
const STEP_MAX: Duration = Duration::from_millis(50);

/// What a process runs, from its start; called again when it is restarted.
pub(crate) type Program = Arc<dyn Fn(Site) -> Pin<Box<dyn Future<Output = ()> + Send>> + Send + Sync>;

/// Where a process finds itself.
#[derive(Clone)]
pub(crate) struct Site {
    pub(crate) endpoint: Endpoint,
    pub(crate) tap: Tap,
}

impl Site {
    /// The same place for someone who only looks.
    pub(crate) fn watching(&self) -> Site {
        let life = Arc::new(Life::new("watcher".to_owned(), Role::Watcher));
        Site { endpoint: self.endpoint.clone(), tap: Tap { life, ..self.tap.clone() } }
    }
}

struct Host {
    name: String,
    role: Role,
    program: Program,
    ahead_ms: i64,
    /// How long it stays away when it was killed.
    away: Duration,
    running: Option<(Runtime, Arc<Life>)>,
    starts_at: Duration,
    starts: u32,
}

/// See above.
pub(crate) struct World {
    hosts: Vec<Host>,
    embedded: Option<Embedded>,
    server: Runtime,
    network: Arc<Network>,
    elapsed: Duration,
    step: Duration,
    // The last field: everything above ends in virtual time.
    shim: Virtual,
}

thread_local! {
    static PANICS: Cell<u32> = const { Cell::new(0) };
}

/// Plays on a thread of its own: hash maps and generators then begin alike for
/// every seed. Problems that are found are returned.
pub(crate) fn play<R: Send>(seed: u64, partitions: u32, scene: impl FnOnce(&mut World) -> R + Send) -> R {
    watch_panics();
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            let shim = Virtual::begin(seed);
            fastrand::seed(seed);
            let mut world = World::open(shim, partitions);
            let result = logged(|| scene(&mut world));
            assert_eq!(PANICS.get(), 0, "a task has panicked");
            result
        });
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// With `SIMULATION_LOG` set (to a filter such as `duroxide_cdb=debug`), what
/// the stack logs goes to standard error.
fn logged<R>(scene: impl FnOnce() -> R) -> R {
    let Ok(filter) = std::env::var("SIMULATION_LOG") else { return scene() };
    let filter = tracing_subscriber::EnvFilter::new(filter);
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).finish();
    let _while_played = tracing_subscriber::util::SubscriberInitExt::set_default(log);
    scene()
}

/// tokio keeps panics of tasks to itself: they are counted here.
fn watch_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let usual = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            PANICS.set(PANICS.get() + 1);
            usual(panic);
        }));
    });
}

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_time().start_paused(true).build().expect("a runtime starts")
}

impl World {
    fn open(shim: Virtual, partitions: u32) -> World {
        let server = runtime();
        let options = EmbeddedOptions::default().with_partitions(partitions);
        let embedded = server.block_on(Embedded::open(options)).expect("the engine opens in memory");
        World {
            hosts: Vec::new(),
            embedded: Some(embedded),
            server,
            network: Arc::new(Network::new()),
            elapsed: Duration::ZERO,
            step: STEP_MIN,
            shim,
        }
    }

    pub(crate) fn network(&self) -> &Arc<Network> {
        &self.network
    }

    pub(crate) fn elapsed(&self) -> Duration {
        self.elapsed
    }

    /// Adds a host whose dates are ahead of the server's by so much, and which
    /// comes back so long after it was killed.
    pub(crate) fn add(&mut self, role: Role, ahead_ms: i64, away: Duration, program: Program) -> usize {
        let name = format!("{role:?}{}", self.hosts.len());
        let starts_at = self.elapsed;
        let host = Host { name, role, program, ahead_ms, away, running: None, starts_at, starts: 0 };
        self.hosts.push(host);
        self.hosts.len() - 1
    }

    /// Kills the process of that host, wherever it stands.
    pub(crate) fn kill(&mut self, host: usize) {
        if let Some((_, life)) = &self.hosts[host].running
            && !life.is_dead()
        {
            life.end();
            self.network.count_kill();
        }
    }

    /// Goes on until it is done; `false` when the time is up before, or when
    /// requests never end.
    pub(crate) fn run(&mut self, time: Duration, mut is_done: impl FnMut(&mut World) -> bool) -> bool {
        let end = self.elapsed + time;
        while self.elapsed < end && !self.network.is_flooded() {
            self.go_on();
            if is_done(self) {
                return true;
            }
        }
        false
    }

    fn go_on(&mut self) {
        let until = self.elapsed + self.step;
        run_until(&self.server, &self.shim, until);
        for place in 0..self.hosts.len() {
            self.bury(place);
            self.wake(place);
            let host = &self.hosts[place];
            if let Some((runtime, _)) = &host.running {
                self.shim.set_ahead_ms(host.ahead_ms);
                run_until(runtime, &self.shim, until);
                self.shim.set_ahead_ms(0);
            }
        }
        self.elapsed = until;
        self.shim.set_elapsed(until);
        let is_stirred = self.network.take_stirred();
        self.step = if is_stirred { STEP_MIN } else { (self.step * 2).min(STEP_MAX) };
    }

    /// Drops a process that was killed, with all it was doing.
    fn bury(&mut self, place: usize) {
        let host = &mut self.hosts[place];
        if host.running.as_ref().is_some_and(|(_, life)| life.is_dead()) {
            host.running = None;
            host.starts_at = self.elapsed + host.away;
        }
    }

    /// Starts a process whose time has come.
    fn wake(&mut self, place: usize) {
        let host = &mut self.hosts[place];
        let (Some(embedded), None) = (&self.embedded, &host.running) else { return };
        if host.starts_at > self.elapsed {
            return;
        }
        host.starts += 1;
        let life = Arc::new(Life::new(format!("{}.{}", host.name, host.starts), host.role));
        let tap = Tap {
            network: Arc::clone(&self.network),
            life: Arc::clone(&life),
            server: self.server.handle().clone(),
            inner: embedded.transport(),
        };
        let runtime = runtime();
        runtime.spawn((host.program)(Site { endpoint: embedded.endpoint(), tap }));
        host.running = Some((runtime, life));
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.hosts.clear();
        self.embedded = None;
    }
}

fn run_until(runtime: &Runtime, shim: &Virtual, until: Duration) {
    let until = tokio::time::Instant::from_std(shim.instant(until));
    runtime.block_on(async { tokio::time::sleep_until(until).await });
}
