//! The balanced draw: by credit, in closed form within a step and over whole periods of steps.
//!
//! The rule, slot by slot: the slot goes to the domain with most credit, ties to the smallest name, and costs it one
//! window. So a step's slots are the `batch` largest of {credit_i - j : j = 0, 1, ...}, which needs no loop over slots.

use super::leap::leap;
use super::{SHARE_BITS, WHOLE};

const MASK: i64 = WHOLE - 1;

/// Gives `batch` slots to the domains of `credits`, which are in bytewise order of names; adds to `counts`.
pub fn give(credits: &mut [i64], batch: u64, counts: &mut [u64], scratch: &mut Vec<u64>) {
    let level = level(credits, batch);
    let mut missing = batch;
    scratch.clear();
    for (i, (credit, count)) in credits.iter_mut().zip(counts.iter_mut()).enumerate() {
        let above = (*credit >> SHARE_BITS) - level;
        if above < 0 {
            continue;
        }
        *count += above as u64;
        missing -= above as u64;
        scratch.push(((*credit & MASK) as u64) << SHARE_BITS | u64::from(u32::MAX - i as u32));
        *credit -= above << SHARE_BITS;
    }
    let missing = missing as usize;
    if missing < scratch.len() && missing > 0 {
        scratch.select_nth_unstable_by(missing - 1, |a, b| b.cmp(a));
    }
    for &entry in &scratch[..missing] {
        let i = (u32::MAX - entry as u32) as usize;
        credits[i] -= WHOLE;
        counts[i] += 1;
    }
}

/// Adds what a step adds.
pub fn add(credits: &mut [i64], adds: &[i64]) {
    credits
        .iter_mut()
        .zip(adds)
        .for_each(|(credit, add)| *credit += add);
}

/// No turn leaves less credit than this: the lowest threshold of a step lies at the mean of credits, which never moves.
pub fn least_credit(credits: &[i64]) -> i64 {
    credits.iter().sum::<i64>().div_euclid(credits.len() as i64) - WHOLE
}

/// The highest level such that at least `batch` of the values credit_i - j lie at or above it (in whole windows).
fn level(credits: &[i64], batch: u64) -> i64 {
    let at_or_above = |level: i64| -> u64 {
        credits
            .iter()
            .map(|credit| ((credit >> SHARE_BITS) - level + 1).max(0) as u64)
            .sum()
    };
    // Nearly always 0: credits sum to the batch unless a domain of weight 0 keeps some.
    if at_or_above(0) >= batch && at_or_above(1) < batch {
        return 0;
    }
    let whole = credits.iter().map(|credit| credit >> SHARE_BITS);
    let mut high = whole.max().unwrap_or(0) + 1;
    let mut low = high - batch as i64 - 1;
    while high - low > 1 {
        let middle = low + (high - low) / 2;
        if at_or_above(middle) >= batch {
            low = middle
        } else {
            high = middle
        }
    }
    low
}

/// Many steps at constant shares.
pub struct Bulk<'a> {
    /// Credit of each domain with a share, changed in place.
    pub credits: &'a mut [i64],
    /// What a step adds to each: share * batch.
    pub adds: &'a [i64],
    pub batch: u64,
    /// Windows that each may be given in all; a step that would take one beyond it is not made.
    pub limits: &'a [u64],
    /// Windows given, added up in place.
    pub counts: &'a mut [u64],
    /// Least and most credit seen at the end of a step, kept up to date if asked for.
    pub seen: Option<&'a mut [(i64, i64)]>,
}

