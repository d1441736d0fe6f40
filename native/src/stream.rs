//! The tokens of a domain: shards in order, read as one run of tokens, with the documents in it.

use rayon::prelude::*;

use crate::ends::ends_within;
use crate::reader::Reader;
use crate::shard::{Shard, ShardRef};
use crate::shard_index::Batch;
use crate::store_error::StoreError;

type Result<T> = std::result::Result<T, StoreError>;

/// One document, or a part of it, within a range of tokens of a shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Number of the shard in its stream.
    pub shard: u64,
    /// Number of the document in its shard.
    pub document: u64,
    /// Row of the document in its source file.
    pub row: u64,
    /// Tokens [begin, end) of the document.
    pub begin: u64,
    pub end: u64,
}

/// Shards in order, read as one run of tokens.
#[derive(Debug)]
pub struct Stream {
    pub shards: Vec<Shard>,
    /// Tokens before each shard, and the total.
    pub firsts: Vec<u64>,
    /// Record batches before each shard, and the total.
    pub first_batches: Vec<u64>,
}

impl Stream {
    /// Opens every shard; the first that does not fit the manifest is the error.
    pub fn open(shards: Vec<ShardRef>, id_bytes: usize) -> Result<Self> {
        let shards: Vec<Shard> = shards
            .into_par_iter()
            .map(|says| Shard::open(says, id_bytes as u64))
            .collect::<Result<_>>()?;
        let (mut firsts, mut first_batches) = (vec![0], vec![0]);
        for shard in &shards {
            firsts.push(firsts[firsts.len() - 1] + shard.says.tokens);
            first_batches.push(first_batches[first_batches.len() - 1] + shard.batches);
        }
        Ok(Self {
            shards,
            firsts,
            first_batches,
        })
    }

    fn total(&self) -> u64 {
        self.firsts[self.shards.len()]
    }

    /// Calls `visit(shard number, batch, first token within the batch, tokens)` over [start, start + length).
    fn walk<'a>(
        &'a self,
        start: u64,
        length: u64,
        mut visit: impl FnMut(usize, &'a Batch, u64, u64) -> Result<()>,
    ) -> Result<()> {
        let end = start.checked_add(length).filter(|&end| end <= self.total());
        let Some(end) = end else {
            return Err(StoreError::Range(format!(
                "tokens {start} to {start} + {length} are asked for, the stream has {}",
                self.total()
            )));
        };
        let mut at = start;
        while at < end {
            let number = self.firsts.partition_point(|&first| first <= at) - 1;
            let index = self.shards[number].index()?;
            let within = at - self.firsts[number];
            let batches = &index.batches;
            let which = batches.partition_point(|batch| batch.first_token <= within) - 1;
            let next = batches
                .get(which + 1)
                .map_or(index.tokens, |batch| batch.first_token);
            let tokens = (next - within).min(end - at);
            visit(
                number,
                &batches[which],
                within - batches[which].first_token,
                tokens,
            )?;
            at += tokens;
        }
        Ok(())
    }

    /// Copies ids into `out`.
    pub fn copy<'a>(
        &'a self,
        start: u64,
        out: &mut [u8],
        id_bytes: usize,
        reader: &mut Reader<'a>,
    ) -> Result<()> {
        let mut done = 0;
        self.walk(
            start,
            (out.len() / id_bytes) as u64,
            |number, batch, first, tokens| {
                let part = &mut out[done..done + tokens as usize * id_bytes];
                done += part.len();
                reader.read(
                    &self.shards[number],
                    batch.ids + first * id_bytes as u64,
                    part,
                )
            },
        )
    }

    /// Calls `edge` with the offset, from `start`, of each document that begins within [start, start + length).
    pub fn edges<'a>(
        &'a self,
        start: u64,
        length: u64,
        reader: &mut Reader<'a>,
        mut edge: impl FnMut(u64),
    ) -> Result<()> {
        let mut done = 0;
        self.walk(start, length, |number, batch, first, tokens| {
            let range = (first, first + tokens);
            ends_within(reader, &self.shards[number], batch, range, |end| {
                edge(done + end - first);
            })?;
            done += tokens;
            Ok(())
        })
    }

    /// Documents that hold tokens [start, start + length).
    pub fn pieces<'a>(
        &'a self,
        start: u64,
        length: u64,
        reader: &mut Reader<'a>,
    ) -> Result<Vec<Piece>> {
        let mut found = Vec::new();
        self.walk(start, length, |number, batch, first, tokens| {
            let shard = &self.shards[number];
            reader.load_ends(shard, batch)?;
            let mut rows = vec![0; 8 * batch.documents as usize];
            reader.read(shard, batch.rows, &mut rows)?;
            for (i, bounds) in reader.ends.windows(2).enumerate() {
                let (begin, end) = (bounds[0].max(first), bounds[1].min(first + tokens));
                if begin < end {
                    found.push(Piece {
                        shard: number as u64,
                        document: batch.first_document + i as u64,
                        row: u64::from_le_bytes(
                            rows[8 * i..8 * i + 8].try_into().expect("8 bytes"),
                        ),
                        begin: begin - bounds[0],
                        end: end - bounds[0],
                    });
                }
            }
            Ok(())
        })?;
        Ok(found)
    }
}
