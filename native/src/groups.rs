//! `best_fit` views over a token store: groups of record batches, each packed on its own from its document lengths.
//!
//! A group is as many batches in a row as hold at least so many windows' tokens; what is left at the end is the last
//! group. Groups need not be stored: their sizes are counted once, and a window is found by packing its group again.

use std::collections::HashMap;

use rayon::prelude::*;

use crate::best_fit::{Part, pack};
use crate::gather::Store;
use crate::reader::Reader;
use crate::store_error::StoreError;
use crate::stream::Stream;

/// Row, and first token and length of each of its parts.
type Row = (usize, Vec<(u64, u32)>);
type Result<T> = std::result::Result<T, StoreError>;

/// Groups of a view: the first batch of each (and the end), and its number of windows.
#[derive(Debug, Default)]
pub struct Groups {
    pub first_batches: Vec<u64>,
    pub windows: Vec<u32>,
}

/// One window asked for: window `number` of the group of batches [first, end) of a stream.
#[derive(Clone, Copy, Debug)]
pub struct Ask {
    pub stream: u32,
    pub first: u64,
    pub end: u64,
    pub number: u32,
}

/// Parts of the windows asked for: row r is `ends[r - 1]..ends[r]`; `starts` count from the begin of the stream.
#[derive(Debug, Default)]
pub struct Found {
    pub ends: Vec<u32>,
    pub starts: Vec<u64>,
    pub lengths: Vec<u32>,
}

impl Stream {
    fn batch_tokens(&self) -> Result<Vec<u64>> {
        let mut tokens = Vec::new();
        for shard in &self.shards {
            let index = shard.index()?;
            let firsts = index.batches.iter().map(|batch| batch.first_token);
            let ends = firsts.clone().skip(1).chain([index.tokens]);
            tokens.extend(firsts.zip(ends).map(|(first, end)| end - first));
        }
        Ok(tokens)
    }

    /// First batches of the groups of at least `least` tokens, and the end.
    fn group(&self, least: u64) -> Result<Vec<u64>> {
        let mut firsts = vec![0];
        let mut held = 0;
        let tokens = self.batch_tokens()?;
        for (number, tokens) in tokens.iter().enumerate() {
            held += tokens;
            if held >= least {
                firsts.push(number as u64 + 1);
                held = 0;
            }
        }
        if firsts[firsts.len() - 1] != tokens.len() as u64 {
            firsts.push(tokens.len() as u64);
        }
        Ok(firsts)
    }

    /// First token, and lengths of the documents, of batches [first, end).
    fn lengths<'a>(
        &'a self,
        first: u64,
        end: u64,
        reader: &mut Reader<'a>,
    ) -> Result<(u64, Vec<u64>)> {
        let mut lengths = Vec::new();
        let mut start = None;
        for number in first..end {
            let which = self
                .first_batches
                .partition_point(|&before| before <= number)
                - 1;
            let (Some(shard), local) = (self.shards.get(which), number - self.first_batches[which])
            else {
                return Err(StoreError::Range(format!(
                    "the stream has no batch {number}"
                )));
            };
            let batch = &shard.index()?.batches[local as usize];
            start.get_or_insert(self.firsts[which] + batch.first_token);
            reader.load_ends(shard, batch)?;
            lengths.extend(reader.ends.windows(2).map(|pair| pair[1] - pair[0]));
        }
        Ok((start.unwrap_or(0), lengths))
    }
}

impl Store {
    /// Groups of a stream at a `seq_len`, each of at least `group_windows` windows' tokens.
    pub fn groups(&self, stream: u32, seq_len: u32, group_windows: u64) -> Result<Groups> {
        let stream = self.stream(stream)?;
        let first_batches = stream.group(group_windows.saturating_mul(u64::from(seq_len)))?;
        let windows = first_batches
            .par_windows(2)
            .map_init(Reader::default, |reader, pair| {
                let (_, lengths) =
                    reader.settled(|reader| stream.lengths(pair[0], pair[1], reader))?;
                Ok(pack(&lengths, seq_len).windows() as u32)
            })
            .collect::<Result<_>>()?;
        Ok(Groups {
            first_batches,
            windows,
        })
    }

    /// The parts of windows; each group is packed once, however many of its windows are asked for.
    pub fn best_fit(&self, asks: &[Ask], seq_len: u32) -> Result<Found> {
        let mut rows_of: HashMap<(u32, u64, u64), Vec<usize>> = HashMap::new();
        for (row, ask) in asks.iter().enumerate() {
            rows_of
                .entry((ask.stream, ask.first, ask.end))
                .or_default()
                .push(row);
        }
        let packed: Vec<Vec<Row>> = rows_of
            .into_par_iter()
            .map_init(Reader::default, |reader, ((stream, first, end), rows)| {
                let stream = self.stream(stream)?;
                let (start, lengths) =
                    reader.settled(|reader| stream.lengths(first, end, reader))?;
                let packed = pack(&lengths, seq_len);
                let starts = document_starts(start, &lengths);
                rows.into_iter()
                    .map(|row| {
                        let number = asks[row].number as usize;
                        let window = packed.window(number).ok_or_else(|| {
                            StoreError::Range(format!("the group has no window {number}"))
                        })?;
                        Ok((
                            row,
                            window.iter().map(|part| place(part, &starts)).collect(),
                        ))
                    })
                    .collect()
            })
            .collect::<Result<_>>()?;
        let mut rows: Vec<Row> = packed.into_iter().flatten().collect();
        rows.sort_unstable_by_key(|(row, _)| *row);
        let mut found = Found::default();
        for (_, parts) in rows {
            found.starts.extend(parts.iter().map(|part| part.0));
            found.lengths.extend(parts.iter().map(|part| part.1));
            found.ends.push(found.starts.len() as u32);
        }
        Ok(found)
    }
}

fn document_starts(start: u64, lengths: &[u64]) -> Vec<u64> {
    let mut at = start;
    lengths
        .iter()
        .map(|length| {
            let first = at;
            at += length;
            first
        })
        .collect()
}

fn place(part: &Part, starts: &[u64]) -> (u64, u32) {
    (starts[part.document as usize] + part.begin, part.length)
}
