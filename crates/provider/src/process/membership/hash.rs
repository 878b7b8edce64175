//! Hashes that are the same in every process and release: FNV-1a, then the finalizer of
//! splitmix64, because the low bits of FNV-1a alone are not evenly distributed.

/// The hash of a name.
pub(super) fn hash_of(name: &str) -> u64 {
    mix(fnv(name.as_bytes()))
}

/// The rendezvous score of a process for a piece of work or a slice, from the hashes of both.
/// The process with the highest score comes first.
pub(super) fn score(process: u64, work: u64) -> u64 {
    mix(process ^ work.wrapping_mul(0x9E37_79B9_7F4A_7C15))
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
        assert_eq!(score(hash_of("n:a"), hash_of("order-1")), EXPECTED_SCORE);
    }

    const EXPECTED_SCORE: u64 = 8_363_197_407_253_957_931;

    #[test]
    fn work_spreads_evenly_over_processes() {
        let processes: Vec<u64> = (0..16).map(|number| hash_of(&format!("n:{number}"))).collect();
        let mut counts = [0; 16];
        for number in 0..16_000 {
            let work = hash_of(&format!("order-{number}"));
            let first = (0..16).max_by_key(|process| score(processes[*process], work)).unwrap();
            counts[first] += 1;
        }
        assert!(counts.iter().all(|count| (850..=1150).contains(count)), "{counts:?}");
    }
}
