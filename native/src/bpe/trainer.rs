//! The merge loop: classical and parity-aware BPE, exact.
//!
//! Columns 0..L are the languages' training text, the next ones their development text (see `config`). Each step
//! chooses a language (`select`), takes the pair that is worth most to it (`evidence`; ties: the largest (left, right)
//! strings) and merges it everywhere, in all columns. The first `global_merges` steps choose by the sum of the
//! training counts instead. Only the pairs around the merged places are touched.
//!
//! Every merge makes a string that was no token before, so a vocabulary of n ids needs n - 256 merges. For suppose a
//! string S was made of (l, r), and later of another pair at another place. Nothing outside S crossed its bounds at
//! either place, and inside them the same pairs met: a run "x x x" that reaches over a bound from the left would merge
//! across it, or begin anew at it. So both places were cut alike, and the first merge joined both.

use std::cmp::Ordering;

use crate::bpe::cells::Cells;
use crate::bpe::config::{Config, Rule};
use crate::bpe::evidence::{Counts, Evidence, Mixed, PowerNorm, TrainCounts};
use crate::bpe::pairs::Pairs;
use crate::bpe::queue::Queue;
use crate::bpe::select::Selector;
use crate::bpe::slots::Slots;
use crate::bpe::tokens::Tokens;
use crate::bpe::words::Words;

/// One merge, with what chose it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Merge {
    pub left: u32,
    pub right: u32,
    pub token: u32,
    /// None in the global phase, and for a norm
    pub language: Option<u32>,
    /// Occurrences in the text of who chose it
    pub count: u64,
    /// Tokens that it saved in the text that is that language's score (of all languages when there is none)
    pub saved: u64,
}

/// What a step did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    Merged(Merge),
    /// The number of tokens or merges asked for is there
    Complete,
    /// No language has a pair left that is frequent enough
    Exhausted,
}

/// A training run that is stepped.
pub trait MergeLoop: Send + Sync {
    /// Do one merge.
    fn step(&mut self) -> Step;
    /// Number of tokens of each column now.
    fn totals(&self) -> &[u64];
    /// For each language, the number of merges after which it had no pair left.
    fn exhausted(&self) -> &[Option<usize>];
}

/// Begin a training run.
pub fn start(words: Words, config: Config) -> Result<Box<dyn MergeLoop>, String> {
    config.check(&words)?;
    let min_frequency = config.min_frequency.max(1);
    Ok(match config.rule {
        Rule::Train => {
            let evidence = TrainCounts {
                languages: config.languages,
                min_frequency,
            };
            Box::new(Trainer::new(words, config, evidence)?)
        }
        Rule::Mixed {
            part,
            whole,
            eta,
            kappa,
        } => {
            let evidence = Mixed {
                sizes: config.sizes(),
                part,
                whole,
                eta,
                kappa,
                min_frequency,
            };
            Box::new(Trainer::new(words, config, evidence)?)
        }
        Rule::Norm { part, whole, power } => {
            let evidence = PowerNorm {
                sizes: config.sizes(),
                lambda: part as f64 / whole as f64,
                power,
                min_frequency,
                cost: (config.cost_column(), config.lines),
                weights: vec![1.0; config.languages],
            };
            Box::new(Trainer::new(words, config, evidence)?)
        }
    })
}

/// The state of a training run.
struct Trainer<E: Evidence> {
    config: Config,
    evidence: E,
    columns: usize,
    tokens: Tokens,
    cells: Cells,
    pairs: Pairs,
    global: Queue<u64>,
    queues: Vec<Queue<E::Key>>,
    selector: Selector,
    /// Tokens of each column, now and at the start
    totals: Vec<u64>,
    initial: Vec<u64>,
    exhausted: Vec<Option<usize>>,
    merges: usize,
    left: Slots,
    right: Slots,
}

impl<E: Evidence> MergeLoop for Trainer<E> {
    fn step(&mut self) -> Step {
        if self.merges >= self.config.max_merges || self.tokens.len() >= self.config.max_tokens {
            return Step::Complete;
        }
        let chosen = if self.is_global() {
            self.choose_global()
        } else {
            self.choose()
        };
        match chosen {
            Some((pair, language, count)) => Step::Merged(self.apply(pair, language, count)),
            None => Step::Exhausted,
        }
    }

    fn totals(&self) -> &[u64] {
        &self.totals
    }

    fn exhausted(&self) -> &[Option<usize>] {
        &self.exhausted
    }
}

/// Pair, language and count of the next merge.
type Choice = (u32, Option<usize>, u64);

