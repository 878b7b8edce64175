//! Random numbers: samples for jitter, and activity ids. Only this file of the
//! driver reads randomness; decisions take a sample as an argument.

use http::HeaderValue;

/// A sample from 0 up to, not including, 1.
pub(crate) fn sample() -> f64 {
    fastrand::f64()
}

/// A random (version 4) identifier of one request.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ActivityId(u128);

/// A new activity id.
pub(crate) fn activity_id() -> ActivityId {
    ActivityId(fastrand::u128(..) & !(0xF << 76) & !(0x3 << 62) | (0x4 << 76) | (0x2 << 62))
}

impl ActivityId {
    /// The id as a header. It is printed on each call: only a request without an
    /// answer needs it twice.
    pub(crate) fn header(self) -> HeaderValue {
        const HEX: &[u8; 16] = b"0123456789abcdef";
        let bits = self.0;
        let mut text = [b'-'; 36];
        let mut index = 0;
        for digit in 0..32 {
            if matches!(index, 8 | 13 | 18 | 23) {
                index += 1;
            }
            text[index] = HEX[(bits >> (124 - 4 * digit)) as usize & 0xF];
            index += 1;
        }
        HeaderValue::from_bytes(&text).expect("hexadecimal digits and hyphens")
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn an_activity_id_is_a_version_4_uuid() {
        let id = super::activity_id().header();
        let text = id.to_str().unwrap();
        assert_eq!(text.len(), 36);
        assert_eq!(text.as_bytes()[14], b'4');
        assert!(b"89ab".contains(&text.as_bytes()[19]));
        assert_eq!(text.bytes().filter(|byte| *byte == b'-').count(), 4);
        assert_ne!(id, super::activity_id().header());
    }
}
