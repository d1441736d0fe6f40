//! Counts the pieces of texts, a column a language and use.
//!
//! A column is one language's training or development text. Counts are sums, so neither the order of the texts nor the
//! number of threads can change the result. A stream of bytes that is one document is counted as it comes.

use crate::bpe::batch::split_evenly;
use crate::bpe::blocks::Ends;
use crate::bpe::pattern::Pattern;
use crate::bpe::table::Table;
use crate::bpe::words::Words;

/// Most columns that one count of words may have.
pub const MAX_COLUMNS: usize = 1 << 12;
/// Bytes of text below which counting on several threads is not worth it.
const PARALLEL_BYTES: usize = 1 << 20;

/// Counts the pieces of texts, a table a column.
pub struct Counter {
    pattern: Pattern,
    columns: Vec<Table>,
    /// documents, bytes of each column
    seen: Vec<(u64, u64)>,
    /// Most distinct pieces of a column, and how many pieces, of how many occurrences, were dropped to hold it
    most_pieces: usize,
    dropped: Vec<(u64, u64)>,
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
            most_pieces: usize::MAX,
            dropped: vec![(0, 0); columns],
            rest: vec![(Vec::new(), 0); columns],
        })
    }

    /// Hold at most this number of distinct pieces of a column: whenever there are more, the rarest are dropped until
    /// half are left. When that happens depends on the calls of `add`, and not on threads.
    pub fn limit(&mut self, most_pieces: usize) {
        self.most_pieces = most_pieces.max(2);
    }

    /// (pieces, occurrences) that were dropped from a column.
    pub fn dropped(&self, column: usize) -> (u64, u64) {
        self.dropped[column]
    }

    fn hold_limit(&mut self, column: usize) {
        let table = &mut self.columns[column];
        let dropped = &mut self.dropped[column];
        let mut rare = 1;
        if table.len() <= self.most_pieces {
            return;
        }
        while table.len() > self.most_pieces / 2 {
            let (pieces, occurrences) = table.drop_rare(rare);
            *dropped = (dropped.0 + pieces, dropped.1 + occurrences);
            rare *= 2;
        }
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
            count(&self.pattern, texts, &mut self.columns[column])?;
            self.hold_limit(column);
            return Ok(());
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
        self.hold_limit(column);
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
    let mut ends = Ends::default();
    for text in texts {
        if !pattern.is_scanned() {
            pattern.for_each(text, |piece| {
                table.add(piece, 1);
            })?;
            continue;
        }
        let (mut at, mut start) = (0, 0);
        while at < text.len() {
            ends.clear();
            at = pattern.fill(text, at, &mut ends);
            for &end in ends.as_slice() {
                table.add(&text.as_bytes()[start..end], 1);
                start = end;
            }
        }
    }
    Ok(())
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
    fn a_limit_drops_the_rarest() {
        let mut counter = Counter::new(Pattern::Gpt2, 1).unwrap();
        counter.limit(8);
        counter.add(0, &["a a a a b b c c c"], 1).unwrap();
        counter.add(0, &["d1e2f3g4h5i6"], 1).unwrap();
        assert!(counter.seen(0).2 <= 8);
        let mut kept = Vec::new();
        counter.each_piece(0, |piece, count| kept.push((piece.to_owned(), count)));
        assert!(kept.contains(&(" a".into(), 3)) && kept.contains(&(" c".into(), 3)));
        assert_eq!(counter.dropped(0).0, 13);
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
