//! A keyed permutation of [0, n) with O(1) memory: a Feistel network with cycle walking (Black and Rogaway, "Ciphers
//! with arbitrary finite domains", CT-RSA 2002).
//!
//! The network permutes [0, 2^bits), the smallest power of two that holds n (64 at least, so that tiny views get more
//! than a handful of permutations); a value outside [0, n) is permuted again. Under two walks on average above 64.

use crate::rng::{self, Key};

const ROUNDS: usize = 8;
const LEAST_BITS: u32 = 6;

/// A permutation of [0, n).
#[derive(Clone, Debug)]
pub struct Permutation {
    n: u64,
    low_bits: u32,
    low_mask: u64,
    high_mask: u64,
    round_keys: [u64; ROUNDS],
}

impl Permutation {
    /// `n` from 1 to 2^63.
    pub fn new(key: Key, n: u64) -> Self {
        debug_assert!((1..=1 << 63).contains(&n));
        let bits = (u64::BITS - (n - 1).leading_zeros()).max(LEAST_BITS);
        let low_bits = bits / 2;
        Self {
            n,
            low_bits,
            low_mask: (1 << low_bits) - 1,
            high_mask: (1 << (bits - low_bits)) - 1,
            round_keys: std::array::from_fn(|round| rng::random_u64(key, round as u64)),
        }
    }

    /// Where `index` in [0, n) goes.
    pub fn at(&self, index: u64) -> u64 {
        debug_assert!(index < self.n);
        let mut value = self.network(index);
        while value >= self.n {
            value = self.network(value);
        }
        value
    }

    /// The index that goes to `place` in [0, n).
    pub fn inverse(&self, place: u64) -> u64 {
        debug_assert!(place < self.n);
        let mut value = self.network_back(place);
        while value >= self.n {
            value = self.network_back(value);
        }
        value
    }

    fn network_back(&self, value: u64) -> u64 {
        let mut low = value & self.low_mask;
        let mut high = value >> self.low_bits;
        for pair in self.round_keys.chunks_exact(2).rev() {
            high ^= mix(low.wrapping_add(pair[1])) & self.high_mask;
            low ^= mix(high.wrapping_add(pair[0])) & self.low_mask;
        }
        high << self.low_bits | low
    }

    fn network(&self, value: u64) -> u64 {
        let mut low = value & self.low_mask;
        let mut high = value >> self.low_bits;
        for pair in self.round_keys.chunks_exact(2) {
            low ^= mix(high.wrapping_add(pair[0])) & self.low_mask;
            high ^= mix(low.wrapping_add(pair[1])) & self.high_mask;
        }
        high << self.low_bits | low
    }
}

/// The finalizer of SplitMix64 (Steele, Lea and Flood, OOPSLA 2014).
fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn every_small_size_is_a_bijection() {
        for n in (1..300).chain([1000, 1023, 1024, 1025]) {
            let permutation = Permutation::new(rng::key(7, "pass", n, "a"), n);
            let mut seen = vec![false; n as usize];
            (0..n).for_each(|index| seen[permutation.at(index) as usize] = true);
            assert!(seen.iter().all(|&hit| hit), "n = {n}");
        }
    }

    #[test]
    fn the_largest_size_is_in_range() {
        let permutation = Permutation::new([1, 2], 1 << 63);
        for index in [0, 1, (1 << 63) - 1] {
            assert!(permutation.at(index) < 1 << 63);
        }
    }

    #[test]
    fn small_permutations_are_close_to_uniform() {
        // 24 permutations of 4 over 24,000 keys: chi-square with 23 degrees of freedom, 49.7 is p = 0.001.
        let mut counts = std::collections::HashMap::new();
        for number in 0..24_000 {
            let permutation = Permutation::new(rng::key(3, "pass", number, "a"), 4);
            *counts
                .entry([0, 1, 2, 3].map(|index| permutation.at(index)))
                .or_insert(0_i64) += 1;
        }
        let chi: f64 = counts
            .values()
            .map(|&c| ((c - 1000) as f64).powi(2) / 1000.0)
            .sum();
        assert_eq!(counts.len(), 24);
        assert!(chi < 49.7, "chi-square {chi}");
    }

    proptest! {
        #[test]
        fn distinct_indices_go_to_distinct_places(n in 2_u64..=1 << 63, a: u64, b: u64, k0: u64, k1: u64) {
            let permutation = Permutation::new([k0, k1], n);
            let (a, b) = (a % n, b % n);
            prop_assert_eq!(permutation.at(a) == permutation.at(b), a == b);
            prop_assert_eq!(permutation.inverse(permutation.at(a)), a);
        }
    }
}
