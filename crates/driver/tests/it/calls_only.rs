//! A runtime that is run only during calls: a current-thread runtime makes no progress between two
//! calls of `block_on`. Work that takes longer than one call goes on in the next call. The clock is
//! tokio's and paused; it advances between the calls.

use std::pin::pin;
use std::task::{Context, Waker};
use std::time::Duration;

use perihelion_testkit::regions::EAST;
use tokio::runtime::Runtime;

use crate::outage::Outage;

/// How long a call takes: the other regions answer in this time.
const CALL: Duration = Duration::from_millis(10);

/// How long East takes to answer: longer than a call, so that the answer comes during a later call.
const SLOW_ANSWER: Duration = Duration::from_millis(50);

/// The time between two calls. It is so long that every task is late when a call begins.
const BETWEEN_CALLS: Duration = Duration::from_secs(6);

/// Lets time pass while the runtime is not run.
fn pass_time_without_running(runtime: &Runtime, time: Duration) {
    let _entered = runtime.enter();
    let mut advance = pin!(tokio::time::advance(time));
    // The clock advances at the first poll.
    let _ = advance.as_mut().poll(&mut Context::from_waker(Waker::noop()));
}

#[test]
fn a_region_comes_back_though_its_probe_takes_longer_than_a_call() {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    let outage = Outage::new(&runtime, &runtime, [SLOW_ANSWER, CALL]);
    let region = || runtime.block_on(outage.region_of_read());
    assert_eq!(region().name(), EAST);
    outage.set_down(true);
    assert_ne!(region().name(), EAST);
    outage.set_down(false);
    let mut regions = Vec::new();
    for _ in 0..5 {
        pass_time_without_running(&runtime, BETWEEN_CALLS);
        regions.push(region());
    }
    assert_eq!(regions.last().unwrap().name(), EAST, "{regions:?}");
}
