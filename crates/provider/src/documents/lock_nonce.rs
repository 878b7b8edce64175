//! The nonce of a lock: `{process}.{time}.{random}`. `process` is the id of the process's heartbeat
//! document without the prefix `n:`. `time` is when the lock was taken, in milliseconds since 1970 as
//! hexadecimal digits.
//!
//! Code that checks a lock compares the whole nonce, so a nonce may have any form. Processes of earlier
//! builds write sixteen random digits. Only tools and metrics read process and time, to show which work a process
//! holds. Process and time are not members of the document: a process of an earlier build that takes the
//! lock would keep the members, because it does not know them, and they would name the wrong process.

use crate::documents::lock_token::nonce;

const SEPARATOR: char = '.';

/// The process that took a lock, and when.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LockHolder {
    pub(crate) process: String,
    pub(crate) taken_at_ms: u64,
}

/// The nonce of a lock that this process takes now.
pub(crate) fn lock_nonce(process: &str, now_ms: u64) -> String {
    format!("{}{now_ms:x}{SEPARATOR}{}", prefix_of(process), nonce())
}

/// How the nonces of all locks of a process begin.
pub(crate) fn prefix_of(process: &str) -> String {
    format!("{process}{SEPARATOR}")
}

/// Whether this process took the lock with this nonce.
pub(crate) fn is_of(nonce: &str, process: &str) -> bool {
    nonce.starts_with(&prefix_of(process))
}

/// Who took the lock with this nonce; `None` if a process of an earlier build took it.
pub(crate) fn holder_of(nonce: &str) -> Option<LockHolder> {
    let mut parts = nonce.split(SEPARATOR);
    let (process, time, _random) = (parts.next()?, parts.next()?, parts.next()?);
    let taken_at_ms = u64::from_str_radix(time, 16).ok()?;
    Some(LockHolder { process: process.to_owned(), taken_at_ms })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_nonce_names_its_process_and_time_and_no_two_are_equal() {
        let process = nonce();
        let one = lock_nonce(&process, 1_763_468_400_123);
        assert_ne!(one, lock_nonce(&process, 1_763_468_400_123));
        assert!(is_of(&one, &process) && !is_of(&one, &nonce()) && !is_of("0123456789abcdef", &process));
        assert_eq!(holder_of(&one), Some(LockHolder { process, taken_at_ms: 1_763_468_400_123 }));
        for other in ["", "0123456789abcdef", "a.b", "a.not hexadecimal.c"] {
            assert_eq!(holder_of(other), None, "{other}");
        }
    }
}
