//! The virtual clock and the seeded entropy, where all code of this binary
//! meets them: `clock_gettime` and `getrandom` of libc, defined here, so that
//! the linker prefers these to the real ones.
//!
//! It has this shape because duroxide reads the wall clock and makes identifiers
//! itself, and tokio's paused clock reaches neither. Both functions are the real
//! ones on every thread that does not play a world; on one that does, time is
//! the current tokio runtime's, or the world's between two steps of it, and
//! chance comes from the seed. What always holds: no value of the machine's
//! clock or entropy reaches a thread that plays a world.
//!
//! This is the one file with `unsafe` code: the two functions have C's
//! signatures, and asking the kernel instead is a system call.
#![allow(unsafe_code)]

use std::cell::Cell;
use std::ffi::{c_int, c_long, c_uint, c_void};
use std::time::{Duration, Instant};

use perihelion_testkit::Random;

/// When every world begins, in nanoseconds since 1970: some day in 2027.
const BEGINNING: u64 = 1_800_000_000_000_000_000;

/// The clock whose readings are dates; all others only measure.
const CLOCK_REALTIME: c_int = 0;

#[cfg(target_arch = "x86_64")]
mod number {
    pub(super) const CLOCK_GETTIME: std::ffi::c_long = 228;
    pub(super) const GETRANDOM: std::ffi::c_long = 318;
}
#[cfg(target_arch = "aarch64")]
mod number {
    pub(super) const CLOCK_GETTIME: std::ffi::c_long = 113;
    pub(super) const GETRANDOM: std::ffi::c_long = 278;
}

thread_local! {
    /// Whether this thread plays a world.
    static IS_VIRTUAL: Cell<bool> = const { Cell::new(false) };
    /// Whether the shim itself is asking for the time.
    static IS_ASKING: Cell<bool> = const { Cell::new(false) };
    /// Time outside of every tokio runtime, since the beginning.
    static ELAPSED: Cell<Duration> = const { Cell::new(Duration::ZERO) };
    /// The beginning, as the standard library has it.
    static ORIGIN: Cell<Option<Instant>> = const { Cell::new(None) };
    /// How far the dates of the host that runs now are ahead, in milliseconds.
    static AHEAD_MS: Cell<i64> = const { Cell::new(0) };
    static CHANCE: Cell<u64> = const { Cell::new(0) };
}

/// While it lives, its thread has virtual time and seeded entropy.
pub(crate) struct Virtual(());

impl Virtual {
    pub(crate) fn begin(seed: u64) -> Virtual {
        IS_VIRTUAL.set(true);
        ELAPSED.set(Duration::ZERO);
        CHANCE.set(seed);
        IS_ASKING.set(true);
        ORIGIN.set(Some(Instant::now()));
        IS_ASKING.set(false);
        Virtual(())
    }

    /// The world has come this far. Only between steps of its hosts.
    pub(crate) fn set_elapsed(&self, elapsed: Duration) {
        ELAPSED.set(elapsed);
    }

    /// The dates that are read from now on are this far ahead.
    pub(crate) fn set_ahead_ms(&self, ahead: i64) {
        AHEAD_MS.set(ahead);
    }

    /// That moment, as timers have it.
    pub(crate) fn instant(&self, elapsed: Duration) -> Instant {
        ORIGIN.get().expect("it has begun") + elapsed
    }
}

impl Drop for Virtual {
    fn drop(&mut self) {
        AHEAD_MS.set(0);
        IS_VIRTUAL.set(false);
    }
}

/// Virtual time since the beginning, wherever it is asked.
pub(crate) fn elapsed() -> Duration {
    match ORIGIN.get() {
        Some(origin) if !IS_ASKING.get() => {
            IS_ASKING.set(true);
            let now = tokio::time::Instant::now().into_std();
            IS_ASKING.set(false);
            now.saturating_duration_since(origin)
        }
        _ => ELAPSED.get(),
    }
}

/// The next 64 bits of the thread's seed (SplitMix64).
fn chance() -> u64 {
    let mut random = Random::new(CHANCE.get());
    let bits = random.bits();
    CHANCE.set(random.state());
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

/// # Safety
/// As of libc: `time` points to a `struct timespec` that may be written.
#[unsafe(no_mangle)]
unsafe extern "C" fn clock_gettime(clock: c_int, time: *mut Timespec) -> c_int {
    if !IS_VIRTUAL.get() {
        // SAFETY: the caller's promise is the one that the kernel wants.
        return unsafe { syscall(number::CLOCK_GETTIME, clock, time) as c_int };
    }
    let ahead = if clock == CLOCK_REALTIME { AHEAD_MS.get() * 1_000_000 } else { 0 };
    let elapsed = u64::try_from(elapsed().as_nanos()).unwrap_or(u64::MAX);
    let nanoseconds = BEGINNING.saturating_add(elapsed).saturating_add_signed(ahead);
    let value = Timespec {
        seconds: (nanoseconds / 1_000_000_000) as i64,
        nanoseconds: (nanoseconds % 1_000_000_000) as c_long,
    };
    // SAFETY: the caller promises that it may be written.
    unsafe { time.write(value) };
    0
}

/// # Safety
/// As of libc: `buffer` points to `length` bytes that may be written.
#[unsafe(no_mangle)]
unsafe extern "C" fn getrandom(buffer: *mut c_void, length: usize, flags: c_uint) -> isize {
    if !IS_VIRTUAL.get() {
        // SAFETY: the caller's promise is the one that the kernel wants.
        return unsafe { syscall(number::GETRANDOM, buffer, length, flags) as isize };
    }
    for place in 0..length {
        // SAFETY: the caller promises that all of them may be written.
        unsafe { buffer.cast::<u8>().add(place).write(chance() as u8) };
    }
    length as isize
}
