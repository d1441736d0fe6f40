//! One step: who gets how many of its slots.

use super::balanced::give;
use super::cap::{close, give_away};
use super::shares::shares;
use super::{AtCap, Domain, Draw, Ended, Piece, SHARE_BITS, WHOLE};
use crate::rng;

/// A step being dealt. `domains` holds the credits; passes and indices are moved by who asked.
pub struct Step<'a> {
    piece: &'a Piece,
    pub domains: &'a mut [Domain],
    parts: Vec<u64>,
    pub shares: Vec<i64>,
    /// Windows that the cap of each domain still allows at the start of the step.
    left: Vec<u64>,
    pub counts: Vec<u64>,
}

impl<'a> Step<'a> {
    /// The weights of `step`, with the caps that hold at its start.
    pub fn open(piece: &'a Piece, domains: &'a mut [Domain], step: u64) -> Result<Self, Ended> {
        let left: Vec<u64> = piece
            .members
            .iter()
            .zip(&*domains)
            .map(|(member, d)| member.windows_left(d))
            .collect();
        let mut parts = piece.parts_at(step);
        let closed = close(&mut parts, &piece.members, &left);
        if parts.iter().all(|&part| part == 0) {
            return Err(Ended {
                domain: closed.first().copied().unwrap_or(0),
            });
        }
        let shares = shares(&parts, &piece.members);
        closed.iter().for_each(|&i| give_away(domains, i, &shares));
        let counts = vec![0; domains.len()];
        Ok(Self {
            piece,
            domains,
            parts,
            shares,
            left,
            counts,
        })
    }

    /// Deals all slots; `domains` is spoilt when the run ends before.
    pub fn deal(&mut self, step: u64) -> Result<(), Ended> {
        match self.piece.draw {
            Draw::Balanced => self.balanced(),
            Draw::Multinomial => self.multinomial(step),
        }
    }

    fn balanced(&mut self) -> Result<(), Ended> {
        let batch = i64::from(self.piece.batch);
        self.domains
            .iter_mut()
            .zip(&self.shares)
            .for_each(|(domain, share)| domain.credit += share * batch);
        if self.at_once() {
            return Ok(());
        }
        for _ in 0..batch {
            let most = self.with_most_credit().expect("shares sum to one");
            self.domains[most].credit -= WHOLE;
            self.take(most)?;
        }
        Ok(())
    }

    /// All slots in closed form, if no cap is reached within the step.
    fn at_once(&mut self) -> bool {
        let owed: Vec<usize> = (0..self.shares.len())
            .filter(|&i| self.shares[i] > 0)
            .collect();
        let mut credits: Vec<i64> = owed.iter().map(|&i| self.domains[i].credit).collect();
        let mut counts = vec![0; owed.len()];
        give(
            &mut credits,
            u64::from(self.piece.batch),
            &mut counts,
            &mut Vec::new(),
        );
        if owed
            .iter()
            .zip(&counts)
            .any(|(&i, &count)| count > self.free(i))
        {
            return false;
        }
        for ((&i, credit), count) in owed.iter().zip(credits).zip(counts) {
            self.domains[i].credit = credit;
            self.counts[i] = count;
        }
        true
    }

    /// Windows that domain `i` can be given without a cap changing anything.
    pub fn free(&self, i: usize) -> u64 {
        match self.piece.members[i].at_cap {
            _ if self.left[i] == u64::MAX => u64::MAX,
            AtCap::Redistribute => self.left[i].saturating_sub(1),
            AtCap::Stop => self.left[i],
        }
    }

    fn with_most_credit(&self) -> Option<usize> {
        let owed = (0..self.shares.len()).filter(|&i| self.shares[i] > 0);
        owed.max_by_key(|&i| (self.domains[i].credit, std::cmp::Reverse(i)))
    }

    fn multinomial(&mut self, step: u64) -> Result<(), Ended> {
        let key = rng::key(self.piece.seed, "draw", step, "");
        let mut ends = ends_of(&self.shares);
        for slot in 0..self.piece.batch {
            let place = (rng::random_u64(key, u64::from(slot)) >> SHARE_BITS) as i64;
            if self.take(ends.partition_point(|&end| end <= place))? {
                ends = ends_of(&self.shares);
            }
        }
        Ok(())
    }

    /// Counts a window of domain `i`; closes the domain, and returns true, if it was the last that its cap allows.
    fn take(&mut self, i: usize) -> Result<bool, Ended> {
        if self.counts[i] == self.left[i] {
            return Err(Ended { domain: i });
        }
        self.counts[i] += 1;
        if self.counts[i] < self.left[i] || self.piece.members[i].at_cap == AtCap::Stop {
            return Ok(false);
        }
        self.parts[i] = 0;
        self.shares = shares(&self.parts, &self.piece.members);
        give_away(self.domains, i, &self.shares);
        let dealt: u64 = self.counts.iter().sum();
        if dealt < u64::from(self.piece.batch) && self.parts.iter().all(|&part| part == 0) {
            return Err(Ended { domain: i });
        }
        Ok(true)
    }
}

/// Ends of the domains' parts of [0, 2^32), in order.
fn ends_of(shares: &[i64]) -> Vec<i64> {
    let mut end = 0;
    let sums = shares.iter().map(|share| {
        end += share;
        end
    });
    sums.collect()
}
