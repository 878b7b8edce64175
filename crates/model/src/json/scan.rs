//! Where the plain part of a JSON string ends, eight bytes at a time: documents
//! are mostly strings, histories kept as text above all, and both reading and
//! printing look at every byte of them.

/// The lowest bit of each byte, and the highest.
const ONES: u64 = 0x0101_0101_0101_0101;
const HIGHS: u64 = 0x8080_8080_8080_8080;

/// Bytes looked at together.
const WIDTH: usize = 8;

/// How many bytes come before the first that is written with an escape: a
/// quote, a backslash or a control character.
pub(super) fn plain_length(bytes: &[u8]) -> usize {
    let (words, rest) = bytes.as_chunks::<WIDTH>();
    for (place, word) in words.iter().enumerate() {
        let marks = marks(u64::from_le_bytes(*word));
        if marks != 0 {
            return place * WIDTH + marks.trailing_zeros() as usize / WIDTH;
        }
    }
    let plain = rest.iter().position(|byte| is_special(*byte)).unwrap_or(rest.len());
    words.len() * WIDTH + plain
}

fn is_special(byte: u8) -> bool {
    byte < 0x20 || byte == b'"' || byte == b'\\'
}

/// The highest bit of each special byte. A borrow can mark bytes above a special
/// one in vain, never below it, so the lowest mark is always right.
fn marks(word: u64) -> u64 {
    let below = |word: u64, limit: u64| word.wrapping_sub(ONES * limit) & !word;
    let equal = |byte: u8| below(word ^ (ONES * u64::from(byte)), 1);
    (below(word, 0x20) | equal(b'"') | equal(b'\\')) & HIGHS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_special_byte_is_found_wherever_it_is_and_whatever_is_around_it() {
        for filling in [b' ', b'!', b'#', b'[', b']', b'a', 0x7F, 0x80, 0xA2, 0xDC, 0xFF] {
            for length in 0..40 {
                let plain = vec![filling; length];
                assert_eq!(plain_length(&plain), length);
                for at in 0..length {
                    for special in (0..0x20).chain([b'"', b'\\']) {
                        let mut bytes = plain.clone();
                        bytes[at] = special;
                        // What follows must not matter.
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
    fn every_byte_by_itself_is_judged_rightly() {
        for byte in 0..=u8::MAX {
            let expected = if is_special(byte) { 0 } else { 8 };
            assert_eq!(plain_length(&[byte; 8]), expected, "{byte}");
        }
    }
}
