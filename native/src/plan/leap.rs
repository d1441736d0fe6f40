//! Far steps of the balanced draw at constant shares: credits after `steps` steps at the cost of a few hundred.
//!
//! After a step every credit is min(x, r), x being what it was with the step's addition, and r the largest number below
//! the step's threshold with the same part below a window (items (credit, name) are given from the top, the threshold
//! is the last item given). The sum of credits never changes. Were all of them r, their parts below a window and the sum
//! would fix them, with no memory of the past: call those the *even* credits of the step, and their threshold even too.
//!
//! * As min(x, r) is at most r, a true threshold is never below the even one of its step, and so
//!   credit >= min(credit before + addition, even credit): a lower bound, domain by domain, from any lower bound before.
//! * Where that bound plus the addition reaches the even credit in every domain, the credits *are* the even ones.
//!
//! The second comes about whenever the even threshold is the lowest since each domain's latest turn, which takes about as
//! many steps as the rarest domain waits for a window; at the latest it comes about after that and one period of the
//! shares. So a leap begins at the plainest lower bound that far before its end, and walks until the credits are known.

use super::SHARE_BITS;
use super::WHOLE;
use super::balanced::{add, give, least_credit};

const MASK: i64 = WHOLE - 1;

/// Credits of domains with a share > 0, in bytewise order of names, `steps` steps after `credits`; `None` where walking
/// is no longer than a leap, or the lower bounds do not tell.
pub fn leap(credits: &[i64], adds: &[i64], batch: u64, steps: u64) -> Option<Vec<i64>> {
    let rarest = adds.iter().min()?.unsigned_abs().max(1);
    let mut back = 2 * (WHOLE as u64).div_ceil(rarest);
    while back <= steps / 2 {
        if let Some(found) = land(credits, adds, batch, steps, back) {
            return Some(found);
        }
        back = back.saturating_mul(4);
    }
    None
}

/// Begins `back` steps before the end.
fn land(credits: &[i64], adds: &[i64], batch: u64, steps: u64, back: u64) -> Option<Vec<i64>> {
    let sum: i64 = credits.iter().sum();
    let mut spare = Spare::new(credits.len());
    let mut now = least(credits, adds, steps - back);
    for left in (0..back).rev() {
        if spare.step(&mut now, adds, sum) {
            for _ in 0..left {
                add(&mut now, adds);
                give(&mut now, batch, &mut spare.counts, &mut spare.order);
            }
            return Some(now);
        }
    }
    None
}

/// The plainest lower bound of each credit after `steps` steps: no turn at all, or one at the lowest threshold there
/// can be.
pub(super) fn least(credits: &[i64], adds: &[i64], steps: u64) -> Vec<i64> {
    let floor = least_credit(credits);
    let bound = |(&credit, &add): (&i64, &i64)| {
        let untouched = i128::from(credit) + i128::from(add) * i128::from(steps);
        let low = untouched.min(i128::from(floor));
        (low + (untouched - low) % i128::from(WHOLE)) as i64
    };
    credits.iter().zip(adds).map(bound).collect()
}

/// Room for what a step needs.
pub(super) struct Spare {
    even: Vec<i64>,
    counts: Vec<u64>,
    order: Vec<u64>,
}

impl Spare {
    pub(super) fn new(domains: usize) -> Self {
        Self {
            even: vec![0; domains],
            counts: vec![0; domains],
            order: Vec::with_capacity(domains),
        }
    }

    /// Takes lower bounds of the credits over one step; true when they are the credits themselves from here on.
    pub(super) fn step(&mut self, least: &mut [i64], adds: &[i64], sum: i64) -> bool {
        add(least, adds);
        let even = self.even(least, sum);
        let known = least.iter().zip(even).all(|(least, even)| least >= even);
        least
            .iter_mut()
            .zip(even)
            .for_each(|(least, even)| *least = (*least).min(*even));
        known
    }

    /// The credits of this sum with the same parts below a window as `near` and a common threshold.
    fn even(&mut self, near: &[i64], sum: i64) -> &[i64] {
        self.even
            .iter_mut()
            .zip(near)
            .for_each(|(even, credit)| *even = credit & MASK);
        let missing = sum - self.even.iter().sum::<i64>();
        let layer = near.len() as i64 * WHOLE;
        // All on one level, up to a window each too much; what is too much is given from the top as in a step.
        let level = missing.div_euclid(layer) + 1;
        self.even
            .iter_mut()
            .for_each(|even| *even += level << SHARE_BITS);
        let over = (level * layer - missing) >> SHARE_BITS;
        give(
            &mut self.even,
            over as u64,
            &mut self.counts,
            &mut self.order,
        );
        &self.even
    }
}
