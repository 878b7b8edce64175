//! The time of the simulated world: answers, kills and restarts come at their exact moments,
//! however long the world's windows are, and hosts see each other's writes in the order of time.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use perihelion_simulation::process::User;
use perihelion_simulation::process_run::Role;
use perihelion_simulation::virtual_clock;
use perihelion_simulation::world::{self, Connection, Program, WorldOptions};
use serde_json::{Value, json};

/// The virtual time of a test.
const TIME_LIMIT: Duration = Duration::from_secs(10);

/// The length of a window: much longer than the time between two events of a test.
const WINDOW: Duration = Duration::from_secs(1);

/// The time of a request to the server and of its answer back, without faults.
const ROUND_TRIP: Duration = Duration::from_millis(2);

/// The notes that programs make: each is a number and the virtual time of the note.
type Notes = Arc<Mutex<Vec<(u64, Duration)>>>;

fn note(notes: &Notes, number: u64) {
    notes.lock().expect("no panic").push((number, virtual_clock::elapsed()));
}

/// A program from a function that gets the connection and the notes.
fn program<F>(notes: &Notes, run: fn(Connection, Notes) -> F) -> Program
where
    F: Future<Output = ()> + Send + 'static,
{
    let notes = Arc::clone(notes);
    Arc::new(move |connection| Box::pin(run(connection, Arc::clone(&notes))))
}

/// Runs each program on a host of its own, and returns the notes.
fn run(restart_after: Duration, programs: Vec<Program>, notes: &Notes) -> Vec<(u64, Duration)> {
    let options = WorldOptions { window: WINDOW, ..WorldOptions::default() };
    world::simulate_with(1, options, |world| {
        for program in programs {
            world.add_host(Role::Worker, 0, restart_after, program);
        }
        world.run(TIME_LIMIT, |_| false);
    });
    std::mem::take(&mut *notes.lock().expect("no panic"))
}

/// Waits until this virtual time.
async fn sleep_until(moment: Duration) {
    tokio::time::sleep(moment.saturating_sub(virtual_clock::elapsed())).await;
}

/// Writes its document every 100 ms from second 2 on, and notes the end of each write.
async fn write_often(connection: Connection, notes: Notes) {
    let user = User::open(connection).await;
    // The first write also reads the metadata of the container.
    user.container().upsert("i", &json!({ "id": "first", "instanceId": "i" })).await.expect("no fault");
    for number in 0..20 {
        sleep_until(Duration::from_millis(2000 + 100 * number)).await;
        let document = json!({ "id": "counter", "instanceId": "i", "number": number });
        user.container().upsert("i", &document).await.expect("no fault");
        note(&notes, number);
    }
}

/// Reads the document from second 2 on, 7 ms after each answer, and notes each number when it sees
/// the number for the first time.
async fn read_often(connection: Connection, notes: Notes) {
    let user = User::open(connection).await;
    user.container().find::<Value>("i", "first").await.expect("no fault");
    sleep_until(Duration::from_secs(2)).await;
    let mut last = None;
    while virtual_clock::elapsed() < Duration::from_secs(4) {
        let found = user.container().find::<Value>("i", "counter").await.expect("no fault");
        let number = found.and_then(|item| item.into_value()["number"].as_u64());
        if let Some(number) = number.filter(|number| last != Some(*number)) {
            last = Some(number);
            note(&notes, number);
        }
        tokio::time::sleep(Duration::from_millis(7)).await;
    }
}

#[test]
fn an_answer_comes_after_the_delays_of_its_request_and_no_later() {
    let notes = Notes::default();
    let written = run(Duration::ZERO, vec![program(&notes, write_often)], &notes);
    assert_eq!(written.len(), 20);
    for (number, at) in written {
        assert_eq!(at, Duration::from_millis(2000 + 100 * number) + ROUND_TRIP, "write {number}");
    }
}

#[test]
fn a_host_sees_the_writes_of_another_host_in_the_order_of_time() {
    let (writes, reads) = (Notes::default(), Notes::default());
    let programs = vec![program(&reads, read_often), program(&writes, write_often)];
    let seen = run(Duration::ZERO, programs, &reads);
    assert_eq!(seen.len(), 20, "{seen:?}");
    for (number, at) in seen {
        // The server has the write after half a round trip. A read begins every 9 ms.
        let written_at = Duration::from_millis(2000 + 100 * number) + ROUND_TRIP / 2;
        let latest = written_at + ROUND_TRIP + Duration::from_millis(9);
        assert!(at >= written_at && at <= latest, "write {number} was seen at {at:?}");
    }
}

/// Notes its start as 0, and kills itself after 130 ms. So it never comes to the note 1.
async fn kill_itself_soon(connection: Connection, notes: Notes) {
    note(&notes, 0);
    tokio::time::sleep(Duration::from_millis(130)).await;
    connection.transport.kill_process();
    tokio::time::sleep(Duration::from_millis(10)).await;
    note(&notes, 1);
}

#[test]
fn a_killed_process_stops_at_once_and_is_started_again_in_time() {
    let notes = Notes::default();
    let starts = run(Duration::from_millis(270), vec![program(&notes, kill_itself_soon)], &notes);
    assert_eq!(starts.len(), 25, "{starts:?}");
    for (index, (number, at)) in starts.into_iter().enumerate() {
        assert_eq!((number, at), (0, Duration::from_millis(400 * index as u64)));
    }
}
