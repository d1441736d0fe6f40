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
use crate::bpe::config::Config;
use crate::bpe::evidence::{Counts, Evidence};
use crate::bpe::pairs::Pairs;
use crate::bpe::queue::Queue;
use crate::bpe::run::{MergeLoop, Step};
use crate::bpe::select::Selector;
use crate::bpe::slots::Slots;
use crate::bpe::state::State;
use crate::bpe::tokens::Tokens;
use crate::bpe::words::Words;

/// The state of a training run.
pub struct Trainer<E: Evidence> {
    pub(super) config: Config,
    pub(super) evidence: E,
    pub(super) columns: usize,
    pub(super) tokens: Tokens,
    pub(super) cells: Cells,
    pub(super) pairs: Pairs,
    pub(super) global: Queue<u64>,
    pub(super) queues: Vec<Queue<E::Key>>,
    selector: Selector,
    /// Tokens of each column, now and at the start
    pub(super) totals: Vec<u64>,
    initial: Vec<u64>,
    pub(super) exhausted: Vec<Option<usize>>,
    pub(super) merges: usize,
    pub(super) made: Vec<(u32, u32)>,
    /// Whether pairs across a blank inside a piece may be merged
    pub(super) crossing: bool,
    pub(super) left: Slots,
    pub(super) right: Slots,
}

impl<E: Evidence> MergeLoop for Trainer<E> {
    fn step(&mut self) -> Step {
        if self.merges >= self.config.max_merges || self.tokens.len() >= self.config.max_tokens {
            return Step::Complete;
        }
        let mut chosen = self.choose_any();
        if chosen.is_none() && !self.crossing {
            self.begin_crossing();
            chosen = self.choose_any();
        }
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

    fn state(&self) -> State {
        State {
            cells: self.cells.clone(),
            merges: self.made.clone(),
            totals: self.totals.clone(),
            initial: self.initial.clone(),
            exhausted: self.exhausted.clone(),
            recent: self.selector.recent(),
            crossing: self.crossing,
        }
    }
}

/// Pair, language and count of the next merge.
type Choice = (u32, Option<usize>, u64);

impl<E: Evidence> Trainer<E> {
    /// Begin with words.
    pub fn new(words: Words, config: Config, evidence: E) -> Result<Self, String> {
        let mut totals = vec![0; words.columns];
        for (word, counts) in words.iter() {
            counts
                .iter()
                .for_each(|&(column, count)| totals[column as usize] += word.len() as u64 * count);
        }
        let cells = Cells::new(&words)?;
        drop(words);
        let mut trainer = Self::of(cells, totals.clone(), totals, config, evidence);
        trainer.count_bytes();
        Ok(trainer)
    }

    /// Go on where a state was taken.
    pub fn resume(state: State, config: Config, evidence: E) -> Result<Self, String> {
        let mut trainer = Self::of(state.cells, state.totals, state.initial, config, evidence);
        for &(left, right) in &state.merges {
            if left.max(right) as usize >= trainer.tokens.len() {
                return Err("a merge of the state names a token that was not yet made".into());
            }
            trainer.tokens.join(left, right);
        }
        trainer.cells.check(&trainer.tokens.lengths)?;
        if state.exhausted.len() != trainer.config.languages {
            return Err("the state has another number of languages".into());
        }
        trainer.merges = state.merges.len();
        trainer.made = state.merges;
        trainer.exhausted = state.exhausted;
        trainer.crossing = state.crossing;
        trainer.selector.remember(&state.recent)?;
        trainer.count_pairs(|trainer, ids| trainer.may_merge(ids));
        Ok(trainer)
    }

    fn of(cells: Cells, totals: Vec<u64>, initial: Vec<u64>, config: Config, evidence: E) -> Self {
        let mut trainer = Self {
            columns: totals.len(),
            tokens: Tokens::bytes(),
            cells,
            pairs: Pairs::default(),
            global: Queue::default(),
            queues: (0..evidence.queues()).map(|_| Queue::default()).collect(),
            selector: Selector::new(config.languages, config.window),
            initial,
            totals,
            exhausted: vec![None; config.languages],
            merges: 0,
            made: Vec::new(),
            crossing: config.cross_from == 0,
            left: Slots::new(config.max_tokens),
            right: Slots::new(config.max_tokens),
            config,
            evidence,
        };
        trainer.evidence.observe(&trainer.totals);
        trainer
    }

    pub(super) fn is_global(&self) -> bool {
        self.merges < self.config.global_merges
    }

    /// Occurrences in all training text, 0 when there are too few.
    pub(super) fn global_key(&self, counts: &impl Counts) -> u64 {
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

    fn choose_any(&mut self) -> Option<Choice> {
        if self.is_global() {
            self.choose_global()
        } else {
            self.choose()
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
}
