//! The words of a training run, cut into tokens, in one array of cells: a cell a byte.
//!
//! A token of id t at bytes [p, p + len) has t in its first and in its last cell; the cells between are void. So the
//! right neighbour begins at p + len, and the left one ends at p - 1: both are found in one read, and merging writes
//! four cells. Before each word stands a header cell that tells the word's counts. A first cell also keeps its
//! distance from the header, so that an occurrence leads to its counts in one step.
//!
//! Why an old occurrence can be recognised: a token only ever grows, so once p begins a token of id t with len > 1 it
//! can never be the end of another one, and every cell that falls inside a token becomes void. Hence "cell p holds id
//! a" is true only when a token a begins at p.

use crate::bpe::words::Words;

const HEADER: u32 = 1 << 31;
const INLINE: u32 = 1 << 30;
const VOID: u32 = u32::MAX;
const ID_BITS: u32 = 18;
const ID: u32 = (1 << ID_BITS) - 1;
const FAR: u32 = (1 << (31 - ID_BITS)) - 1;
const INLINE_COUNT: u64 = 1 << 22;
const INLINE_COLUMNS: u16 = 255;

/// Most tokens that a cell can tell apart.
pub const MAX_TOKENS: usize = 1 << ID_BITS;

/// Cells and counts of all words of more than one byte.
#[derive(Clone)]
pub struct Cells {
    pub(super) cells: Vec<u32>,
    /// Counts that do not fit into a header: ends and (column, count)s
    pub(super) ends: Vec<usize>,
    pub(super) counts: Vec<(u16, u64)>,
    /// Headers of the words that are longer than a distance can say
    pub(super) long: Vec<u32>,
}

/// What surrounds one applied merge.
pub struct Around {
    /// Left neighbour and its first cell
    pub left: Option<(u32, u32)>,
    pub right: Option<u32>,
    pub header: u32,
}

impl Cells {
    pub fn new(words: &Words) -> Result<Self, String> {
        let size: usize = words
            .iter()
            .filter(|(word, _)| word.len() > 1)
            .map(|(word, _)| word.len() + 1)
            .sum();
        if size + 1 >= VOID as usize {
            return Err(format!(
                "the distinct pieces of the text have {size} bytes; at most 4 GiB can be trained on"
            ));
        }
        let mut all = Self {
            cells: Vec::with_capacity(size + 1),
            ends: Vec::new(),
            counts: Vec::new(),
            long: Vec::new(),
        };
        for (word, counts) in words.iter().filter(|(word, _)| word.len() > 1) {
            all.push(word, counts);
        }
        all.cells.push(HEADER);
        Ok(all)
    }

    fn push(&mut self, word: &[u8], counts: &[(u16, u64)]) {
        let header = match counts {
            &[(column, count)] if column < INLINE_COLUMNS && count < INLINE_COUNT => {
                HEADER | INLINE | (column as u32) << 22 | count as u32
            }
            _ => {
                self.counts.extend(counts.iter().filter(|c| c.1 > 0));
                self.ends.push(self.counts.len());
                HEADER | (self.ends.len() - 1) as u32
            }
        };
        if word.len() as u32 >= FAR {
            self.long.push(self.cells.len() as u32);
        }
        self.cells.push(header);
        let tokens = word
            .iter()
            .enumerate()
            .map(|(i, &byte)| (i as u32 + 1).min(FAR) << ID_BITS | byte as u32);
        self.cells.extend(tokens);
    }

    pub fn len(&self) -> usize {
        self.cells.len()
    }

    pub fn is_empty(&self) -> bool {
        self.cells.is_empty()
    }

    /// Hand each (column, count) of the word of a header to `each`.
    #[inline]
    pub fn counts(&self, header: u32, mut each: impl FnMut(usize, u64)) {
        let cell = self.cells[header as usize];
        if cell & INLINE != 0 {
            return each(
                (cell >> 22 & 0xff) as usize,
                (cell & (INLINE_COUNT as u32 - 1)) as u64,
            );
        }
        let word = (cell & !HEADER) as usize;
        let first = if word == 0 { 0 } else { self.ends[word - 1] };
        for &(column, count) in &self.counts[first..self.ends[word]] {
            each(column as usize, count);
        }
    }

    /// The header of the word of the token that begins at `at`.
    #[inline]
    pub fn header(&self, at: u32) -> u32 {
        match self.cells[at as usize] >> ID_BITS & FAR {
            FAR => self.long[self.long.partition_point(|&header| header < at) - 1],
            distance => at - distance,
        }
    }

    /// Merge the pair of ids into `id` where its left token begins at `at`; None if the pair is there no more.
    #[inline]
    pub fn merge(&mut self, at: u32, pair: (u32, u32), id: u32, lengths: &[u32]) -> Option<Around> {
        let first = self.cells[at as usize];
        if first & (HEADER | ID) != pair.0 {
            return None;
        }
        let middle = at + lengths[pair.0 as usize];
        if self.cells[middle as usize] & (HEADER | ID) != pair.1 {
            return None;
        }
        let end = middle + lengths[pair.1 as usize];
        let before = self.cells[at as usize - 1];
        let after = self.cells[end as usize];
        let around = Around {
            left: (before & HEADER == 0)
                .then(|| (before & ID, at - lengths[(before & ID) as usize])),
            right: (after & HEADER == 0).then_some(after & ID),
            header: self.header(at),
        };
        self.cells[middle as usize - 1] = VOID;
        self.cells[middle as usize] = VOID;
        self.cells[at as usize] = first & !ID | id;
        self.cells[end as usize - 1] = id;
        Some(around)
    }

    /// Whether the cells hold whole tokens of these lengths and headers that have counts; for cells read from a file.
    pub fn check(&self, lengths: &[u32]) -> Result<(), String> {
        let broken = || "the cells of the state are damaged".to_string();
        let mut at = 0;
        let mut begun = false;
        while at < self.cells.len() {
            let cell = self.cells[at];
            if cell & HEADER != 0 {
                let is_end = at + 1 == self.cells.len();
                let number = (cell & !HEADER) as usize;
                if cell & INLINE == 0 && number >= self.ends.len() && !is_end {
                    return Err(broken());
                }
                begun = true;
                at += 1;
                continue;
            }
            let length = lengths.get((cell & ID) as usize).ok_or_else(broken)?;
            at += *length as usize;
            if !begun
                || self
                    .cells
                    .get(at - 1)
                    .is_none_or(|last| last & ID != cell & ID)
            {
                return Err(broken());
            }
        }
        let ascending = self.ends.is_sorted() && self.long.is_sorted();
        let ends = self.ends.last().is_none_or(|&end| end <= self.counts.len());
        let last = self.cells.last().is_some_and(|cell| cell & HEADER != 0);
        (ascending && ends && last).then_some(()).ok_or_else(broken)
    }

    /// Hand every pair of neighbours to `each`: first cell, ids, header.
    pub fn pairs(&self, lengths: &[u32], mut each: impl FnMut(u32, (u32, u32), u32)) {
        let (mut at, mut header) = (0usize, 0u32);
        while at < self.cells.len() {
            let cell = self.cells[at];
            if cell & HEADER != 0 {
                header = at as u32;
                at += 1;
                continue;
            }
            let next = at + lengths[(cell & ID) as usize] as usize;
            let other = self.cells[next];
            if other & HEADER == 0 {
                each(at as u32, (cell & ID, other & ID), header);
            }
            at = next;
        }
    }
}
