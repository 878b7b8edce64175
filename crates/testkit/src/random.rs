//! Seeded random numbers (SplitMix64). A failing test prints its seed, and the
//! same seed repeats the run.

/// The increment of SplitMix64.
const GAMMA: u64 = 0x9E37_79B9_7F4A_7C15;

/// A generator of random numbers; the same seed gives the same numbers.
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    /// A generator that starts from this seed.
    pub fn new(seed: u64) -> Random {
        Random(seed)
    }

    /// The next 64 random bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(GAMMA);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// A number from 0 to `bound - 1`; 0 when `bound` is 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        if bound == 0 { 0 } else { self.bits() % bound }
    }

    /// An index of a slice of this length, which must not be empty.
    pub fn index(&mut self, length: usize) -> usize {
        assert!(length > 0, "an empty slice has no index");
        self.below(length as u64) as usize
    }

    /// `true` with a probability of one in `times`; always for 0 and 1.
    pub fn one_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }

    /// The state, from which `Random::new` continues.
    pub fn state(&self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::Random;

    /// The reference implementation's first numbers for this seed.
    #[test]
    fn numbers_are_those_of_splitmix64() {
        let mut random = Random::new(1_234_567);
        assert_eq!(random.bits(), 6_457_827_717_110_365_317);
        assert_eq!(random.bits(), 3_203_168_211_198_807_973);
        assert_eq!(random.bits(), 9_817_491_932_198_370_423);
    }

    #[test]
    fn a_bound_of_zero_gives_zero() {
        assert_eq!(Random::new(1).below(0), 0);
    }
}
