//! The merge loop: classical and parity-aware BPE, exact.
//!
//! Columns 0..L are the languages' training text and, with a development set, L..2L their development text. Each step
//! chooses a language (`select`), takes its most frequent pair by the counts of its training text (ties: the largest
//! (left, right) strings) and merges it everywhere, in both texts. The first `global_merges` steps choose by the sum
//! over languages instead. Only the pairs around the merged places are touched.
//!
//! Every merge makes a string that was no token before, so a vocabulary of n ids needs n - 256 merges. For suppose a
//! string S was made of (l, r), and later of another pair at another place. Nothing outside S crossed its bounds at
//! either place, and inside them the same pairs met: a run "x x x" that reaches over a bound from the left would merge
//! across it, or begin anew at it. So both places were cut alike, and the first merge joined both.

use crate::bpe::cells::{Cells, MAX_TOKENS};
use crate::bpe::pairs::Pairs;
use crate::bpe::queue::Queue;
use crate::bpe::select::{Selector, Window};
use crate::bpe::tokens::Tokens;
use crate::bpe::words::Words;

/// What to learn.
#[derive(Clone, Debug)]
pub struct Config {
    pub languages: usize,
    /// Whether columns L..2L hold development text
    pub development: bool,
    /// Most tokens to make, the 256 bytes included
    pub max_tokens: usize,
    /// Most merges to write
    pub max_merges: usize,
    /// Steps that choose the pair by the sum over languages, before parity begins
    pub global_merges: usize,
    /// A pair must occur this often in the training text of the language that asks for it
    pub min_frequency: u64,
    pub window: Option<Window>,
    /// Wanted compression of each language, relative to the first; instead of a development set
    pub ratio: Option<Vec<f64>>,
    /// End at the first exhausted language, as the reference implementation does
    pub stop_when_exhausted: bool,
}

impl Config {
    fn check(&self, words: &Words) -> Result<(), String> {
        let columns = self.languages * if self.development { 2 } else { 1 };
        if self.languages == 0 || words.columns != columns {
            return Err(format!(
                "{} columns of text were counted, {columns} are needed",
                words.columns
            ));
        }
        if self.max_tokens > MAX_TOKENS || self.max_tokens < 256 {
            return Err(format!(
                "a vocabulary must hold between 256 and {MAX_TOKENS} tokens, not {}",
                self.max_tokens
            ));
        }
        if let Some(ratio) = &self.ratio
            && (ratio.len() != self.languages || ratio.iter().any(|r| !r.is_finite() || *r <= 0.0))
        {
            return Err(format!(
                "ratios must be {} positive numbers, not {ratio:?}",
                self.languages
            ));
        }
        match self.window {
            Some(Window { size, alpha, .. }) if size == 0 || !alpha.is_finite() || alpha <= 0.0 => {
                Err(format!(
                    "a window needs a positive size and alpha, not {size} and {alpha}"
                ))
            }
            _ => Ok(()),
        }
    }
}

/// One merge, with what chose it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Merge {
    pub left: u32,
    pub right: u32,
    pub token: u32,
    /// None in the global phase
    pub language: Option<u32>,
    /// Occurrences in the text of who chose it
    pub count: u64,
    /// Tokens of that language before the merge, in the text that its score is taken from
    pub tokens_before: u64,
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

/// Neighbours of a merged pair on one side, each with its counts and places.
#[derive(Default)]
struct Slots {
    /// Slot + 1 of a token id, 0 where it has none
    of: Vec<u32>,
    ids: Vec<u32>,
    rows: Vec<u64>,
    places: Vec<Vec<u32>>,
}

impl Slots {
    #[inline]
    fn slot(&mut self, id: u32, columns: usize) -> usize {
        let slot = self.of[id as usize];
        if slot > 0 {
            return slot as usize - 1;
        }
        self.ids.push(id);
        self.of[id as usize] = self.ids.len() as u32;
        self.rows.resize(self.ids.len() * columns, 0);
        if self.places.len() < self.ids.len() {
            self.places.push(Vec::new());
        }
        self.ids.len() - 1
    }

    fn row(&self, id: u32, columns: usize) -> Option<&[u64]> {
        let slot = self.of[id as usize].checked_sub(1)? as usize;
        Some(&self.rows[slot * columns..(slot + 1) * columns])
    }

    /// Each neighbour with its counts, in slot order.
    fn rows(&self, columns: usize) -> impl Iterator<Item = (u32, &[u64])> {
        self.ids
            .iter()
            .copied()
            .zip(self.rows.chunks_exact(columns))
    }

    fn subtract(&mut self, id: u32, taken: &[u64], columns: usize) {
        let slot = self.slot(id, columns);
        let row = &mut self.rows[slot * columns..(slot + 1) * columns];
        row.iter_mut()
            .zip(taken)
            .for_each(|(count, taken)| *count -= taken);
    }

    fn clear(&mut self) {
        for (slot, id) in self.ids.drain(..).enumerate() {
            self.of[id as usize] = 0;
            self.places[slot].clear();
        }
        self.rows.clear();
    }
}

/// The state of a training run.
pub struct Trainer {
    config: Config,
    columns: usize,
    tokens: Tokens,
    cells: Cells,
    pairs: Pairs,
    global: Queue<u64>,
    queues: Vec<Queue<u64>>,
    selector: Selector,
    /// Tokens of each column, now and at the start
    totals: Vec<u64>,
    initial: Vec<u64>,
    exhausted: Vec<Option<usize>>,
    merges: usize,
    left: Slots,
    right: Slots,
}

