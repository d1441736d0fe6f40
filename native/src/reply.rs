//! Reads the plain kind of reply: the rows that were asked for, with nothing masked and nothing said besides.
//!
//! Nearly every reply is of that kind, and to have protobuf read it costs as much as to copy its ids. Whatever is not,
//! or is not whole, is left to the reader in Python, which knows every field and says in words what is wrong.

use std::ops::Range;

use crate::digest::{Row, row_digest};

/// What was asked for, and the names that the domains of its rows index.
pub struct Wanted<'a> {
    pub step: u64,
    pub first_slot: u64,
    pub rows: usize,
    pub row_bytes: usize,
    pub names: &'a [String],
}

/// `Batch` of `data.proto`, without its masks; arrays are little-endian.
#[derive(Default)]
pub struct Batch<'a> {
    pub step: u64,
    pub segment: u64,
    pub first_slot: u64,
    pub rows: u64,
    pub seq_len: u64,
    pub token_ids: &'a [u8],
    pub domains: Vec<u32>,
    pub edge_ends: Vec<u32>,
    pub edges: Vec<u32>,
    pub loss_weights: Vec<f32>,
    pub row_digests: &'a [u8],
    pub plan_hash: &'a [u8],
    pub real_ids: Vec<u32>,
    pub next_plan_hash: &'a [u8],
    pub names: Vec<&'a [u8]>,
    pub shared: bool,
}

impl<'a> Batch<'a> {
    /// Reads a `GetBatchResponse`; None unless it is plain.
    pub fn read(data: &'a [u8]) -> Option<Self> {
        let mut batch = None;
        for field in Fields(data) {
            match field? {
                (1, Value::Bytes(found)) if batch.is_none() => batch = Some(found),
                (3 | 4, Value::Number(_)) => (), // seal and confirmed
                _ => return None,
            }
        }
        Self::fields(batch?)
    }

    fn fields(data: &'a [u8]) -> Option<Self> {
        let mut batch = Self::default();
        for field in Fields(data) {
            match field? {
                (1, Value::Number(found)) => batch.step = found,
                (2, Value::Number(found)) => batch.segment = found,
                (3, Value::Number(found)) => batch.first_slot = found,
                (4, Value::Number(found)) => batch.rows = found,
                (5, Value::Number(found)) => batch.seq_len = found,
                (6, Value::Bytes(found)) => batch.token_ids = found,
                (7, Value::Bytes(found)) => batch.domains = words(found)?,
                (8, Value::Bytes(found)) => batch.edge_ends = words(found)?,
                (9, Value::Bytes(found)) => batch.edges = words(found)?,
                (10, Value::Bytes(found)) => {
                    batch.loss_weights = words(found)?.into_iter().map(f32::from_bits).collect();
                }
                (11, Value::Bytes(found)) => batch.row_digests = found,
                (12, Value::Bytes(found)) => batch.plan_hash = found,
                (13, Value::Bytes(found)) => batch.real_ids = words(found)?,
                (14, Value::Bytes(found)) => batch.names.push(found),
                (15, Value::Bytes(found)) => batch.next_plan_hash = found,
                (18, Value::Number(found)) => batch.shared = found != 0,
                _ => return None,
            }
        }
        if batch.loss_weights.is_empty() {
            batch.loss_weights = vec![1.0; batch.domains.len()];
        }
        (batch.segment <= u64::from(u32::MAX)).then_some(batch)
    }

    /// Whether these are the rows that are `wanted`, and every list has its length.
    pub fn answers(&self, wanted: &Wanted<'_>) -> bool {
        let rows = wanted.rows;
        let lengths = [
            self.domains.len(),
            self.edge_ends.len(),
            self.real_ids.len(),
            self.loss_weights.len(),
        ];
        (self.step, self.first_slot, self.rows) == (wanted.step, wanted.first_slot, rows as u64)
            && lengths.iter().all(|&length| length == rows)
            && self.row_digests.len() == 16 * rows
            && self.plan_hash.len() == 32
            && self.next_plan_hash.len() == 32
            && self.edge_ends.is_sorted()
            && self.edge_ends.last().map_or(0, |&end| end as usize) == self.edges.len()
            && self.names.len() <= wanted.names.len()
            && (self.names.iter().zip(wanted.names)).all(|(said, known)| *said == known.as_bytes())
            && self
                .domains
                .iter()
                .all(|&it| (it as usize) < wanted.names.len())
    }

