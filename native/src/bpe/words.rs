//! Distinct pieces with their counts: what training sees of a text.
//!
//! A column is one language's training or development text. Memory is bounded by distinct pieces, not by text. Counts
//! are sums, so neither the order of the texts nor the number of threads can change the result.

use std::hash::Hasher;

use rustc_hash::FxHasher;

use crate::bpe::encoder::split_evenly;
use crate::bpe::pattern::Pattern;

/// Most columns that one count of words may have.
pub const MAX_COLUMNS: usize = 1 << 12;
/// Bytes of text below which counting on several threads is not worth it.
const PARALLEL_BYTES: usize = 1 << 20;

/// An open-addressing table from pieces to counts.
#[derive(Default)]
pub struct Table {
    bytes: Vec<u8>,
    ends: Vec<usize>,
    counts: Vec<u64>,
    /// (high half of the hash, number of the piece + 1), 0 where empty
    slots: Vec<(u32, u32)>,
}

fn hash(piece: &[u8]) -> u64 {
    let mut hasher = FxHasher::default();
    hasher.write(piece);
    hasher.finish()
}

impl Table {
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    fn piece(&self, number: usize) -> &[u8] {
        let start = if number == 0 {
            0
        } else {
            self.ends[number - 1]
        };
        &self.bytes[start..self.ends[number]]
    }

    /// Add `count` to a piece and return its number.
    #[inline]
    fn add(&mut self, piece: &[u8], count: u64) -> usize {
        if self.ends.len() * 2 >= self.slots.len() {
            self.grow();
        }
        let hash = hash(piece);
        let (tag, mask) = ((hash >> 32) as u32, self.slots.len() - 1);
        let mut at = hash as usize & mask;
        loop {
            let (other, number) = self.slots[at];
            if number == 0 {
                self.slots[at] = (tag, self.ends.len() as u32 + 1);
                self.bytes.extend_from_slice(piece);
                self.ends.push(self.bytes.len());
                self.counts.push(count);
                return self.ends.len() - 1;
            }
            if other == tag && self.piece(number as usize - 1) == piece {
                self.counts[number as usize - 1] += count;
                return number as usize - 1;
            }
            at = (at + 1) & mask;
        }
    }

    fn grow(&mut self) {
        let size = (self.slots.len() * 2).max(1024);
        let mut slots = vec![(0u32, 0u32); size];
        for number in 0..self.ends.len() {
            let hash = hash(self.piece(number));
            let mut at = hash as usize & (size - 1);
            while slots[at].1 != 0 {
                at = (at + 1) & (size - 1);
            }
            slots[at] = ((hash >> 32) as u32, number as u32 + 1);
        }
        self.slots = slots;
    }

    fn add_all(&mut self, other: &Table) {
        for number in 0..other.len() {
            self.add(other.piece(number), other.counts[number]);
        }
    }
}

/// Counts the pieces of texts, a table a column.
pub struct Counter {
    pattern: Pattern,
    columns: Vec<Table>,
    /// documents, bytes of each column
    seen: Vec<(u64, u64)>,
    /// What a column's unfinished stream has left, and how many of its bytes are known to be UTF-8
    rest: Vec<(Vec<u8>, usize)>,
}

impl Counter {
    pub fn new(pattern: Pattern, columns: usize) -> Result<Self, String> {
        if columns == 0 || columns > MAX_COLUMNS {
            return Err(format!(
                "between 1 and {MAX_COLUMNS} columns of text can be counted, not {columns}"
            ));
        }
        Ok(Self {
            pattern,
            columns: (0..columns).map(|_| Table::default()).collect(),
            seen: vec![(0, 0); columns],
            rest: vec![(Vec::new(), 0); columns],
        })
    }

    /// Count the pieces of documents that belong to a column.
    pub fn add(&mut self, column: usize, texts: &[&str], threads: usize) -> Result<(), String> {
        let bytes: usize = texts.iter().map(|text| text.len()).sum();
        let seen = self
            .seen
            .get_mut(column)
            .ok_or_else(|| format!("there is no column {column}"))?;
        *seen = (seen.0 + texts.len() as u64, seen.1 + bytes as u64);
        if threads < 2 || bytes < PARALLEL_BYTES {
            return count(&self.pattern, texts, &mut self.columns[column]);
        }
        let pattern = &self.pattern;
        let one = |part: &[&str]| {
            let mut table = Table::default();
            count(pattern, part, &mut table).map(|()| table)
        };
        // Scoped threads and no pool: nothing is left that a fork could break.
        let parts: Vec<Result<Table, String>> = std::thread::scope(|scope| {
            let parts = split_evenly(texts, bytes / threads + 1);
            let running: Vec<_> = parts
                .into_iter()
                .map(|part| scope.spawn(move || one(part)))
                .collect();
            running
                .into_iter()
                .map(|t| {
                    t.join()
                        .unwrap_or_else(|_| Err("a counting thread died".into()))
                })
                .collect()
        });
        for part in parts {
            self.columns[column].add_all(&part?);
        }
        Ok(())
    }