impl Trainer {
    pub fn new(words: Words, config: Config) -> Result<Self, String> {
        config.check(&words)?;
        let columns = words.columns;
        let mut totals = vec![0; columns];
        for (word, counts) in words.iter() {
            counts
                .iter()
                .for_each(|&(column, count)| totals[column as usize] += word.len() as u64 * count);
        }
        let cells = Cells::new(&words)?;
        drop(words);
        let slots = || Slots {
            of: vec![0; config.max_tokens.max(256) + 1],
            ..Slots::default()
        };
        let mut trainer = Self {
            columns,
            tokens: Tokens::bytes(),
            cells,
            pairs: Pairs::default(),
            global: Queue::default(),
            queues: (0..config.languages).map(|_| Queue::default()).collect(),
            selector: Selector::new(config.languages, config.window),
            initial: totals.clone(),
            totals,
            exhausted: vec![None; config.languages],
            merges: 0,
            left: slots(),
            right: slots(),
            config,
        };
        trainer.count_bytes();
        Ok(trainer)
    }

    /// Number of tokens of each column now.
    pub fn totals(&self) -> &[u64] {
        &self.totals
    }

    /// For each language, the number of merges after which it had no pair left.
    pub fn exhausted(&self) -> &[Option<usize>] {
        &self.exhausted
    }

    pub fn tokens(&self) -> usize {
        self.tokens.len()
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
        let train = &row[..self.config.languages];
        let least = self.config.min_frequency.max(1);
        let sum: u64 = train.iter().sum();
        let most = if self.is_global() {
            sum
        } else {
            train.iter().copied().max().unwrap_or(0)
        };
        if most < least {
            return;
        }
        let number = self.pairs.push(ids, places, row);
        let (pairs, tokens) = (&self.pairs, &self.tokens);
        let order = |a: u32, b: u32| tokens.compare(pairs.ids(a), pairs.ids(b));
        if self.merges < self.config.global_merges {
            self.global.push(sum, number, order);
        }
        for (language, &count) in train
            .iter()
            .enumerate()
            .filter(|(_, count)| **count >= least)
        {
            self.queues[language].push(count, number, order);
        }
    }

    /// Do one merge.
    pub fn step(&mut self) -> Step {
        if self.merges >= self.config.max_merges || self.tokens.len() >= self.config.max_tokens {
            return Step::Complete;
        }
        if self.is_global() {
            match self.best_global() {
                Some((count, pair)) => return Step::Merged(self.apply(pair, None, count)),
                None => return Step::Exhausted,
            }
        }
        let scores = self.scores();
        while let Some(language) = self
            .selector
            .choose(&scores, |l| self.exhausted[l].is_none())
        {
            if let Some((count, pair)) = self.best(language) {
                self.selector.served(language);
                return Step::Merged(self.apply(pair, Some(language), count));
            }
            self.exhausted[language] = Some(self.merges);
            if self.config.stop_when_exhausted {
                break;
            }
        }
        Step::Exhausted
    }

    /// How needy each language is.
    fn scores(&self) -> Vec<f64> {
        (0..self.config.languages)
            .map(|l| match &self.config.ratio {
                // In the order of the reference, so that the floats are the same.
                Some(ratio) => {
                    -((self.initial[l] as f64 / self.totals[l] as f64) / (ratio[l] / ratio[0]))
                }
                None => self.totals[self.scored(l)] as f64,
            })
            .collect()
    }

    /// The column whose tokens are a language's score.
    fn scored(&self, language: usize) -> usize {
        if self.config.development && self.config.ratio.is_none() {
            self.config.languages + language
        } else {
            language
        }
    }

    fn best(&mut self, language: usize) -> Option<(u64, u32)> {
        let (pairs, tokens) = (&self.pairs, &self.tokens);
        let order = |a: u32, b: u32| tokens.compare(pairs.ids(a), pairs.ids(b));
        let found = self.queues[language].best(|pair| pairs.count(pair, language), order);
        found.filter(|best| best.0 >= self.config.min_frequency.max(1))
    }

    fn best_global(&mut self) -> Option<(u64, u32)> {
        let (pairs, tokens, languages) = (&self.pairs, &self.tokens, self.config.languages);
        let order = |a: u32, b: u32| tokens.compare(pairs.ids(a), pairs.ids(b));
        let sum = |pair| {
            pairs
                .columns(pair)
                .filter(|c| c.0 < languages)
                .map(|c| c.1)
                .sum()
        };
        self.global
            .best(sum, order)
            .filter(|best| best.0 >= self.config.min_frequency.max(1))
    }

    fn apply(&mut self, number: u32, language: Option<usize>, count: u64) -> Merge {
        let (left, right) = self.pairs.ids(number);
        let tokens_before = match language {
            Some(language) => self.totals[self.scored(language)],
            None => self.totals[..self.config.languages].iter().sum(),
        };
        let token = self.tokens.join(left, right);
        self.merges += 1;
        self.merge((left, right), token, number);
        self.settle((left, right), token);
        if self.merges == self.config.global_merges {
            self.global = Queue::default();
        }
        Merge {
            left,
            right,
            token,
            language: language.map(|l| l as u32),
            count,
            tokens_before,
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
            let left_row = around.left.map(|(id, place)| {
                let slot = left.slot(id, columns);
                left.places[slot].push(place);
                slot * columns
            });
            let right_row = around.right.map(|id| {
                let slot = right.slot(id, columns);
                right.places[slot].push(at);
                slot * columns
            });
            self.cells.counts(around.header, |column, count| {
                totals[column] -= count;
                if let Some(row) = left_row {
                    left.rows[row + column] += count;
                }
                if let Some(row) = right_row {
                    right.rows[row + column] += count;
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
