//! `Uuid`: a version 4 UUID, made from random bits of the caller.

use std::fmt;

/// A version 4 (random) UUID.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Uuid(u128);

impl Uuid {
    /// Makes a UUID from random bits. Six of the bits are replaced by the version and
    /// the variant.
    pub fn from_random(bits: u128) -> Uuid {
        Uuid(bits & !(0xF << 76) & !(0x3 << 62) | (0x4 << 76) | (0x2 << 62))
    }

    /// The text, in lower case with hyphens. All of its bytes are ASCII.
    pub fn text(self) -> [u8; 36] {
        const HEX: &[u8; 16] = b"0123456789abcdef";
        let mut text = [b'-'; 36];
        let mut index = 0;
        for digit in 0..32 {
            if matches!(index, 8 | 13 | 18 | 23) {
                index += 1;
            }
            text[index] = HEX[(self.0 >> (124 - 4 * digit)) as usize & 0xF];
            index += 1;
        }
        text
    }
}

impl fmt::Display for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.text().iter().try_for_each(|byte| write!(f, "{}", *byte as char))
    }
}

#[cfg(test)]
mod tests {
    use super::Uuid;

    #[test]
    fn a_uuid_has_its_version_its_variant_and_the_random_bits() {
        assert_eq!(Uuid::from_random(0).to_string(), "00000000-0000-4000-8000-000000000000");
        assert_eq!(Uuid::from_random(u128::MAX).to_string(), "ffffffff-ffff-4fff-bfff-ffffffffffff");
        let bits = 0x0123_4567_89AB_CDEF_0123_4567_89AB_CDEF;
        assert_eq!(Uuid::from_random(bits).to_string(), "01234567-89ab-4def-8123-456789abcdef");
    }
}
