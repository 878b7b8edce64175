//! How streams of a connection are reserved and given back.

use std::sync::Barrier;

use super::*;

#[test]
fn streams_are_reserved_up_to_the_limit_and_given_back() {
    let slots = Slots::new(2);
    assert_eq!((slots.reserve(), slots.reserve(), slots.reserve()), (Some(0), Some(1), None));
    assert_eq!(slots.release(), 1);
    assert_eq!(slots.view(), SlotsView { in_use: 1, limit: 2, is_usable: true });
    assert_eq!(slots.reserve(), Some(1));
}

#[test]
fn a_lower_limit_refuses_new_streams_and_keeps_the_old_ones() {
    let slots = Slots::new(3);
    (0..3).for_each(|_| assert!(slots.reserve().is_some()));
    assert!(!slots.set_limit(1), "lowered");
    slots.release();
    slots.release();
    assert_eq!((slots.reserve(), slots.view().in_use), (None, 1));
    slots.release();
    assert_eq!((slots.reserve(), slots.reserve()), (Some(0), None));
    assert!(slots.set_limit(2), "raised");
    assert_eq!(slots.reserve(), Some(1));
}

#[test]
fn a_suspect_connection_gets_no_requests_until_it_is_cleared() {
    let slots = Slots::new(2);
    assert!(slots.set_suspect(true) && !slots.set_suspect(true));
    assert_eq!(slots.reserve(), None);
    assert!(slots.set_suspect(false));
    assert_eq!(slots.reserve(), Some(0));
}

#[test]
fn a_closed_connection_gets_no_requests_and_is_closed_once() {
    let slots = Slots::new(2);
    slots.reserve().unwrap();
    assert!(!slots.close_if_idle(), "a stream is in use");
    assert!(slots.close() && !slots.close());
    assert_eq!(slots.reserve(), None);
    assert_eq!(slots.release(), 0);
    let idle = Slots::new(2);
    assert!(idle.close_if_idle() && !idle.close_if_idle());
}

#[test]
fn a_peer_that_allows_no_stream_gets_one() {
    let slots = Slots::new(0);
    assert_eq!((slots.reserve(), slots.reserve()), (Some(0), None));
}

/// Eight threads reserve streams and give them back, while another thread changes the limit. The
/// count of requests that have a stream never exceeds the highest limit, and returns to zero.
#[test]
fn threads_never_share_a_stream() {
    use std::sync::atomic::AtomicU32;
    const ROUNDS: usize = 20_000;
    let (slots, holders, start) = (Slots::new(3), AtomicU32::new(0), Barrier::new(9));
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                start.wait();
                for _ in 0..ROUNDS {
                    if slots.reserve().is_some() {
                        assert!(holders.fetch_add(1, Ordering::SeqCst) < 5);
                        holders.fetch_sub(1, Ordering::SeqCst);
                        slots.release();
                    }
                }
            });
        }
        start.wait();
        for round in 0..ROUNDS {
            slots.set_limit(if round % 2 == 0 { 5 } else { 1 });
        }
    });
    assert_eq!((slots.view().in_use, holders.into_inner()), (0, 0));
}
