//! Builds a partition key with the same hash as a given key: a second preimage of MurmurHash3
//! with 128 bits.
//!
//! The hash mixes the input into a state of two numbers, in blocks of 16 bytes, and every step
//! of the mixing can be inverted. So for any first block a second block can be computed that
//! leads to the same state as the first two blocks of the given key. The remaining blocks are
//! copied from the given key. The second block must be valid UTF-8. About one in ten thousand
//! is, so the first block is varied until the second block is valid.

/// The multipliers of MurmurHash3.
const C1: u64 = 0x87c3_7b91_1142_53d5;
const C2: u64 = 0x4cf5_ad43_2745_937f;
/// The bytes of a block.
const BLOCK: usize = 16;
/// The hashed text begins with a byte for the type "string".
const STRING: u8 = 8;

/// A key that differs from `key` and has the same hash. The key has at least 31 bytes.
pub fn colliding_key(key: &str) -> String {
    let input = [&[STRING], key.as_bytes()].concat();
    let wanted = mix(mix((0, 0), &input[..BLOCK]), &input[BLOCK..2 * BLOCK]);
    let first_two_blocks = (0u64..).find_map(|number| {
        let first = format!("attacker{number:07}");
        let block = unmix(mix((0, 0), &[&[STRING], first.as_bytes()].concat()), wanted);
        Some(first + std::str::from_utf8(&block).ok()?)
    });
    first_two_blocks.unwrap() + &key[2 * BLOCK - 1..]
}

fn number(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(bytes.try_into().unwrap())
}

/// The state after a block.
fn mix((mut low, mut high): (u64, u64), block: &[u8]) -> (u64, u64) {
    low ^= number(&block[..8]).wrapping_mul(C1).rotate_left(31).wrapping_mul(C2);
    low = low.rotate_left(27).wrapping_add(high).wrapping_mul(5).wrapping_add(0x52dc_e729);
    high ^= number(&block[8..]).wrapping_mul(C2).rotate_left(33).wrapping_mul(C1);
    high = high.rotate_left(31).wrapping_add(low).wrapping_mul(5).wrapping_add(0x3849_5ab5);
    (low, high)
}

/// The block that leads from one state to another.
fn unmix((low, high): (u64, u64), (low_after, high_after): (u64, u64)) -> [u8; BLOCK] {
    let fifth = inverse(5);
    let first =
        low_after.wrapping_sub(0x52dc_e729).wrapping_mul(fifth).wrapping_sub(high).rotate_right(27) ^ low;
    let second =
        high_after.wrapping_sub(0x3849_5ab5).wrapping_mul(fifth).wrapping_sub(low_after).rotate_right(31)
            ^ high;
    let first = first.wrapping_mul(inverse(C2)).rotate_right(31).wrapping_mul(inverse(C1));
    let second = second.wrapping_mul(inverse(C1)).rotate_right(33).wrapping_mul(inverse(C2));
    let mut block = [0; BLOCK];
    block[..8].copy_from_slice(&first.to_le_bytes());
    block[8..].copy_from_slice(&second.to_le_bytes());
    block
}

/// The inverse of an odd number modulo 2^64, by Newton's method: each step doubles the number
/// of correct bits.
fn inverse(odd: u64) -> u64 {
    (0..6).fold(odd, |found, _| found.wrapping_mul(2u64.wrapping_sub(odd.wrapping_mul(found))))
}