impl Bulk<'_> {
    /// Makes at most `steps` steps; returns how many.
    ///
    /// Far steps are leapt to, as long as no limit can be reached before. Where extremes are asked for every step counts,
    /// and only whole periods are skipped.
    pub fn run(&mut self, steps: u64) -> u64 {
        if self.seen.is_some() {
            return self.by_periods(steps);
        }
        let far = self.unlimited_steps().min(steps);
        let Some(credits) = leap(self.credits, self.adds, self.batch, far) else {
            return self.steps(steps);
        };
        for (i, credit) in credits.into_iter().enumerate() {
            let owed = i128::from(self.adds[i]) * i128::from(far) + i128::from(self.credits[i]);
            self.counts[i] += ((owed - i128::from(credit)) >> SHARE_BITS) as u64;
            self.credits[i] = credit;
        }
        far + self.steps(steps - far)
    }

    /// Steps for which no domain can be given more than its limit, whatever the order of turns.
    pub(super) fn unlimited_steps(&self) -> u64 {
        let floor = least_credit(self.credits);
        let steps_of = |i: usize| {
            let room = i128::from(self.limits[i] - self.counts[i]) << SHARE_BITS;
            let at_once = i128::from(self.credits[i]) - i128::from(floor.min(self.credits[i]));
            (room - at_once).max(0) as u128 / self.adds[i].max(1) as u128
        };
        let limited = (0..self.limits.len()).filter(|&i| self.limits[i] != u64::MAX);
        limited
            .map(|i| u64::try_from(steps_of(i)).unwrap_or(u64::MAX))
            .min()
            .unwrap_or(u64::MAX)
    }

    /// Credits come back after `period` steps if they do at all, and from 0 they do: each then has a whole number of
    /// windows of credit, more than -1 and 0 in sum. So long stretches cost one period and a multiplication.
    fn by_periods(&mut self, steps: u64) -> u64 {
        let period = self.period();
        let mut done = 0;
        while steps - done > 2 * period {
            let (credits, counts) = (self.credits.to_vec(), self.counts.to_vec());
            let made = self.steps(period);
            done += made;
            if made < period {
                return done;
            }
            if self.credits[..] == credits[..] {
                done += period * self.skip(&counts, (steps - done) / period);
                break;
            }
        }
        done + self.steps(steps - done)
    }

    /// Steps after which each domain has been owed a whole number of windows.
    fn period(&self) -> u64 {
        let bits = self
            .adds
            .iter()
            .map(|add| add.trailing_zeros())
            .min()
            .unwrap_or(SHARE_BITS);
        1 << (SHARE_BITS - bits.min(SHARE_BITS))
    }

    /// Adds what a period gave, up to `times` times and within the limits; returns how often.
    fn skip(&mut self, before: &[u64], times: u64) -> u64 {
        let gains: Vec<u64> = self
            .counts
            .iter()
            .zip(before)
            .map(|(now, before)| now - before)
            .collect();
        let allowed = gains
            .iter()
            .zip(&*self.counts)
            .zip(self.limits)
            .map(|((&gain, &count), &limit)| (limit - count).checked_div(gain).unwrap_or(u64::MAX));
        let times = allowed.fold(times, u64::min);
        self.counts
            .iter_mut()
            .zip(&gains)
            .for_each(|(count, gain)| *count += gain * times);
        times
    }

    /// At most `steps` steps one by one; returns how many the limits allowed.
    fn steps(&mut self, steps: u64) -> u64 {
        let mut scratch = Vec::with_capacity(self.credits.len());
        let mut done = 0;
        while done < steps {
            let free = self.free_steps().min(steps - done);
            for _ in 0..free {
                self.step(&mut scratch);
            }
            done += free;
            if done < steps && free == 0 {
                if !self.checked_step(&mut scratch) {
                    return done;
                }
                done += 1;
            }
        }
        steps
    }

    /// Steps that cannot reach a limit, whoever gets their slots.
    fn free_steps(&self) -> u64 {
        let left = self
            .limits
            .iter()
            .zip(&*self.counts)
            .map(|(limit, count)| limit - count);
        left.min().unwrap_or(u64::MAX) / self.batch
    }

    fn step(&mut self, scratch: &mut Vec<u64>) {
        add(self.credits, self.adds);
        give(self.credits, self.batch, self.counts, scratch);
        if let Some(seen) = &mut self.seen {
            watch(seen, self.credits.iter().copied());
        }
    }

    /// One step, unless it takes a domain beyond its limit; then nothing changes.
    fn checked_step(&mut self, scratch: &mut Vec<u64>) -> bool {
        let (mut credits, mut counts) = (self.credits.to_vec(), self.counts.to_vec());
        add(&mut credits, self.adds);
        give(&mut credits, self.batch, &mut counts, scratch);
        if counts
            .iter()
            .zip(self.limits)
            .any(|(count, limit)| count > limit)
        {
            return false;
        }
        self.step(scratch);
        true
    }
}

/// Widens the least and most seen of each domain.
pub fn watch(seen: &mut [(i64, i64)], credits: impl Iterator<Item = i64>) {
    for ((least, most), credit) in seen.iter_mut().zip(credits) {
        *least = credit.min(*least);
        *most = credit.max(*most);
    }
}
