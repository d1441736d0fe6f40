//! The pairs that may still be merged: where they occur and how often in each column.
//!
//! A pair of tokens is made by one merge only, the one that makes the younger of the two, and from then on its counts
//! only fall. So its occurrences are written once, in ascending order, and its columns are known when it is made.
//! Pairs that can never reach the least count are not kept at all.

use rustc_hash::FxHashMap;

const COUNT_BITS: u32 = 48;
const COUNT: u64 = (1 << COUNT_BITS) - 1;

/// One pair; the ranges point into the arenas of `Pairs`.
#[derive(Clone, Copy)]
struct Pair {
    ids: (u32, u32),
    places: (usize, u32),
    counts: (u32, u16),
}

/// All pairs that were made and kept; dead ones have no counts.
#[derive(Default)]
pub struct Pairs {
    pairs: Vec<Pair>,
    numbers: FxHashMap<u64, u32>,
    places: Vec<u32>,
    counts: Vec<u64>,
    /// Places of dead pairs, to know when to pack
    wasted: usize,
}

/// Counts of one pair, columns ascending.
pub struct PairCounts<'a>(&'a [u64]);

impl PairCounts<'_> {
    /// (column, count) of each column.
    #[inline]
    pub fn iter(&self) -> impl Iterator<Item = (usize, u64)> {
        self.0
            .iter()
            .map(|packed| ((packed >> COUNT_BITS) as usize, packed & COUNT))
    }

    /// The count in one column.
    #[inline]
    pub fn get(&self, column: usize) -> u64 {
        let at = self
            .0
            .partition_point(|packed| ((packed >> COUNT_BITS) as usize) < column);
        let found = self
            .0
            .get(at)
            .filter(|packed| (**packed >> COUNT_BITS) as usize == column);
        found.map_or(0, |packed| packed & COUNT)
    }
}

fn key(ids: (u32, u32)) -> u64 {
    (ids.0 as u64) << 32 | ids.1 as u64
}

impl Pairs {
    /// Keep a pair: `row` has its count in each column.
    pub fn push(&mut self, ids: (u32, u32), places: &[u32], row: &[u64]) -> u32 {
        let number = self.pairs.len() as u32;
        let first = self.counts.len();
        self.counts.extend(
            row.iter()
                .enumerate()
                .filter(|(_, c)| **c > 0)
                .map(|(col, c)| (col as u64) << COUNT_BITS | *c & COUNT),
        );
        let counts = (first as u32, (self.counts.len() - first) as u16);
        self.pairs.push(Pair {
            ids,
            places: (self.places.len(), places.len() as u32),
            counts,
        });
        self.places.extend_from_slice(places);
        self.numbers.insert(key(ids), number);
        number
    }

    pub fn ids(&self, number: u32) -> (u32, u32) {
        self.pairs[number as usize].ids
    }

    pub fn find(&self, ids: (u32, u32)) -> Option<u32> {
        self.numbers.get(&key(ids)).copied()
    }

    fn range(&self, number: u32) -> std::ops::Range<usize> {
        let (first, len) = self.pairs[number as usize].counts;
        first as usize..first as usize + len as usize
    }

    /// The counts of a pair in the columns that had it when it was made.
    #[inline]
    pub fn counts(&self, number: u32) -> PairCounts<'_> {
        PairCounts(&self.counts[self.range(number)])
    }

    /// Take `row` off the counts of a pair.
    #[inline]
    pub fn subtract(&mut self, ids: (u32, u32), row: &[u64]) {
        let Some(number) = self.find(ids) else { return };
        let range = self.range(number);
        let mut left = 0;
        for packed in &mut self.counts[range] {
            *packed -= row[(*packed >> COUNT_BITS) as usize];
            left |= *packed & COUNT;
        }
        if left == 0 {
            self.forget(number);
        }
    }

    fn forget(&mut self, number: u32) {
        let pair = &mut self.pairs[number as usize];
        self.numbers.remove(&key(pair.ids));
        self.wasted += pair.places.1 as usize;
        pair.places.1 = 0;
        pair.counts.1 = 0;
    }

    /// Take a pair out, and return its places.
    pub fn take(&mut self, number: u32) -> Vec<u32> {
        let (first, len) = self.pairs[number as usize].places;
        let places = self.places[first..first + len as usize].to_vec();
        self.forget(number);
        if self.wasted > self.places.len() / 2 && self.wasted > 1 << 22 {
            self.pack();
        }
        places
    }

    /// Drop the places of dead pairs.
    fn pack(&mut self) {
        let mut end = 0;
        for pair in &mut self.pairs {
            let (first, len) = (pair.places.0, pair.places.1 as usize);
            self.places.copy_within(first..first + len, end);
            pair.places.0 = end;
            end += len;
        }
        self.places.truncate(end);
        self.places.shrink_to_fit();
        self.wasted = 0;
    }
}