impl<E: Evidence> Trainer<E> {
    fn new(words: Words, config: Config, evidence: E) -> Result<Self, String> {
        let columns = words.columns;
        let mut totals = vec![0; columns];
        for (word, counts) in words.iter() {
            counts
                .iter()
                .for_each(|&(column, count)| totals[column as usize] += word.len() as u64 * count);
        }
        let cells = Cells::new(&words)?;
        drop(words);
        let mut trainer = Self {
            columns,
            tokens: Tokens::bytes(),
            cells,
            pairs: Pairs::default(),
            global: Queue::default(),
            queues: (0..evidence.queues()).map(|_| Queue::default()).collect(),
            selector: Selector::new(config.languages, config.window),
            initial: totals.clone(),
            totals,
            exhausted: vec![None; config.languages],
            merges: 0,
            left: Slots::new(config.max_tokens),
            right: Slots::new(config.max_tokens),
            config,
            evidence,
        };
        trainer.evidence.observe(&trainer.totals);
        trainer.count_bytes();
        Ok(trainer)
    }

    fn is_global(&self) -> bool {
        self.merges < self.config.global_merges
    }

    /// The pairs of bytes, at the start.
    fn count_bytes(&mut self) {
        let mut numbers = vec![0u32; 1 << 16];
        let mut found: Vec<(u32, Vec<u64>, Vec<u32>)> = Vec::new();
        let (cells, columns) = (&self.cells, self.columns);
        cells.pairs(&self.tokens.lengths, |at, (left, right), header| {
            let number = &mut numbers[(left << 8 | right) as usize];
            if *number == 0 {
                found.push((left << 8 | right, vec![0; columns], Vec::new()));
                *number = found.len() as u32;
            }
            let (_, row, places) = &mut found[*number as usize - 1];
            cells.counts(header, |column, count| row[column] += count);
            places.push(at);
        });
        for (ids, row, places) in found {
            self.keep((ids >> 8, ids & 0xff), &row, &places);
        }
    }

    /// Keep a pair if it can ever be merged, and queue it for those who can choose it.
    fn keep(&mut self, ids: (u32, u32), row: &[u64], places: &[u32]) {
        let sum = if self.is_global() {
            self.global_key(&row)
        } else {
            0
        };
        let mut number = None;
        let (evidence, pairs, tokens) = (&self.evidence, &mut self.pairs, &self.tokens);
        for (at, queue) in self.queues.iter_mut().enumerate() {
            let key = evidence.key(at, &row);
            if key > E::Key::default() {
                let number = *number.get_or_insert_with(|| pairs.push(ids, places, row));
                queue.push(key, number, |a, b| {
                    tokens.compare(pairs.ids(a), pairs.ids(b))
                });
            }
        }
        if sum > 0 {
            let number = *number.get_or_insert_with(|| pairs.push(ids, places, row));
            self.global.push(sum, number, |a, b| {
                tokens.compare(pairs.ids(a), pairs.ids(b))
            });
        }
    }

    /// Occurrences in all training text, 0 when there are too few.
    fn global_key(&self, counts: &impl Counts) -> u64 {
        let mut sum = 0;
        counts.each(|column, count| {
            if column < self.config.languages {
                sum += count;
            }
        });
        if sum < self.config.min_frequency.max(1) {
            0
        } else {
            sum
        }
    }

    fn choose_global(&mut self) -> Option<Choice> {
        let mut queue = std::mem::take(&mut self.global);
        let best = queue.best(
            |pair| self.global_key(&self.pairs.counts(pair)),
            |a, b| self.order(a, b),
        );
        self.global = queue;
        best.map(|(count, pair)| (pair, None, count))
    }

    fn choose(&mut self) -> Option<Choice> {
        self.evidence.observe(&self.totals);
        if self.queues.len() < self.config.languages {
            let (_, pair) = self.best(0)?;
            return Some((pair, None, self.evidence.count(0, &self.pairs.counts(pair))));
        }
        let scores = self.scores();
        let worth = self.worth();
        while let Some(language) = self
            .selector
            .choose(&scores, |l| self.exhausted[l].is_none() && worth[l])
        {
            if let Some((_, pair)) = self.best(language) {
                self.selector.served(language);
                return Some((
                    pair,
                    Some(language),
                    self.evidence.count(language, &self.pairs.counts(pair)),
                ));
            }
            self.exhausted[language] = Some(self.merges);
            if self.config.stop_when_exhausted {
                break;
            }
        }
        None
    }

