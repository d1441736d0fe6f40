//! The index beside a shard: where each record batch keeps its columns, and a checksum for each block of the file.
//!
//! Little-endian words after the magic: file bytes, block bytes, batches, tokens, documents, id bytes; five words a
//! batch (documents, tokens, positions of ends, ids and rows); one XXH3-64 a block.

use std::path::Path;

use crate::store_error::StoreError;

const MAGIC: &[u8; 8] = b"headrx01";
const HEADER_WORDS: usize = 6;
const BATCH_WORDS: usize = 5;

type Result<T> = std::result::Result<T, StoreError>;

/// Where one record batch keeps its columns, in bytes from the start of the file.
#[derive(Clone, Copy, Debug)]
pub struct Batch {
    pub first_token: u64,
    pub first_document: u64,
    pub documents: u64,
    pub tokens: u64,
    /// `documents + 1` ends of documents, i32, the first 0.
    pub ends: u64,
    pub ids: u64,
    /// Row of each document in its source file, u64.
    pub rows: u64,
}

/// The parsed index of a shard.
#[derive(Debug)]
pub struct Index {
    pub size: u64,
    pub block_bytes: u64,
    pub tokens: u64,
    pub documents: u64,
    pub id_bytes: u64,
    pub batches: Vec<Batch>,
    pub sums: Vec<u64>,
}

impl Index {
    pub fn parse(path: &Path, bytes: &[u8]) -> Result<Self> {
        let damaged =
            |at: usize, what: &str| StoreError::Damaged(path.into(), at as u64, what.into());
        if bytes.len() < 8 + 8 * HEADER_WORDS
            || &bytes[..8] != MAGIC
            || !bytes.len().is_multiple_of(8)
        {
            return Err(damaged(0, "this is no shard index"));
        }
        let words: Vec<u64> = bytes[8..]
            .chunks_exact(8)
            .map(|word| u64::from_le_bytes(word.try_into().expect("8 bytes")))
            .collect();
        let [size, block_bytes, count, tokens, documents, id_bytes] =
            words[..HEADER_WORDS].try_into().expect("a header");
        let blocks = if block_bytes == 0 {
            0
        } else {
            size.div_ceil(block_bytes)
        };
        let table = (count as usize).saturating_mul(BATCH_WORDS);
        let expected = table
            .saturating_add(HEADER_WORDS)
            .saturating_add(blocks as usize);
        if block_bytes == 0 || !matches!(id_bytes, 2 | 4) || words.len() != expected {
            return Err(damaged(8, "its header does not fit its length"));
        }
        let (mut first_token, mut first_document) = (0, 0);
        let batches = words[HEADER_WORDS..HEADER_WORDS + table]
            .chunks_exact(BATCH_WORDS)
            .map(|row| {
                let batch = Batch {
                    first_token,
                    first_document,
                    documents: row[0],
                    tokens: row[1],
                    ends: row[2],
                    ids: row[3],
                    rows: row[4],
                };
                first_document = batch.first_document.saturating_add(row[0]);
                first_token = batch.first_token.saturating_add(row[1]);
                batch
            })
            .collect();
        if first_token != tokens || first_document != documents {
            return Err(damaged(8, "its batches do not add up"));
        }
        let sums = words[HEADER_WORDS + table..].to_vec();
        Ok(Self {
            size,
            block_bytes,
            tokens,
            documents,
            id_bytes,
            batches,
            sums,
        })
    }
}
