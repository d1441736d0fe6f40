//! One merge, everywhere: the places of the pair, the pairs around them, and the counts of both.
//!
//! Only the pairs around merged places change. With `cross_from`, pairs that cross a blank inside a piece are passed
//! over until that many merges are done, or nothing else is left; then they are counted like all others (merges across
//! words, see `config`).

use crate::bpe::evidence::Evidence;
use crate::bpe::queue::Queue;
use crate::bpe::run::Merge;
use crate::bpe::trainer::Trainer;

/// Most occurrences of pairs that are sorted at once.
const SORTED: usize = 1 << 24;

impl<E: Evidence> Trainer<E> {
    /// Whether a pair's right token begins a word after another one.
    fn crosses(&self, ids: (u32, u32)) -> bool {
        self.tokens.first(ids.1) == b' ' && !self.tokens.last(ids.0).is_ascii_whitespace()
    }

    /// Whether a pair may be merged now.
    pub(super) fn may_merge(&self, ids: (u32, u32)) -> bool {
        self.crossing || !self.crosses(ids)
    }

    /// From now on words may be joined; a language that had no pair left may have some now.
    pub(super) fn begin_crossing(&mut self) {
        self.crossing = true;
        self.exhausted.fill(None);
        self.count_pairs(|trainer, ids| trainer.crosses(ids));
    }

    /// The pairs of bytes, at the start.
    pub(super) fn count_bytes(&mut self) {
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
        if !self.may_merge(ids) {
            return;
        }
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

    /// Count the pairs that are wanted as they stand in the words now.
    pub(super) fn count_pairs(&mut self, wanted: impl Fn(&Self, (u32, u32)) -> bool) {
        let mut all = 0;
        self.cells.pairs(&self.tokens.lengths, |_, _, _| all += 1);
        let parts = all / SORTED + 1;
        for part in 0..parts {
            let mut found: Vec<(u64, u32)> = Vec::new();
            self.cells.pairs(&self.tokens.lengths, |at, ids, _| {
                let key = (ids.0 as u64) << 32 | ids.1 as u64;
                let hash = key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
                if hash as usize % parts == part && wanted(self, ids) {
                    found.push((key, at));
                }
            });
            found.sort_unstable();
            for same in found.chunk_by(|one, other| one.0 == other.0) {
                self.keep_found(same);
            }
        }
    }

    /// Keep the pair of these occurrences.
    fn keep_found(&mut self, same: &[(u64, u32)]) {
        let mut row = vec![0; self.columns];
        let places: Vec<u32> = same.iter().map(|found| found.1).collect();
        for &at in &places {
            let header = self.cells.header(at);
            self.cells
                .counts(header, |column, count| row[column] += count);
        }
        self.keep(((same[0].0 >> 32) as u32, same[0].0 as u32), &row, &places);
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

    pub(super) fn apply(&mut self, number: u32, language: Option<usize>, count: u64) -> Merge {
        let (left, right) = self.pairs.ids(number);
        let before = self.cost(language);
        let token = self.tokens.join(left, right);
        self.merges += 1;
        self.made.push((left, right));
        self.merge((left, right), token, number);
        self.settle((left, right), token);
        if self.merges == self.config.global_merges {
            self.global = Queue::default();
        }
        if !self.crossing && self.merges == self.config.cross_from {
            self.begin_crossing();
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