    /// Which languages have a best pair that is worth a merge, by the guard of the evidence.
    fn worth(&mut self) -> Vec<bool> {
        let languages = self.config.languages;
        let Some(kappa) = self.evidence.guard() else {
            return vec![true; languages];
        };
        let mut worth = vec![0.0; languages];
        for (language, worth) in worth.iter_mut().enumerate() {
            if self.exhausted[language].is_some() {
                continue;
            }
            match self.best(language) {
                Some((key, _)) => *worth = self.evidence.worth(language, key),
                None => self.exhausted[language] = Some(self.merges),
            }
        }
        let most = worth.iter().copied().fold(0.0, f64::max);
        worth
            .into_iter()
            .map(|worth| worth > 0.0 && worth >= kappa * most)
            .collect()
    }

    /// How needy each language is.
    fn scores(&self) -> Vec<f64> {
        let first = self.config.cost_column();
        (0..self.config.languages)
            .map(|l| match &self.config.ratio {
                // In the order of the reference, so that the floats are the same.
                Some(ratio) => {
                    -((self.initial[l] as f64 / self.totals[l] as f64) / (ratio[l] / ratio[0]))
                }
                None => self.totals[first + l] as f64,
            })
            .collect()
    }

    fn best(&mut self, at: usize) -> Option<(E::Key, u32)> {
        let mut queue = std::mem::take(&mut self.queues[at]);
        let best = queue.best(
            |pair| self.evidence.key(at, &self.pairs.counts(pair)),
            |a, b| self.order(a, b),
        );
        self.queues[at] = queue;
        best
    }

    fn order(&self, a: u32, b: u32) -> Ordering {
        self.tokens.compare(self.pairs.ids(a), self.pairs.ids(b))
    }

    /// Tokens of a language in the text that is its score; of all languages when none is named.
    fn cost(&self, language: Option<usize>) -> u64 {
        let first = self.config.cost_column();
        match language {
            Some(language) => self.totals[first + language],
            None => self.totals[first..first + self.config.languages]
                .iter()
                .sum(),
        }
    }

    fn apply(&mut self, number: u32, language: Option<usize>, count: u64) -> Merge {
        let (left, right) = self.pairs.ids(number);
        let before = self.cost(language);
        let token = self.tokens.join(left, right);
        self.merges += 1;
        self.merge((left, right), token, number);
        self.settle((left, right), token);
        if self.merges == self.config.global_merges {
            self.global = Queue::default();
        }
        let saved = before - self.cost(language);
        Merge {
            left,
            right,
            token,
            language: language.map(|l| l as u32),
            count,
            saved,
        }
    }

    /// Merge the pair wherever it occurs and gather its neighbours in `left` and `right`.
    fn merge(&mut self, pair: (u32, u32), token: u32, number: u32) {
        let columns = self.columns;
        let places = self.pairs.take(number);
        let (left, right, totals) = (&mut self.left, &mut self.right, &mut self.totals);
        for at in places {
            let Some(around) = self.cells.merge(at, pair, token, &self.tokens.lengths) else {
                continue;
            };
            let left_row = around.left.map(|(id, place)| left.add(id, place, columns));
            let right_row = around.right.map(|id| right.add(id, at, columns));
            self.cells.counts(around.header, |column, count| {
                totals[column] -= count;
                if let Some(row) = left_row {
                    left.counts[row + column] += count;
                }
                if let Some(row) = right_row {
                    right.counts[row + column] += count;
                }
            });
        }
    }

    /// Take the merged neighbours off their old pairs and make the new ones.
    fn settle(&mut self, pair: (u32, u32), token: u32) {
        let (mut left, mut right) = (
            std::mem::take(&mut self.left),
            std::mem::take(&mut self.right),
        );
        for (id, row) in left.rows(self.columns).filter(|(id, _)| *id != token) {
            self.pairs.subtract((id, pair.0), row);
        }
        for (id, row) in right.rows(self.columns) {
            self.pairs.subtract((pair.1, id), row);
        }
        // In "a b a b" the second merge takes back the pair (token, a) that the first one made.
        if let Some(taken) = left.row(token, self.columns) {
            right.subtract(pair.0, taken, self.columns);
        }
        for (slot, (id, row)) in left.rows(self.columns).enumerate() {
            self.keep((id, token), row, &left.places[slot]);
        }
        for (slot, (id, row)) in right.rows(self.columns).enumerate() {
            self.keep((token, id), row, &right.places[slot]);
        }
        left.clear();
        right.clear();
        (self.left, self.right) = (left, right);
    }
}
