//! The fleet: the server, the processes that use it, and the parent's own client.

use std::collections::BTreeSet;
use std::future::Future;
use std::io::{BufRead, BufReader};
use std::ops::Range;
use std::process::Child;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use duroxide::providers::Provider;
use duroxide::{Client, EventKind};
use duroxide_cdb::CosmosDBProvider;
use perihelion_client::{Container, Query};
use perihelion_server::ServerOptions;
use perihelion_testkit::TestServer;
use perihelion_testkit::provider::CONTAINER;
use tokio::sync::{Semaphore, oneshot};
use tokio::time::Instant;

use super::child::{DATABASE, READY, RUNS, Role, Version, spawn};
use super::watch::{ActivityLog, Started, Watch};

/// The interval at which the parent asks which jobs are completed.
const POLL_INTERVAL: Duration = Duration::from_millis(25);

/// How long a child may take to start or to shut down.
const CHILD_TIMEOUT: Duration = Duration::from_secs(30);

/// The page size of the parent's polls: more than there are jobs, so that a poll is one
/// request.
const PAGE_SIZE: u32 = 1000;

/// A test fails when no job is completed for this long.
pub(super) const PROGRESS_TIMEOUT: Duration = Duration::from_secs(40);

/// The most jobs under way at a time, so that a slow machine is not overloaded.
const UNDER_WAY_MAX: usize = 16;

pub(super) struct Fleet {
    server: TestServer,
    /// The lock timeout of the children.
    lock_timeout: Duration,
    /// The parent's provider. It starts jobs and fetches none.
    provider: Arc<CosmosDBProvider>,
    container: Container,
    children: Vec<ChildProcess>,
    activity_log: ActivityLog,
}

/// A child process. Dropping it kills the process, so that a failed test leaves none.
struct ChildProcess(Child);

