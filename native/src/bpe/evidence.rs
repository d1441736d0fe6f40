//! What a pair is worth to a language: the keys of the queues.
//!
//! `TrainCounts` is the published rule: occurrences in the language's training text. `Mixed` weighs occurrences in
//! training and development text, in exact integers: of pairs that are equally frequent in training, the one that
//! also occurs in the development text saves more there, and a pair that never does cannot hold a language up.
//! `PowerNorm` has no neediest language: it lowers the p-norm of all costs at once.
//!
//! All keys fall when counts fall, and so do the weights of `PowerNorm`, which is what the lazy queue needs.

use crate::bpe::pairs::PairCounts;
use crate::bpe::queue::Key;

/// Counts of one pair by column.
pub trait Counts {
    fn of(&self, column: usize) -> u64;
    /// Hand every (column, count) that may be positive to `each`, columns ascending.
    fn each(&self, each: impl FnMut(usize, u64));
}

impl Counts for &[u64] {
    fn of(&self, column: usize) -> u64 {
        self[column]
    }

    fn each(&self, mut each: impl FnMut(usize, u64)) {
        self.iter()
            .enumerate()
            .filter(|(_, count)| **count > 0)
            .for_each(|(column, count)| each(column, *count));
    }
}

impl Counts for PairCounts<'_> {
    fn of(&self, column: usize) -> u64 {
        self.get(column)
    }

    fn each(&self, mut each: impl FnMut(usize, u64)) {
        self.iter().for_each(|(column, count)| each(column, count));
    }
}

/// A rule for the worth of pairs.
pub trait Evidence: Send + Sync {
    type Key: Key;

    /// Number of queues: the languages, or one for all.
    fn queues(&self) -> usize;

    /// Worth of a pair in a queue, 0 when it can't be merged for it.
    fn key(&self, queue: usize, counts: &impl Counts) -> Self::Key;

    /// Occurrences of a pair in the text that the queue judges by.
    fn count(&self, queue: usize, counts: &impl Counts) -> u64;

    /// Look at the tokens of all columns before the next merge is chosen.
    fn observe(&mut self, _totals: &[u64]) {}

    /// A language takes part only when its best pair is worth this part of the best of all; None: all do.
    fn guard(&self) -> Option<f64> {
        None
    }

    /// A key as a number that can be compared between queues.
    fn worth(&self, _queue: usize, _key: Self::Key) -> f64 {
        0.0
    }
}

/// Occurrences in the training text.
pub struct TrainCounts {
    pub languages: usize,
    pub min_frequency: u64,
}

impl Evidence for TrainCounts {
    type Key = u64;

    fn queues(&self) -> usize {
        self.languages
    }

    #[inline]
    fn key(&self, queue: usize, counts: &impl Counts) -> u64 {
        let count = counts.of(queue);
        if count < self.min_frequency { 0 } else { count }
    }

    fn count(&self, queue: usize, counts: &impl Counts) -> u64 {
        counts.of(queue)
    }
}

/// Sizes that weigh the two texts of each language against each other.
#[derive(Clone, Debug)]
pub struct Sizes {
    /// UTF-8 bytes of training text, and of the development text that gives evidence
    pub train: Vec<u64>,
    pub dev: Vec<u64>,
    /// Lines of that development text
    pub lines: u64,
}

impl Sizes {
    /// Bytes of training text per byte of development text; no text counts as a byte.
    fn ratio(&self, language: usize) -> f64 {
        self.dev[language].max(1) as f64 / self.train[language].max(1) as f64
    }
}

/// lambda times the occurrences in development text, plus 1 - lambda times those in training text scaled to its size.
pub struct Mixed {
    pub sizes: Sizes,
    /// lambda = part / whole
    pub part: u64,
    pub whole: u64,
    /// How much the other languages' savings count
    pub eta: f64,
    pub kappa: f64,
    pub min_frequency: u64,
}

/// Keys with eta are fractions of a token per line, in units of 2^-64.
const UNIT: f64 = 18_446_744_073_709_551_616.0;

impl Mixed {
    fn languages(&self) -> usize {
        self.sizes.train.len()
    }