    /// Copies the rows' ids, and says whether the copies have the digests that were sent; one pass over the ids.
    pub fn copy(&self, wanted: &Wanted<'_>, ids: &[u8], into: &mut [u8]) -> bool {
        let place = |i: usize| i * wanted.row_bytes..(i + 1) * wanted.row_bytes;
        (0..wanted.rows).all(|i| {
            let copy = &mut into[place(i)];
            copy.copy_from_slice(&ids[place(i)]);
            let row = Row {
                ids: copy,
                edges: &self.edges[self.edges_of(i)],
                domain: &wanted.names[self.domains[i] as usize],
                loss_weight: self.loss_weights[i],
                masks: &[],
            };
            self.row_digests[16 * i..16 * (i + 1)] == row_digest(&row)
        })
    }

    fn edges_of(&self, i: usize) -> Range<usize> {
        let begin = i.checked_sub(1).map_or(0, |before| self.edge_ends[before]);
        begin as usize..self.edge_ends[i] as usize
    }
}

enum Value<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

/// Numbers and values of the fields of a message; None, once, for what is not whole or of another kind.
struct Fields<'a>(&'a [u8]);

impl<'a> Iterator for Fields<'a> {
    type Item = Option<(u64, Value<'a>)>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let field = self.field();
        if field.is_none() {
            self.0 = &[];
        }
        Some(field)
    }
}

impl<'a> Fields<'a> {
    fn field(&mut self) -> Option<(u64, Value<'a>)> {
        let key = self.varint()?;
        let value = match key & 7 {
            0 => Value::Number(self.varint()?),
            2 => {
                let size = usize::try_from(self.varint()?).ok()?;
                let (value, rest) = self.0.split_at_checked(size)?;
                self.0 = rest;
                Value::Bytes(value)
            }
            _ => return None,
        };
        Some((key >> 3, value))
    }

    fn varint(&mut self) -> Option<u64> {
        let mut value = 0;
        for shift in (0..63).step_by(7) {
            let (&byte, rest) = self.0.split_first()?;
            self.0 = rest;
            value |= u64::from(byte & 0x7F) << shift;
            if byte < 0x80 {
                return Some(value);
            }
        }
        None
    }
}

fn words(data: &[u8]) -> Option<Vec<u32>> {
    let (words, rest) = data.as_chunks::<4>();
    rest.is_empty()
        .then(|| words.iter().map(|&word| u32::from_le_bytes(word)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_whole_is_none() {
        // seal 7, and an empty batch
        assert!(Batch::read(&[0x18, 7, 0x0A, 0]).is_some());
        // no batch; a cut number; a cut batch; a batch twice; an end; a fixed64; a varint that does not end
        for data in [
            &[0x18, 7][..],
            &[0x0A, 0, 0x18],
            &[0x0A, 1],
            &[0x0A, 0, 0x0A, 0],
            &[0x0A, 0, 0x12, 0],
            &[0x0A, 0, 0x99, 6, 0, 0, 0, 0, 0, 0, 0, 0],
            &[
                0x0A, 0, 0x18, 255, 255, 255, 255, 255, 255, 255, 255, 255, 1,
            ],
        ] {
            assert!(Batch::read(data).is_none(), "{data:?}");
        }
    }

    #[test]
    fn masks_and_words_that_are_cut_are_none() {
        assert!(
            Batch::read(&[0x0A, 6, 0x3A, 4, 1, 0, 0, 0]).is_some_and(|batch| batch.domains == [1])
        );
        assert!(Batch::read(&[0x0A, 5, 0x3A, 3, 1, 0, 0]).is_none());
        assert!(Batch::read(&[0x0A, 8, 0x8A, 1, 4, 1, 0, 0, 0]).is_none());
    }
}
