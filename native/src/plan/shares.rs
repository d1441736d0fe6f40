//! Exact shares of slots from weights of real tokens: weight / fill by largest remainder, once a step.

use std::cmp::Reverse;

use super::cosine::HALF_COSINE;
use super::{Curve, Member, Piece, Ramp};

/// A share is a part of 2^32.
pub const SHARE_BITS: u32 = 32;
/// A weight is a part of 2^62.
pub const PARTS_BITS: u32 = 62;

const WHOLE: u128 = 1 << SHARE_BITS;

/// Shares that sum to 2^32 (all 0 when all `parts` are).
///
/// A weight is first corrected by fill and rounded down: floor(parts * windows * seq_len / real), exact to 2^-62.
/// Then largest remainder; ties go to the bytewise smallest name, which is the first.
pub fn shares(parts: &[u64], members: &[Member]) -> Vec<i64> {
    let corrected: Vec<u128> = parts
        .iter()
        .zip(members)
        .map(|(&part, member)| member.view.per_fill(part))
        .collect();
    largest_remainder(WHOLE, &corrected)
        .into_iter()
        .map(|share| share as i64)
        .collect()
}

/// `whole` divided in proportion to `sizes`, in integers that sum to it (all 0 when all sizes are).
///
/// `whole` below 2^64, the sum of sizes below 2^95 when whole is 2^32 (larger sizes are shifted down together).
pub fn largest_remainder(whole: u128, sizes: &[u128]) -> Vec<u128> {
    let total: u128 = sizes.iter().sum();
    if total == 0 {
        return vec![0; sizes.len()];
    }
    let mut parts: Vec<u128> = sizes.iter().map(|&size| size * whole / total).collect();
    let missing = (whole - parts.iter().sum::<u128>()) as usize;
    if missing > 0 {
        let remainder = |i: usize| sizes[i] * whole - parts[i] * total;
        // Less than one whole part is missing for each size that has a remainder, so `missing` is below their number.
        let mut order: Vec<(Reverse<u128>, usize)> = (0..sizes.len())
            .map(|i| (Reverse(remainder(i)), i))
            .collect();
        order.select_nth_unstable(missing - 1);
        order[..missing].iter().for_each(|&(_, i)| parts[i] += 1);
    }
    parts
}

impl Piece {
    /// The weights of a step, in units of 2^-62, before caps.
    pub fn parts_at(&self, step: u64) -> Vec<u64> {
        match self.ramp {
            None => self.members.iter().map(|member| member.parts).collect(),
            Some(ramp) => {
                let gone = u128::from(ramp.gone(step));
                self.members
                    .iter()
                    .map(|member| between(member, gone))
                    .collect()
            }
        }
    }

    /// The shares of a step, before caps.
    pub fn shares_at(&self, step: u64) -> Vec<i64> {
        shares(&self.parts_at(step), &self.members)
    }
}

fn between(member: &Member, gone: u128) -> u64 {
    ((u128::from(member.parts) * (WHOLE - gone) + u128::from(member.parts_to) * gone) >> SHARE_BITS)
        as u64
}

impl Ramp {
    /// How much of the way lies behind at the start of `step`, in units of 2^-32.
    fn gone(&self, step: u64) -> u64 {
        let offset = step.saturating_sub(self.start).min(self.length);
        let linear = ((u128::from(offset) << SHARE_BITS) / u128::from(self.length.max(1))) as u64;
        match self.curve {
            Curve::Linear => linear,
            Curve::Cosine => half_cosine(linear),
        }
    }
}

/// (1 - cos(pi x)) / 2 in units of 2^-32, x in the same units: the table between whole 1/256 of the way, linear inside.
fn half_cosine(x: u64) -> u64 {
    let (cell, inside) = ((x >> 24) as usize, x & 0xff_ffff);
    if cell >= 256 {
        return 1 << SHARE_BITS;
    }
    let (low, high) = (HALF_COSINE[cell], HALF_COSINE[cell + 1]);
    low + (((high - low) * inside) >> 24)
}
