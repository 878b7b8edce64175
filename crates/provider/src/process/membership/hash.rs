//! Hashes that are the same in every process and release: FNV-1a, then the finalizer of
//! splitmix64, because the low bits of FNV-1a alone are poor.

/// The number of slots of a container.
pub(super) const SLOTS: usize = 256;

/// The slot of a name.
pub(super) fn slot_of(name: &str) -> usize {
    (mix(fnv(name.as_bytes())) % SLOTS as u64) as usize
}

/// The rendezvous score of a process for a slot. The highest score owns the slot.
pub(super) fn score(process_id: &str, slot: usize) -> u64 {
    mix(fnv(process_id.as_bytes()) ^ (slot as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15))
}

/// FNV-1a with 64 bits.
fn fnv(bytes: &[u8]) -> u64 {
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01B3);
    bytes.iter().fold(0xCBF2_9CE4_8422_2325, step)
}

/// The finalizer of splitmix64.
fn mix(mut value: u64) -> u64 {
    value = (value ^ (value >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    value = (value ^ (value >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    value ^ (value >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Processes of different releases must agree.
    #[test]
    fn hashes_never_change() {
        assert_eq!(fnv(b""), 0xCBF2_9CE4_8422_2325);
        assert_eq!(fnv(b"foobar"), 0x8594_4171_F739_67E8);
        assert_eq!([slot_of(""), slot_of("order-1"), slot_of("order-2")], EXPECTED_SLOTS);
    }

    const EXPECTED_SLOTS: [usize; 3] = [155, 211, 195];

    #[test]
    fn names_spread_evenly_over_all_slots() {
        let mut counts = [0; SLOTS];
        for number in 0..25_600 {
            counts[slot_of(&format!("order-{number}"))] += 1;
        }
        assert!(counts.iter().all(|count| (50..=150).contains(count)), "{counts:?}");
    }
}
