//! Texts of documents, one after another in one buffer, with the row of each in its source.
//!
//! Readers put runs of plain rows in and stop at the first row that takes a careful look (odd JSON, bytes that are not
//! UTF-8, nothing at all), so that the rules for odd rows are written down once, by the caller. A text is copied once,
//! from the bytes that were read to here.

use memchr::memchr;
use simdutf8::basic::from_utf8;

use crate::jsonl::plain;

/// Texts and their rows.
#[derive(Debug, Default)]
pub struct Texts {
    text: String,
    ends: Vec<usize>,
    rows: Vec<u64>,
}

/// How far a reader has come: plain rows taken, and where the next row begins.
#[derive(Debug, PartialEq, Eq)]
pub struct Run {
    pub rows: usize,
    pub at: usize,
}

impl Texts {
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Bytes of all texts.
    pub fn bytes(&self) -> usize {
        self.text.len()
    }

    /// Bytes of texts [first, last).
    pub fn bytes_of(&self, first: usize, last: usize) -> usize {
        if first < last {
            self.ends[last - 1] - self.start(first)
        } else {
            0
        }
    }

    pub fn rows(&self) -> &[u64] {
        &self.rows
    }

    /// Where a text begins.
    fn start(&self, number: usize) -> usize {
        if number == 0 {
            0
        } else {
            self.ends[number - 1]
        }
    }

    pub fn get(&self, number: usize) -> &str {
        &self.text[self.start(number)..self.ends[number]]
    }

    pub fn iter(&self) -> impl Iterator<Item = &str> {
        (0..self.len()).map(|number| self.get(number))
    }

    pub fn push(&mut self, row: u64, text: &str) {
        self.text.push_str(text);
        self.close(row);
    }

    /// Ends the text whose bytes stand at the end of the buffer.
    fn close(&mut self, row: u64) {
        self.ends.push(self.text.len());
        self.rows.push(row);
    }

    pub fn extend(&mut self, other: &Self) {
        let base = self.text.len();
        self.text.push_str(&other.text);
        self.ends.extend(other.ends.iter().map(|end| base + end));
        self.rows.extend(&other.rows);
    }

    /// The texts that `keep` names.
    pub fn select(&self, keep: &[bool]) -> Self {
        let mut found = Self::default();
        for (number, _) in keep.iter().enumerate().filter(|&(_, &keep)| keep) {
            found.push(self.rows[number], self.get(number));
        }
        found
    }

    /// Takes plain JSON lines of `block` from `at` on, the next of them row `row`; `others` gets their other fields, raw.
    pub fn take_jsonl<'a>(
        &mut self,
        block: &'a [u8],
        at: usize,
        row: u64,
        field: &str,
        names: &[String],
        others: &mut Vec<Vec<&'a str>>,
    ) -> Run {
        self.text.reserve(block.len() - at);
        self.take_lines(block, at, row, |texts, line| {
            let line = from_utf8(line).ok()?;
            let kept = texts.text.len();
            let found = plain(line, field, names, &mut texts.text);
            if found.is_none() {
                texts.text.truncate(kept);
            }
            let found = found?;
            if !names.is_empty() {
                others.push(found);
            }
            Some(())
        })
    }

    /// Takes lines of plain text, without the CR before their LF; stops at an empty one or one that is not UTF-8.
    pub fn take_text_lines(&mut self, block: &[u8], at: usize, row: u64) -> Run {
        self.take_lines(block, at, row, |texts, line| {
            texts.take(line.strip_suffix(b"\r").unwrap_or(line))
        })
    }

    fn take(&mut self, raw: &[u8]) -> Option<()> {
        let text = from_utf8(raw).ok().filter(|text| !text.is_empty())?;
        self.text.push_str(text);
        Some(())
    }

    /// Goes from line to line; `take` puts the text of one at the end of the buffer, or nothing.
    fn take_lines<'a>(
        &mut self,
        block: &'a [u8],
        at: usize,
        row: u64,
        mut take: impl FnMut(&mut Self, &'a [u8]) -> Option<()>,
    ) -> Run {
        let mut run = Run { rows: 0, at };
        while run.at < block.len() {
            let rest = &block[run.at..];
            let length = memchr(b'\n', rest);
            let line = &rest[..length.unwrap_or(rest.len())];
            if take(self, line).is_none() {
                break;
            }
            self.close(row + run.rows as u64);
            run.rows += 1;
            run.at += line.len() + usize::from(length.is_some());
        }
        run
    }

    /// Takes values `at..` of a column, whose value i is `data[offsets[i]..offsets[i + 1]]`, the first of all in row
    /// `row`; stops at one that is null, empty or not UTF-8, or whose offsets point nowhere.
    pub fn take_column(
        &mut self,
        data: &[u8],
        offsets: &[i64],
        valid: Option<&[bool]>,
        at: usize,
        row: u64,
    ) -> Run {
        let mut run = Run { rows: 0, at };
        while run.at + 1 < offsets.len() {
            let bounds = offsets[run.at] as usize..offsets[run.at + 1] as usize;
            let is_there = valid.is_none_or(|valid| valid[run.at]);
            let raw = data.get(bounds).filter(|_| is_there);
            if raw.and_then(|raw| self.take(raw)).is_none() {
                break;
            }
            self.close(row + run.at as u64);
            run.rows += 1;
            run.at += 1;
        }
        run
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(all: &Texts) -> Vec<&str> {
        all.iter().collect()
    }

    #[test]
    fn readers_stop_at_odd_rows_and_go_on_behind_them() {
        let mut found = Texts::default();
        let block = b"one\r\ntwo\n\nthree\n\xff\nlast";
        let first = found.take_text_lines(block, 0, 1);
        assert_eq!(first, Run { rows: 2, at: 9 });
        assert_eq!(found.take_text_lines(block, 10, 4), Run { rows: 1, at: 16 });
        assert_eq!(found.take_text_lines(block, 18, 6), Run { rows: 1, at: 22 });
        assert_eq!(texts(&found), ["one", "two", "three", "last"]);
        assert_eq!(found.rows(), [1, 2, 4, 6]);
        assert_eq!(
            texts(&found.select(&[false, true, false, true])),
            ["two", "last"]
        );
    }

    #[test]
    fn json_lines_leave_nothing_of_an_odd_one() {
        let mut found = Texts::default();
        let block = b"{\"text\": \"a\\n\"}\n{\"text\": \"b\", \"text\": \"c\"}\n{\"text\": \"d\"}";
        let mut others = Vec::new();
        let run = found.take_jsonl(block, 0, 1, "text", &[], &mut others);
        assert_eq!(run, Run { rows: 1, at: 16 });
        let next = 16 + memchr(b'\n', &block[16..]).unwrap() + 1;
        found.take_jsonl(block, next, 3, "text", &[], &mut others);
        assert_eq!(texts(&found), ["a\n", "d"]);
    }

    #[test]
    fn columns_stop_at_nulls_and_at_offsets_that_point_nowhere() {
        let mut found = Texts::default();
        let run = found.take_column(b"abcd", &[0, 1, 3, 4], Some(&[true, false, true]), 0, 1);
        assert_eq!(run, Run { rows: 1, at: 1 });
        found.take_column(b"abcd", &[0, 1, 3, 4], None, 2, 1);
        assert_eq!(texts(&found), ["a", "d"]);
        assert_eq!(found.rows(), [1, 3]);
        for wrong in [[0, 9], [-1, 2], [3, 1]] {
            assert_eq!(found.take_column(b"abcd", &wrong, None, 0, 1).rows, 0);
        }
    }
}