impl Drop for ChildProcess {
    fn drop(&mut self) {
        // Fails if the process has ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Fleet {
    pub(super) async fn open(lock_timeout: Duration) -> Fleet {
        Fleet::open_on(ServerOptions::default(), lock_timeout).await
    }

    /// A fleet on a server with these options.
    pub(super) async fn open_on(options: ServerOptions, lock_timeout: Duration) -> Fleet {
        let server = TestServer::on_socket(options).await;
        let client = server.client().await;
        let container = client.database(DATABASE).container(CONTAINER);
        let builder = CosmosDBProvider::builder().with_client(client);
        let provider = builder.with_database(DATABASE).with_container(CONTAINER).open().await.unwrap();
        let (children, activity_log) = (Vec::new(), ActivityLog::default());
        Fleet { server, lock_timeout, provider: Arc::new(provider), container, children, activity_log }
    }

    pub(super) fn activity_log(&self) -> &ActivityLog {
        &self.activity_log
    }

    /// Starts a child, waits until it serves, and returns its number.
    pub(super) async fn start_child(&mut self, role: Role) -> usize {
        self.start_child_of(Version::This, role).await
    }

    /// Starts a child of this version, waits until it serves, and returns its number.
    pub(super) async fn start_child_of(&mut self, version: Version, role: Role) -> usize {
        let number = self.children.len();
        let mut child = spawn(version, &self.server.url(), self.lock_timeout, &role);
        let output = BufReader::new(child.stdout.take().expect("piped"));
        self.children.push(ChildProcess(child));
        let (ready, ready_receiver) = oneshot::channel();
        let activity_log = self.activity_log.clone();
        // The thread ends when the child's output ends.
        std::thread::spawn(move || {
            let mut ready = Some(ready);
            for line in output.lines().map_while(Result::ok) {
                if let Some((_, run)) = line.split_once(RUNS) {
                    activity_log.record(number, run);
                } else if line.contains(READY) {
                    ready.take().map(|ready| ready.send(()));
                }
            }
        });
        tokio::time::timeout(CHILD_TIMEOUT, ready_receiver)
            .await
            .expect("the child is ready in time")
            .expect("the child printed that it is ready");
        number
    }

    /// The requests per second that the server counts in this time.
    pub(super) async fn requests_per_second(&self, length: Duration) -> f64 {
        self.server.reset_counters().await;
        let begun = Instant::now();
        tokio::time::sleep(length).await;
        self.server.request_counts().await.requests as f64 / begun.elapsed().as_secs_f64()
    }

    /// Deletes the document with the layout version. A container without this document has
    /// layout version 1.
    pub(super) async fn forget_layout_version(&self) {
        self.container.delete(0_u64, "layout").await.unwrap();
    }

    /// The layout version in the container's document `layout`; `None` if there is no such
    /// document.
    pub(super) async fn layout_version(&self) -> Option<u64> {
        let found = self.container.find::<serde_json::Value>(0_u64, "layout").await.unwrap();
        found.and_then(|item| item.into_value()["version"].as_u64())
    }

    /// Shuts a child down and waits for its end.
    pub(super) async fn shut_down_child(&mut self, number: usize) {
        drop(self.children[number].0.stdin.take());
        let deadline = Instant::now() + CHILD_TIMEOUT;
        // The standard library has no event for a child's end.
        let status = loop {
            match self.children[number].0.try_wait().unwrap() {
                Some(status) => break status,
                None if Instant::now() < deadline => tokio::time::sleep(POLL_INTERVAL).await,
                None => panic!("child {number} does not end"),
            }
        };
        assert!(status.success(), "child {number}: {status}");
    }

    /// Waits until a child begins the activity `run` and kills that child with SIGKILL.
    /// Returns its number and the time.
    pub(super) async fn kill_process_of(&mut self, run: &str) -> (usize, Instant) {
        let victim = self.activity_log.wait_for_start(run).await;
        self.children[victim].0.kill().expect("a process to kill");
        (victim, Instant::now())
    }

    /// Starts jobs in a background task, one after the other, and watches until all are
    /// completed.
    pub(super) fn run_jobs(
        &self,
        kind: &'static str,
        numbers: Range<usize>,
        pace: Duration,
    ) -> impl Future<Output = Watch> + use<> {
        let client = Client::new(Arc::clone(&self.provider) as Arc<dyn Provider>);
        let (started, wanted) = (Arc::<Mutex<Started>>::default(), numbers.len());
        let permits = Arc::new(Semaphore::new(UNDER_WAY_MAX));
        let (start_times, start_permits) = (Arc::clone(&started), Arc::clone(&permits));
        let starting = tokio::spawn(async move {
            let mut ticks = tokio::time::interval(pace);
            for number in numbers {
                start_permits.acquire().await.expect("never closed").forget();
                ticks.tick().await;
                let name = format!("{kind}-{number:05}");
                start_times.lock().unwrap().insert(name.clone(), Instant::now());
                client.start_orchestration(&name, "Job", name.as_str()).await.unwrap();
            }
        });
        let watching = tokio::spawn(watch(self.container.clone(), started, permits, wanted));
        async move {
            starting.await.expect("jobs are started");
            watching.await.expect("jobs are completed")
        }
    }

    /// Checks that every job has its output, and that its history has one completion of
    /// each step. With `is_each_activity_run_once`, also checks that no activity was begun twice.
    pub(super) async fn check_every_job_completed_once(&self, is_each_activity_run_once: bool) {
        let admin = self.provider.as_management_capability().expect("management is supported");
        for job in completed_jobs(&self.container).await {
            let info = admin.get_instance_info(&job).await.unwrap();
            assert_eq!(info.output, Some(format!("[{job}/a][{job}/b]")));
            let history = admin.read_history(&job).await.unwrap();
            let mut results: Vec<&str> = Vec::new();
            for event in &history {
                if let EventKind::ActivityCompleted { result } = &event.kind {
                    results.push(result);
                }
            }
            assert_eq!(results, [format!("[{job}/a]"), format!("[{job}/b]")], "{history:?}");
        }
        let depths = admin.get_queue_depths().await.unwrap();
        assert_eq!((depths.orchestrator_queue, depths.worker_queue), (0, 0));
        let runs = self.activity_log.runs();
        let distinct_runs: BTreeSet<&String> = runs.iter().map(|(_, run)| run).collect();
        assert!(!is_each_activity_run_once || distinct_runs.len() == runs.len(), "{runs:?}");
    }

    pub(super) async fn close(self) {
        drop((self.children, self.provider, self.container));
        self.server.stop().await;
    }
}

/// Watches until `wanted` jobs are completed.
async fn watch(
    container: Container,
    started: Arc<Mutex<Started>>,
    permits: Arc<Semaphore>,
    wanted: usize,
) -> Watch {
    let mut watch = Watch::default();
    let mut deadline = Instant::now() + PROGRESS_TIMEOUT;
    while watch.completed() < wanted {
        assert!(Instant::now() < deadline, "{watch:?}");
        let due = Instant::now() + POLL_INTERVAL;
        tokio::time::sleep_until(due).await;
        let completed = completed_jobs(&container).await;
        let now = Instant::now();
        let started = started.lock().unwrap().clone();
        let late_by = now - due;
        let new_completions = watch.record_poll(started, completed, now, late_by);
        if new_completions > 0 {
            permits.add_permits(new_completions);
            deadline = now + PROGRESS_TIMEOUT;
        }
    }
    watch
}

/// The names of the completed jobs.
async fn completed_jobs(container: &Container) -> BTreeSet<String> {
    let query = Query::new("SELECT VALUE c.instanceId FROM c WHERE c.status = 'Completed'");
    let rows = container.query::<String>(query.with_max_items(PAGE_SIZE)).collect().await;
    rows.unwrap().into_iter().collect()
}
