//! Virtual time and seeded randomness for all code of a program. This file defines
//! `clock_gettime` and `getrandom` of libc, and the linker takes these definitions instead
//! of libc's own.
//!
//! The library does not contain this module, so that a crate that links the library keeps
//! libc's functions. A program of the simulation includes the file by its path and has the
//! library's `virtual_clock` in its root. On a thread with a virtual clock both functions
//! answer from it. On every other thread they call the kernel. What always holds: a thread
//! with a virtual clock gets no time and no random bytes of the machine.
//!
//! This is the only file of the crate with `unsafe` code: the two functions have C's
//! signatures, and they call the kernel by a system call.
#![allow(unsafe_code)]

use std::ffi::{c_int, c_long, c_uint, c_void};

use crate::virtual_clock;

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
    let Some(nanoseconds) = virtual_clock::clock_ns(clock) else {
        // SAFETY: the caller promises what the kernel requires.
        return unsafe { syscall(system_call::CLOCK_GETTIME, clock, time) as c_int };
    };
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
    for offset in 0..length {
        let Some(byte) = virtual_clock::random_byte() else {
            // SAFETY: the caller promises what the kernel requires.
            return unsafe { syscall(system_call::GETRANDOM, buffer, length, flags) as isize };
        };
        // SAFETY: the caller promises that all `length` bytes may be written.
        unsafe { buffer.cast::<u8>().add(offset).write(byte) };
    }
    length as isize
}
