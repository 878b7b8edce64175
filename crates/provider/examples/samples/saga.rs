//! A saga: a trip is a flight, a hotel and a car, or nothing. When one of them cannot be
//! booked, the bookings before it are cancelled, the last booking first.
//!
//! An activity can run more than once: when a process dies after the work but before its
//! result is stored, the activity runs again. So both activities are idempotent: to book or
//! to cancel the same thing twice has the same effect as once.

use std::collections::BTreeSet;
use std::error::Error;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use duroxide::providers::Provider;
use duroxide::runtime::Runtime;
use duroxide::runtime::registry::ActivityRegistry;
use duroxide::{ActivityContext, Client, OrchestrationContext, OrchestrationRegistry, RetryPolicy};

/// The longest time to wait for a workflow.
const TIME_LIMIT: Duration = Duration::from_secs(30);

/// The most attempts to cancel a booking. When all of them fail, the workflow fails, and a
/// person has to cancel the booking.
const CANCELLATION_ATTEMPTS_MAX: u32 = 5;

/// The bookings that exist now, in systems outside of the workflow.
type Bookings = Arc<Mutex<BTreeSet<String>>>;

pub(crate) async fn run(store: Arc<dyn Provider>) -> Result<(), Box<dyn Error>> {
    let bookings = Bookings::default();
    let (bookings_to_add, bookings_to_remove) = (Arc::clone(&bookings), Arc::clone(&bookings));
    let activities = ActivityRegistry::builder()
        .register("book", move |_: ActivityContext, what: String| {
            let bookings = Arc::clone(&bookings_to_add);
            async move { book(&bookings, what) }
        })
        .register("cancel", move |_: ActivityContext, what: String| {
            let bookings = Arc::clone(&bookings_to_remove);
            async move { cancel(&bookings, &what) }
        })
        .build();
    let orchestrations = OrchestrationRegistry::builder().register("trip", trip).build();
    let runtime = Runtime::start_with_store(store.clone(), activities, orchestrations).await;
    let client = Client::new(store);

    client.start_orchestration("trip-1", "trip", "Ada").await?;
    let output: String = client.wait_for_orchestration_typed("trip-1", TIME_LIMIT).await??;
    println!("{output}");
    assert_eq!(output, "Ada has a flight, a hotel and a car");

    // There was one car left, and Ada has it.
    client.start_orchestration("trip-2", "trip", "Grace").await?;
    let failed = client.wait_for_orchestration_typed::<String>("trip-2", TIME_LIMIT).await?;
    println!("{failed:?}");
    assert_eq!(failed, Err("no car for Grace: sold out; cancelled: hotel, flight".to_owned()));

    let booked: Vec<String> = bookings.lock().expect("no holder panics").iter().cloned().collect();
    println!("booked: {}", booked.join(", "));
    assert_eq!(booked, ["car for Ada", "flight for Ada", "hotel for Ada"]);

    runtime.shutdown(None).await;
    Ok(())
}

async fn trip(context: OrchestrationContext, traveller: String) -> Result<String, String> {
    let mut booked = Vec::new();
    for what in ["flight", "hotel", "car"] {
        match context.schedule_activity("book", format!("{what} for {traveller}")).await {
            Ok(_) => booked.push(what),
            Err(reason) => {
                booked.reverse();
                for what in &booked {
                    let policy = RetryPolicy::new(CANCELLATION_ATTEMPTS_MAX);
                    let booking = format!("{what} for {traveller}");
                    context.schedule_activity_with_retry("cancel", booking, policy).await?;
                }
                let cancelled = booked.join(", ");
                return Err(format!("no {what} for {traveller}: {reason}; cancelled: {cancelled}"));
            }
        }
    }
    Ok(format!("{traveller} has a flight, a hotel and a car"))
}

fn book(bookings: &Mutex<BTreeSet<String>>, what: String) -> Result<String, String> {
    let mut bookings = bookings.lock().expect("no holder panics");
    let is_car_of_another = |booked: &String| booked.starts_with("car") && *booked != what;
    if what.starts_with("car") && bookings.iter().any(is_car_of_another) {
        return Err("sold out".to_owned());
    }
    bookings.insert(what.clone());
    Ok(what)
}

fn cancel(bookings: &Mutex<BTreeSet<String>>, what: &str) -> Result<String, String> {
    bookings.lock().expect("no holder panics").remove(what);
    Ok(String::new())
}
