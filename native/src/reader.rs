//! What a thread keeps between reads: looks at shards, buffers, and the document ends that it read last.

use crate::shard::{Look, Shard};
use crate::shard_index::Batch;
use crate::store_error::StoreError;

type Result<T> = std::result::Result<T, StoreError>;

/// How often something is read again when its files change meanwhile.
const TRIES: usize = 3;

/// Reads of one thread. All reads of a shard within `settled` see one state of its file.
#[derive(Default)]
pub struct Reader<'a> {
    looks: Vec<Look<'a>>,
    block: Vec<u8>,
    bytes: Vec<u8>,
    /// Room for a run of ids that many parts are copied out of.
    pub span: Vec<u8>,
    /// Ends of the documents of the batch read last, from its start in tokens; the first is 0.
    pub ends: Vec<u64>,
    /// Address of the shard and position in it of those ends.
    held: Option<(usize, u64)>,
}

impl<'a> Reader<'a> {
    /// Does `work`, and does it again if a file that it read has changed before its end.
    pub fn settled<T>(&mut self, mut work: impl FnMut(&mut Self) -> Result<T>) -> Result<T> {
        for _ in 0..TRIES {
            self.looks.clear();
            self.held = None;
            let outcome = work(self);
            let mut holds = true;
            for look in &self.looks {
                holds &= look.holds()?;
            }
            if holds {
                return outcome;
            }
        }
        Err(self.looks[0].restless())
    }

    /// Reads checked bytes of a shard.
    pub fn read(&mut self, shard: &'a Shard, position: u64, out: &mut [u8]) -> Result<()> {
        let known = self
            .looks
            .iter()
            .rposition(|look| std::ptr::eq(look.shard, shard));
        let at = match known {
            Some(at) => at,
            None => {
                self.looks.push(shard.look()?);
                self.looks.len() - 1
            }
        };
        self.looks[at].read(position, out, &mut self.block)
    }

    /// Puts the ends of a batch's documents into `ends`.
    pub fn load_ends(&mut self, shard: &'a Shard, batch: &Batch) -> Result<()> {
        let key = (std::ptr::from_ref(shard) as usize, batch.ends);
        if self.held == Some(key) {
            return Ok(());
        }
        let mut bytes = std::mem::take(&mut self.bytes);
        bytes.resize(4 * (batch.documents as usize + 1), 0);
        let outcome = self.read(shard, batch.ends, &mut bytes);
        let word = |end: &[u8]| u64::from(u32::from_le_bytes([end[0], end[1], end[2], end[3]]));
        self.ends.clear();
        self.ends.extend(bytes.chunks_exact(4).map(word));
        self.bytes = bytes;
        self.held = outcome.is_ok().then_some(key);
        outcome
    }
}
