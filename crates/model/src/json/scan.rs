//! Finds the end of the plain part of a JSON string, eight bytes at a time. Documents
//! are mostly strings, and the parser and the printer have to check every byte of
//! these strings.

/// The lowest bit of each byte.
const LOW_BITS: u64 = 0x0101_0101_0101_0101;

/// The highest bit of each byte.
const HIGH_BITS: u64 = 0x8080_8080_8080_8080;

/// The number of bytes that are checked at once.
const WIDTH: usize = 8;

/// The number of bytes before the first special byte. Special bytes have to be escaped:
/// quotes, backslashes and control characters.
pub(super) fn plain_length(bytes: &[u8]) -> usize {
    let (words, rest) = bytes.as_chunks::<WIDTH>();
    for (index, word) in words.iter().enumerate() {
        let special = special_bytes(u64::from_le_bytes(*word));
        if special != 0 {
            return index * WIDTH + special.trailing_zeros() as usize / u8::BITS as usize;
        }
    }
    let plain = rest.iter().position(|byte| is_special(*byte)).unwrap_or(rest.len());
    words.len() * WIDTH + plain
}

fn is_special(byte: u8) -> bool {
    byte < 0x20 || byte == b'"' || byte == b'\\'
}

/// A word with the highest bit set in each special byte. The subtraction borrows from
/// higher bytes, so the bit can also be set in a plain byte above a special byte, but
/// never in a plain byte below the first special byte. So the lowest set bit always
/// belongs to a special byte.
fn special_bytes(word: u64) -> u64 {
    let below = |word: u64, limit: u64| word.wrapping_sub(LOW_BITS * limit) & !word;
    let equal = |byte: u8| below(word ^ (LOW_BITS * u64::from(byte)), 1);
    (below(word, 0x20) | equal(b'"') | equal(b'\\')) & HIGH_BITS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_special_byte_is_found_at_any_index_among_any_bytes() {
        for filling in [b' ', b'!', b'#', b'[', b']', b'a', 0x7F, 0x80, 0xA2, 0xDC, 0xFF] {
            for length in 0..40 {
                let plain = vec![filling; length];
                assert_eq!(plain_length(&plain), length);
                for at in 0..length {
                    for special in (0..0x20).chain([b'"', b'\\']) {
                        let mut bytes = plain.clone();
                        bytes[at] = special;
                        // The bytes after the special byte must not matter.
                        bytes[at + 1..].iter_mut().step_by(3).for_each(|byte| *byte = b'"');
                        assert_eq!(
                            plain_length(&bytes),
                            at,
                            "{special} at {at} of {length}, after {filling}"
                        );
                    }
                }
            }
        }
    }

    #[test]
    fn every_byte_is_classified() {
        for byte in 0..=u8::MAX {
            let expected = if is_special(byte) { 0 } else { 8 };
            assert_eq!(plain_length(&[byte; 8]), expected, "{byte}");
        }
    }
}
