//! Virtual time and seeded randomness of one thread.
//!
//! On a thread with a [`VirtualClock`], the time is that of the current tokio runtime, or
//! `ELAPSED` outside of a runtime, and random bytes come from the seed. This module only
//! keeps and computes them. `libc_shim.rs` makes the program use them: duroxide itself reads
//! the wall clock and makes random identifiers, and tokio's paused clock changes neither.
//!
//! A crate that links this library is not affected. Only a program that declares the module
//! `libc_shim` (by its path, beside this module) replaces functions of libc.

use std::cell::Cell;
use std::ffi::c_int;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use perihelion_testkit::Random;

/// The first moment of virtual time, in nanoseconds since 1970: a day in 2027.
const VIRTUAL_EPOCH_NS: u64 = 1_800_000_000_000_000_000;

/// The first moment of virtual time, in milliseconds since 1970.
pub const VIRTUAL_EPOCH_MS: u64 = VIRTUAL_EPOCH_NS / 1_000_000;

/// The id of the clock that returns dates. All other clocks only measure durations, so a
/// host's clock skew does not apply to them.
const CLOCK_REALTIME: c_int = 0;

thread_local! {
    /// Whether this thread has virtual time.
    static IS_VIRTUAL: Cell<bool> = const { Cell::new(false) };
    /// Whether the shim itself is reading the time. Then `clock_gettime` returns `ELAPSED`,
    /// so that it does not call itself.
    static IS_READING: Cell<bool> = const { Cell::new(false) };
    /// Virtual time that has passed, for code outside of every tokio runtime.
    static ELAPSED: Cell<Duration> = const { Cell::new(Duration::ZERO) };
    /// The `Instant` at which virtual time began.
    static ORIGIN: Cell<Option<Instant>> = const { Cell::new(None) };
    /// How far the clock of the current host is ahead of the server's, in milliseconds.
    static CLOCK_SKEW_MS: Cell<i64> = const { Cell::new(0) };
    /// The state of the random numbers.
    static RANDOM_STATE: Cell<u64> = const { Cell::new(0) };
}

/// A guard: the thread that made it has virtual time and seeded randomness until the guard is
/// dropped.
pub struct VirtualClock(());

impl VirtualClock {
    /// Starts virtual time on this thread, at zero.
    pub fn begin(seed: u64) -> VirtualClock {
        IS_VIRTUAL.set(true);
        ELAPSED.set(Duration::ZERO);
        RANDOM_STATE.set(seed);
        IS_READING.set(true);
        ORIGIN.set(Some(Instant::now()));
        IS_READING.set(false);
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        assert_eq!(
            now,
            Duration::from_nanos(VIRTUAL_EPOCH_NS),
            "virtual time has no effect in this program: declare the module `libc_shim` in its root"
        );
        VirtualClock(())
    }

    /// Sets the virtual time for code that runs between two steps of the hosts.
    pub fn set_elapsed(&self, elapsed: Duration) {
        ELAPSED.set(elapsed);
    }

    /// Sets the clock skew of the host that runs from now on.
    pub fn set_clock_skew_ms(&self, clock_skew_ms: i64) {
        CLOCK_SKEW_MS.set(clock_skew_ms);
    }
}

/// Converts a moment of virtual time into an `Instant`.
pub fn instant(elapsed: Duration) -> Instant {
    ORIGIN.get().expect("virtual time has begun") + elapsed
}

impl Drop for VirtualClock {
    fn drop(&mut self) {
        CLOCK_SKEW_MS.set(0);
        IS_VIRTUAL.set(false);
    }
}

/// Virtual time that has passed: on the clock of the current tokio runtime, or `ELAPSED`
/// outside of a runtime.
pub fn elapsed() -> Duration {
    match ORIGIN.get() {
        Some(origin) if !IS_READING.get() => {
            IS_READING.set(true);
            let now = tokio::time::Instant::now().into_std();
            IS_READING.set(false);
            now.saturating_duration_since(origin)
        }
        _ => ELAPSED.get(),
    }
}

/// The time of one of libc's clocks on this thread, in nanoseconds: since 1970, or since any
/// fixed moment, depending on the clock. `None` if the thread has no virtual clock.
pub fn clock_ns(clock: c_int) -> Option<u64> {
    if !IS_VIRTUAL.get() {
        return None;
    }
    let skew_ns = if clock == CLOCK_REALTIME { CLOCK_SKEW_MS.get() * 1_000_000 } else { 0 };
    let elapsed = u64::try_from(elapsed().as_nanos()).unwrap_or(u64::MAX);
    Some(VIRTUAL_EPOCH_NS.saturating_add(elapsed).saturating_add_signed(skew_ns))
}

/// The next random byte of this thread. `None` if the thread has no virtual clock.
pub fn random_byte() -> Option<u8> {
    IS_VIRTUAL.get().then(|| next_random() as u8)
}

/// The next 64 bits from the thread's seed (SplitMix64).
fn next_random() -> u64 {
    let mut random = Random::new(RANDOM_STATE.get());
    let bits = random.bits();
    RANDOM_STATE.set(random.state());
    bits
}
