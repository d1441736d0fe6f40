//! The ends of documents that a row touches, found with few small reads.
//!
//! A record batch has thousands of documents, 4 bytes an end; a row of a training step touches a handful. Lengths of
//! neighbours are alike on the whole, so the place of an end is guessed from the tokens before it, looked at, and
//! guessed again within what is left; after a few wrong guesses the range is halved instead, whatever the lengths are.

use crate::reader::Reader;
use crate::shard::Shard;
use crate::shard_index::Batch;
use crate::store_error::StoreError;

type Result<T> = std::result::Result<T, StoreError>;

/// Ends read at once.
const CHUNK: usize = 64;

/// Guesses before the range is halved.
const GUESSES: usize = 4;

/// Some ends in a row, from number `start` on.
struct Chunk {
    start: u64,
    count: usize,
    ends: [u64; CHUNK],
}

impl Chunk {
    fn read<'a>(
        reader: &mut Reader<'a>,
        shard: &'a Shard,
        batch: &Batch,
        start: u64,
    ) -> Result<Self> {
        let count = (batch.documents + 1 - start).min(CHUNK as u64) as usize;
        let mut bytes = [0; 4 * CHUNK];
        reader.read(shard, batch.ends + 4 * start, &mut bytes[..4 * count])?;
        let mut ends = [0; CHUNK];
        for (end, word) in ends.iter_mut().zip(bytes[..4 * count].chunks_exact(4)) {
            *end = u64::from(u32::from_le_bytes([word[0], word[1], word[2], word[3]]));
        }
        Ok(Self { start, count, ends })
    }

    fn all(&self) -> &[u64] {
        &self.ends[..self.count]
    }

    /// The number after the last one here.
    fn next(&self) -> u64 {
        self.start + self.count as u64
    }
}

/// Calls `found` with every end in [from, to) of a batch, in order; ends count from its start in tokens, the first is 0.
pub fn ends_within<'a>(
    reader: &mut Reader<'a>,
    shard: &'a Shard,
    batch: &Batch,
    (from, to): (u64, u64),
    mut found: impl FnMut(u64),
) -> Result<()> {
    let mut chunk = first_chunk(reader, shard, batch, from)?;
    loop {
        for &end in chunk.all().iter().skip_while(|&&end| end < from) {
            if end >= to {
                return Ok(());
            }
            found(end);
        }
        if chunk.next() > batch.documents {
            return Ok(());
        }
        chunk = Chunk::read(reader, shard, batch, chunk.next())?;
    }
}

/// The chunk that holds the first end of at least `from`; no end before it is.
fn first_chunk<'a>(
    reader: &mut Reader<'a>,
    shard: &'a Shard,
    batch: &Batch,
    from: u64,
) -> Result<Chunk> {
    // Ends below number `low` are below `from`; end number `high`, which lies at `most`, is not.
    let (mut low, mut least) = (0, 0);
    let (mut high, mut most) = (batch.documents, batch.tokens);
    for guess in 0.. {
        let reach = high - low;
        let middle = if guess < GUESSES && most > least {
            let share = (from - least) as f64 / (most - least) as f64;
            low + ((reach as f64 * share) as u64).min(reach)
        } else {
            low + reach / 2
        };
        let start = middle.saturating_sub(CHUNK as u64 / 2).max(low);
        let chunk = Chunk::read(reader, shard, batch, start)?;
        let (first, last) = (chunk.ends[0], chunk.ends[chunk.count - 1]);
        if last < from {
            if chunk.next() > batch.documents {
                return Ok(chunk);
            }
            (low, least) = (chunk.next(), last);
            high = high.max(low);
        } else if first >= from && start > low {
            (high, most) = (start, first);
        } else {
            return Ok(chunk);
        }
    }
    unreachable!("the range becomes smaller with each guess")
}
