//! The joint vocabulary of a training run: distinct pieces, each with its count in every column that has it.
//!
//! Memory is bounded by distinct pieces, not by text.

use crate::bpe::table::Table;

/// Distinct pieces over all columns; each with the columns that have it.
#[derive(Default)]
pub struct Words {
    pub columns: usize,
    bytes: Vec<u8>,
    ends: Vec<usize>,
    count_ends: Vec<usize>,
    counts: Vec<(u16, u64)>,
}

impl Words {
    pub fn join(tables: Vec<Table>) -> Self {
        let columns = tables.len();
        let mut joint = Table::default();
        let mut found: Vec<(u32, u16, u64)> =
            Vec::with_capacity(tables.iter().map(Table::len).sum());
        for (column, table) in tables.into_iter().enumerate() {
            for number in 0..table.len() {
                let word = joint.add(table.piece(number), 0);
                found.push((word as u32, column as u16, table.counts[number]));
            }
        }
        let mut count_ends = vec![0usize; joint.len()];
        found
            .iter()
            .for_each(|&(word, ..)| count_ends[word as usize] += 1);
        let mut total = 0;
        for end in &mut count_ends {
            let start = total;
            total += *end;
            *end = start;
        }
        let mut counts = vec![(0u16, 0u64); found.len()];
        for (word, column, count) in found {
            counts[count_ends[word as usize]] = (column, count);
            count_ends[word as usize] += 1;
        }
        Self {
            columns,
            bytes: joint.bytes,
            ends: joint.ends,
            count_ends,
            counts,
        }
    }

    pub fn len(&self) -> usize {
        self.ends.len()
    }

    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Each word with its (column, count)s, columns ascending.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &[(u16, u64)])> {
        let (mut start, mut first) = (0, 0);
        self.ends
            .iter()
            .zip(&self.count_ends)
            .map(move |(&end, &last)| {
                let item = (&self.bytes[start..end], &self.counts[first..last]);
                (start, first) = (end, last);
                item
            })
    }

    /// Drop the words that occur less than `least` times in the first `columns` columns together, from those columns.
    pub fn drop_rare(&mut self, columns: usize, least: u64) {
        let mut first = 0;
        for last in self.count_ends.iter().copied() {
            let counts = &mut self.counts[first..last];
            let total: u64 = counts
                .iter()
                .filter(|c| (c.0 as usize) < columns)
                .map(|c| c.1)
                .sum();
            if total < least {
                counts
                    .iter_mut()
                    .filter(|c| (c.0 as usize) < columns)
                    .for_each(|c| c.1 = 0);
            }
            first = last;
        }
    }
}
