//! MurmurHash3 in the two variants of the service's partition key hash: 32 bits
//! for version 1, 128 bits (x64) for version 2. The algorithm is in the public
//! domain; `conformance/partition-key-hashes.json` has the test vectors.

pub(crate) fn hash_32(data: &[u8], seed: u32) -> u32 {
    const C1: u32 = 0xcc9e_2d51;
    const C2: u32 = 0x1b87_3593;
    let scramble = |k: u32| k.wrapping_mul(C1).rotate_left(15).wrapping_mul(C2);

    let mut h = seed;
    let mut chunks = data.chunks_exact(4);
    for chunk in &mut chunks {
        h ^= scramble(u32::from_le_bytes([chunk[0], chunk[1], chunk[2], chunk[3]]));
        h = h.rotate_left(13).wrapping_mul(5).wrapping_add(0xe654_6b64);
    }
    let tail = chunks.remainder();
    if !tail.is_empty() {
        h ^= scramble(little_endian(tail) as u32);
    }
    h ^= data.len() as u32;
    h ^= h >> 16;
    h = h.wrapping_mul(0x85eb_ca6b);
    h ^= h >> 13;
    h = h.wrapping_mul(0xc2b2_ae35);
    h ^ (h >> 16)
}

/// The 128-bit hash as two halves, the low half first.
pub(crate) fn hash_128(data: &[u8]) -> (u64, u64) {
    const C1: u64 = 0x87c3_7b91_1142_53d5;
    const C2: u64 = 0x4cf5_ad43_2745_937f;
    let scramble_low = |k: u64| k.wrapping_mul(C1).rotate_left(31).wrapping_mul(C2);
    let scramble_high = |k: u64| k.wrapping_mul(C2).rotate_left(33).wrapping_mul(C1);

    let (mut low, mut high) = (0u64, 0u64);
    let mut chunks = data.chunks_exact(16);
    for chunk in &mut chunks {
        low ^= scramble_low(little_endian(&chunk[..8]));
        low = low.rotate_left(27).wrapping_add(high).wrapping_mul(5).wrapping_add(0x52dc_e729);
        high ^= scramble_high(little_endian(&chunk[8..]));
        high = high.rotate_left(31).wrapping_add(low).wrapping_mul(5).wrapping_add(0x3849_5ab5);
    }
    let tail = chunks.remainder();
    if tail.len() > 8 {
        high ^= scramble_high(little_endian(&tail[8..]));
    }
    if !tail.is_empty() {
        low ^= scramble_low(little_endian(&tail[..tail.len().min(8)]));
    }
    low ^= data.len() as u64;
    high ^= data.len() as u64;
    low = low.wrapping_add(high);
    high = high.wrapping_add(low);
    low = finish(low);
    high = finish(high);
    low = low.wrapping_add(high);
    high = high.wrapping_add(low);
    (low, high)
}

/// The last step of the 128-bit hash, for one half.
fn finish(mut k: u64) -> u64 {
    k ^= k >> 33;
    k = k.wrapping_mul(0xff51_afd7_ed55_8ccd);
    k ^= k >> 33;
    k = k.wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    k ^ (k >> 33)
}

/// Up to eight bytes as a little-endian number.
fn little_endian(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |sum, byte| (sum << 8) | u64::from(*byte))
}
