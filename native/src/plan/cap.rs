//! Caps: who is at one, and where the credit of a capped domain goes.

use super::shares::largest_remainder;
use super::{AtCap, Domain, Member};

/// Takes the weight of every domain that is at a `redistribute` cap; returns which had one.
pub fn close(parts: &mut [u64], members: &[Member], left: &[u64]) -> Vec<usize> {
    let closed: Vec<usize> = (0..parts.len())
        .filter(|&i| parts[i] > 0 && left[i] == 0 && members[i].at_cap == AtCap::Redistribute)
        .collect();
    closed.iter().for_each(|&i| parts[i] = 0);
    closed
}

/// Gives the credit of domain `from` to the others in proportion to their shares, by largest remainder.
pub fn give_away(domains: &mut [Domain], from: usize, shares: &[i64]) {
    let credit = domains[from].credit;
    if credit == 0 || shares.iter().all(|&share| share == 0) {
        return;
    }
    let sizes: Vec<u128> = shares.iter().map(|&share| share as u128).collect();
    let gifts = largest_remainder(u128::from(credit.unsigned_abs()), &sizes);
    domains[from].credit = 0;
    for (domain, gift) in domains.iter_mut().zip(gifts) {
        domain.credit += gift as i64 * credit.signum();
    }
}
