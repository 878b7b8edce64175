//! Etags in the service's form: `"6201c25e-0000-0100-0000-6ac9ff4d0000"`.
//!
//! The first group is the low 32 bits of a counter, printed as its bytes 2, 1, 0, 3
//! (byte 0 is the lowest). The second group is the next 16 bits, `0000` in recorded
//! etags. `0100` and `0000` follow. The last group is the time of the write in seconds
//! since 1970, then `0000` (`docs/cosmos.md`, resources). Quotes are part of the value,
//! in headers and in bodies.

/// The etag of write number `counter`, at `seconds` since 1970.
pub fn etag(counter: u64, seconds: u64) -> String {
    let [b0, b1, b2, b3] = (counter as u32).to_le_bytes();
    let high = (counter >> 32) as u16;
    format!("\"{b2:02x}{b1:02x}{b0:02x}{b3:02x}-{high:04x}-0100-0000-{:08x}0000\"", seconds as u32)
}

/// Whether a precondition header matches this etag. `*` matches every etag. The quotes in
/// the header may be missing, because some callers remove them.
pub fn matches(condition: &str, etag: &str) -> bool {
    let condition = condition.trim();
    condition == "*" || condition == etag || condition == etag.trim_matches('"')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn etags_differ_by_counter_and_contain_the_time() {
        let first = etag(1, 0x6ac9_ff4d);
        assert_eq!(first, "\"00000100-0000-0100-0000-6ac9ff4d0000\"");
        assert_ne!(first, etag(2, 0x6ac9_ff4d));
        assert_ne!(etag(1 << 32, 5), etag(0, 5));
    }

    #[test]
    fn a_star_or_the_etag_matches_with_or_without_quotes() {
        assert!(matches("*", "\"x\""));
        assert!(matches("\"x\"", "\"x\""));
        assert!(matches("x", "\"x\""));
        assert!(!matches("\"y\"", "\"x\""));
    }
}