    /// Count the next bytes of a stream that is one document; `last` ends it. The error is the number of bytes, from
    /// the start of what was not yet counted, after which the stream is no UTF-8.
    pub fn add_chunk(
        &mut self,
        column: usize,
        chunk: &[u8],
        last: bool,
        threads: usize,
    ) -> Result<Result<(), usize>, String> {
        let (mut bytes, known) = std::mem::take(
            self.rest
                .get_mut(column)
                .ok_or_else(|| format!("there is no column {column}"))?,
        );
        bytes.extend_from_slice(chunk);
        let valid = match std::str::from_utf8(&bytes[known..]) {
            Ok(_) => bytes.len(),
            Err(e) if e.error_len().is_none() && !last => known + e.valid_up_to(),
            Err(e) => return Ok(Err(known + e.valid_up_to())),
        };
        // The part below `known` was checked before; a second check of it is cheaper than a promise.
        let text = std::str::from_utf8(&bytes[..valid]).map_err(|e| e.to_string())?;
        let end = if last {
            text.len()
        } else {
            self.pattern.last_cut(text, text.len()).unwrap_or(0)
        };
        let parts = self.cut(&text[..end], threads);
        self.add(column, &parts, threads)?;
        self.seen[column].0 -= parts.len() as u64 - u64::from(last);
        self.rest[column] = if last {
            (Vec::new(), 0)
        } else {
            (bytes[end..].to_vec(), valid - end)
        };
        Ok(Ok(()))
    }

    /// A text in about as many parts as there are threads, cut where no piece is.
    fn cut<'a>(&self, text: &'a str, threads: usize) -> Vec<&'a str> {
        let (mut parts, mut rest) = (Vec::new(), text);
        let size = text.len() / threads.max(1) + 1;
        while rest.len() > size {
            let Some(end) = self.pattern.last_cut(rest, size) else {
                break;
            };
            let (part, tail) = rest.split_at(end);
            parts.push(part);
            rest = tail;
        }
        parts.push(rest);
        parts
    }

    /// (documents, bytes, distinct pieces) of a column.
    pub fn seen(&self, column: usize) -> (u64, u64, u64) {
        let (documents, bytes) = self.seen[column];
        (documents, bytes, self.columns[column].len() as u64)
    }

    /// Hand each distinct piece of a column, with its count, to `each`. (Pieces of texts are text.)
    pub fn each_piece(&self, column: usize, mut each: impl FnMut(&str, u64)) {
        let table = &self.columns[column];
        for number in 0..table.len() {
            if let Ok(piece) = std::str::from_utf8(table.piece(number)) {
                each(piece, table.counts[number]);
            }
        }
    }

    pub fn columns(&self) -> usize {
        self.columns.len()
    }

    /// The joint vocabulary of all columns; the counter is empty afterwards.
    pub fn take_words(&mut self) -> Words {
        let tables: Vec<Table> = self.columns.iter_mut().map(std::mem::take).collect();
        Words::join(tables)
    }
}

fn count(pattern: &Pattern, texts: &[&str], table: &mut Table) -> Result<(), String> {
    for text in texts {
        pattern.for_each(text, |piece| {
            table.add(piece, 1);
        })?;
    }
    Ok(())
}

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
    fn join(tables: Vec<Table>) -> Self {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_counts_as_its_text() {
        let text = "don't\n\n  stop 中文\nnow\nand 123\n".repeat(50);
        let count = |chunks: usize| {
            let mut counter = Counter::new(Pattern::Gpt2m, 1).unwrap();
            for chunk in text.as_bytes().chunks(chunks) {
                counter.add_chunk(0, chunk, false, 2).unwrap().unwrap();
            }
            counter.add_chunk(0, b"", true, 2).unwrap().unwrap();
            assert_eq!(counter.seen(0).0, 1);
            assert_eq!(counter.seen(0).1, text.len() as u64);
            let words = counter.take_words();
            let mut all: Vec<_> = words
                .iter()
                .map(|(w, c)| (w.to_vec(), c.to_vec()))
                .collect();
            all.sort();
            all
        };
        let whole = count(text.len());
        for chunk in [1, 7, 100] {
            assert_eq!(count(chunk), whole);
        }
        let mut counter = Counter::new(Pattern::Gpt2m, 1).unwrap();
        assert_eq!(counter.add_chunk(0, b"ab\xff", false, 1), Ok(Err(2)));
    }

    #[test]
    fn threads_and_order_do_not_matter() {
        let texts: Vec<String> = (0..5000)
            .map(|i| format!("word{} the cat {} sat\n", i % 97, i * i % 1013))
            .collect();
        let lines: Vec<&str> = texts
            .iter()
            .map(String::as_str)
            .cycle()
            .take(60_000)
            .collect();
        let sorted = |threads: usize, lines: &[&str]| {
            let mut counter = Counter::new(Pattern::Gpt2, 2).unwrap();
            counter.add(0, lines, threads).unwrap();
            counter.add(1, &lines[..10], threads).unwrap();
            let words = counter.take_words();
            let mut all: Vec<_> = words
                .iter()
                .map(|(w, c)| (w.to_vec(), c.to_vec()))
                .collect();
            all.sort();
            all
        };
        let one = sorted(1, &lines);
        assert_eq!(one, sorted(3, &lines));
        let total: u64 = one.iter().map(|(w, c)| w.len() as u64 * c[0].1).sum();
        assert_eq!(total, lines.iter().map(|l| l.len() as u64).sum::<u64>());
    }
}