    /// Tokens that merging the pair everywhere saves in all languages, per line.
    fn joint_gain(&self, counts: &impl Counts) -> f64 {
        let lambda = self.part as f64 / self.whole as f64;
        gain_by_column(&self.sizes, lambda, counts, |_| 1.0)
    }
}

/// Sum over languages of weight * tokens saved per line.
fn gain_by_column(
    sizes: &Sizes,
    lambda: f64,
    counts: &impl Counts,
    weight: impl Fn(usize) -> f64,
) -> f64 {
    let languages = sizes.train.len();
    let mut sum = 0.0;
    counts.each(|column, count| match column / languages {
        0 => sum += weight(column) * ((1.0 - lambda) * sizes.ratio(column) * count as f64),
        1 => sum += weight(column - languages) * (lambda * count as f64),
        _ => {}
    });
    sum / sizes.lines as f64
}

impl Evidence for Mixed {
    type Key = u128;

    fn queues(&self) -> usize {
        self.languages()
    }

    #[inline]
    fn key(&self, queue: usize, counts: &impl Counts) -> u128 {
        let (train, dev) = (counts.of(queue), counts.of(queue + self.languages()));
        if train + dev < self.min_frequency {
            return 0;
        }
        let (train_size, dev_size) = (self.sizes.train[queue].max(1), self.sizes.dev[queue].max(1));
        let own = self.part as u128 * train_size as u128 * dev as u128
            + (self.whole - self.part) as u128 * dev_size as u128 * train as u128;
        if self.eta == 0.0 || own == 0 {
            return own;
        }
        ((self.worth_of_own(queue, own) + self.eta * self.joint_gain(counts)) * UNIT) as u128
    }

    fn count(&self, queue: usize, counts: &impl Counts) -> u64 {
        counts.of(queue) + counts.of(queue + self.languages())
    }

    fn guard(&self) -> Option<f64> {
        Some(self.kappa)
    }

    fn worth(&self, queue: usize, key: u128) -> f64 {
        if self.eta == 0.0 {
            self.worth_of_own(queue, key)
        } else {
            key as f64 / UNIT
        }
    }
}

impl Mixed {
    /// Tokens saved per line that an integer key without eta stands for.
    fn worth_of_own(&self, queue: usize, key: u128) -> f64 {
        key as f64
            / self.whole as f64
            / self.sizes.train[queue].max(1) as f64
            / self.sizes.lines as f64
    }
}

/// The fall of the p-norm of the languages' tokens per line: sum of (cost / 100)^(p - 1) * tokens saved per line.
pub struct PowerNorm {
    pub sizes: Sizes,
    pub lambda: f64,
    pub power: u32,
    pub min_frequency: u64,
    /// First column of the text whose tokens are the cost, and its lines
    pub cost: (usize, u64),
    pub weights: Vec<f64>,
}

impl Evidence for PowerNorm {
    type Key = Float;

    fn queues(&self) -> usize {
        1
    }

    #[inline]
    fn key(&self, _queue: usize, counts: &impl Counts) -> Float {
        if self.count(0, counts) < self.min_frequency {
            return Float::default();
        }
        Float::of(gain_by_column(
            &self.sizes,
            self.lambda,
            counts,
            |language| self.weights[language],
        ))
    }

    fn count(&self, _queue: usize, counts: &impl Counts) -> u64 {
        let mut sum = 0;
        counts.each(|column, count| {
            if column < 2 * self.sizes.train.len() {
                sum += count;
            }
        });
        sum
    }

    fn observe(&mut self, totals: &[u64]) {
        let (first, lines) = self.cost;
        for (language, weight) in self.weights.iter_mut().enumerate() {
            let cost = totals[first + language] as f64 / lines as f64 / 100.0;
            // By multiplication alone: `powi` may differ between platforms.
            *weight = (1..self.power).fold(1.0, |product, _| product * cost);
        }
    }
}

/// A float that is not negative, ordered by its bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Float(u64);

impl Float {
    fn of(value: f64) -> Self {
        Self(value.max(0.0).to_bits())
    }
}

impl Key for Float {
    fn level(self) -> usize {
        // The exponent, and 0 for 0 only.
        if self.0 == 0 {
            0
        } else {
            (self.0 >> 52) as usize + 1
        }
    }
}
