//! Virtual time and seeded randomness for all code of this binary. This file defines
//! `clock_gettime` and `getrandom` of libc, and the linker takes these definitions instead
//! of libc's own.
//!
//! The definitions are needed because duroxide itself reads the wall clock and makes random
//! identifiers, and tokio's paused clock changes neither. On a thread with a
//! [`VirtualClock`], the time is that of the current tokio runtime, or [`ELAPSED`] outside of
//! a runtime, and random bytes come from the seed. On every other thread both functions call
//! the kernel. What always holds: a thread with a virtual clock gets no time and no random
//! bytes of the machine.
//!
//! This is the only file of the crate with `unsafe` code: the two functions have C's
//! signatures, and they call the kernel by a system call.
#![allow(unsafe_code)]

use std::cell::Cell;
use std::ffi::{c_int, c_long, c_uint, c_void};
use std::time::{Duration, Instant};

use perihelion_testkit::Random;

/// The first moment of virtual time, in nanoseconds since 1970: a day in 2027.
const VIRTUAL_EPOCH_NS: u64 = 1_800_000_000_000_000_000;

/// The id of the clock that returns dates. All other clocks only measure durations, so a
/// host's clock skew does not apply to them.
const CLOCK_REALTIME: c_int = 0;

#[cfg(target_arch = "x86_64")]
mod system_call {
    pub(super) const CLOCK_GETTIME: std::ffi::c_long = 228;
    pub(super) const GETRANDOM: std::ffi::c_long = 318;
}
#[cfg(target_arch = "aarch64")]
mod system_call {
    pub(super) const CLOCK_GETTIME: std::ffi::c_long = 113;
    pub(super) const GETRANDOM: std::ffi::c_long = 278;
}

thread_local! {
    /// Whether this thread has virtual time.
    static IS_VIRTUAL: Cell<bool> = const { Cell::new(false) };
    /// Whether the shim itself is reading the time. Then `clock_gettime` returns [`ELAPSED`],
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
pub(crate) struct VirtualClock(());

impl VirtualClock {
    /// Starts virtual time on this thread, at zero.
    pub(crate) fn begin(seed: u64) -> VirtualClock {
        IS_VIRTUAL.set(true);
        ELAPSED.set(Duration::ZERO);
        RANDOM_STATE.set(seed);
        IS_READING.set(true);
        ORIGIN.set(Some(Instant::now()));
        IS_READING.set(false);
        VirtualClock(())
    }

    /// Sets the virtual time between two steps of the hosts.
    pub(crate) fn set_elapsed(&self, elapsed: Duration) {
        ELAPSED.set(elapsed);
    }

    /// Sets the clock skew of the host that runs from now on.
    pub(crate) fn set_clock_skew_ms(&self, clock_skew_ms: i64) {
        CLOCK_SKEW_MS.set(clock_skew_ms);
    }

    /// Converts a moment of virtual time into an `Instant`.
    pub(crate) fn instant(&self, elapsed: Duration) -> Instant {
        ORIGIN.get().expect("virtual time has begun") + elapsed
    }
}

impl Drop for VirtualClock {
    fn drop(&mut self) {
        CLOCK_SKEW_MS.set(0);
        IS_VIRTUAL.set(false);
    }
}

/// Virtual time that has passed: on the clock of the current tokio runtime, or [`ELAPSED`]
/// outside of a runtime.
pub(crate) fn elapsed() -> Duration {
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

/// The next 64 bits from the thread's seed (SplitMix64).
fn next_random() -> u64 {
    let mut random = Random::new(RANDOM_STATE.get());
    let bits = random.bits();
    RANDOM_STATE.set(random.state());
    bits
}

/// C's `struct timespec` of 64-bit systems.
#[repr(C)]
struct Timespec {
    seconds: i64,
    nanoseconds: c_long,
}

unsafe extern "C" {
    fn syscall(number: c_long, ...) -> c_long;
}

/// Replaces libc's function of the same name.
///
/// # Safety
/// As in libc: `time` points to a `struct timespec` that may be written.
#[unsafe(no_mangle)]
unsafe extern "C" fn clock_gettime(clock: c_int, time: *mut Timespec) -> c_int {
    if !IS_VIRTUAL.get() {
        // SAFETY: the caller promises what the kernel requires.
        return unsafe { syscall(system_call::CLOCK_GETTIME, clock, time) as c_int };
    }
    let skew_ns = if clock == CLOCK_REALTIME { CLOCK_SKEW_MS.get() * 1_000_000 } else { 0 };
    let elapsed = u64::try_from(elapsed().as_nanos()).unwrap_or(u64::MAX);
    let nanoseconds = VIRTUAL_EPOCH_NS.saturating_add(elapsed).saturating_add_signed(skew_ns);
    let value = Timespec {
        seconds: (nanoseconds / 1_000_000_000) as i64,
        nanoseconds: (nanoseconds % 1_000_000_000) as c_long,
    };
    // SAFETY: the caller promises that `time` may be written.
    unsafe { time.write(value) };
    0
}

/// Replaces libc's function of the same name.
///
/// # Safety
/// As in libc: `buffer` points to `length` bytes that may be written.
#[unsafe(no_mangle)]
unsafe extern "C" fn getrandom(buffer: *mut c_void, length: usize, flags: c_uint) -> isize {
    if !IS_VIRTUAL.get() {
        // SAFETY: the caller promises what the kernel requires.
        return unsafe { syscall(system_call::GETRANDOM, buffer, length, flags) as isize };
    }
    for offset in 0..length {
        // SAFETY: the caller promises that all `length` bytes may be written.
        unsafe { buffer.cast::<u8>().add(offset).write(next_random() as u8) };
    }
    length as isize
}
