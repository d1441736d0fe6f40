//! One immutable shard of a token store: an Arrow IPC file, read by positioned reads and checked block by block.
//!
//! Beside the shard lies an index that says where each record batch keeps its ids and its document ends, and one
//! XXH3-64 sum for each block of the file. A block is hashed when it is first touched, from the same bytes that are
//! handed out. A file cut under us is an error and never a SIGBUS, and a deleted or renamed one goes on being read
//! through its handle. One whose modification time changes is checked anew; one whose size changes is refused.

use std::fs::{File, Metadata};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, RwLock};

use rayon::prelude::*;
use xxhash_rust::xxh3::xxh3_64;

use crate::shard_index::Index;
use crate::store_error::StoreError;

type Result<T> = std::result::Result<T, StoreError>;

/// XXH3-64 of each block of `bytes`, the last one shorter.
pub fn block_sums(bytes: &[u8], block_bytes: usize) -> Vec<u64> {
    bytes.par_chunks(block_bytes).map(xxh3_64).collect()
}

/// Identity of a file's content, as far as the file system tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stamp {
    size: u64,
    seconds: i64,
    nanoseconds: i64,
}

impl Stamp {
    fn of(meta: &Metadata) -> Self {
        Self {
            size: meta.size(),
            seconds: meta.mtime(),
            nanoseconds: meta.mtime_nsec(),
        }
    }
}

/// The blocks found right since the file last changed.
#[derive(Debug)]
struct Checked {
    stamp: Stamp,
    blocks: Vec<AtomicU64>,
}

impl Checked {
    fn new(stamp: Stamp, blocks: usize) -> Self {
        Self {
            stamp,
            blocks: (0..blocks.div_ceil(64))
                .map(|_| AtomicU64::new(0))
                .collect(),
        }
    }

    fn has(&self, block: usize) -> bool {
        self.blocks[block / 64].load(Ordering::Relaxed) >> (block % 64) & 1 == 1
    }

    fn add(&self, block: usize) {
        self.blocks[block / 64].fetch_or(1 << (block % 64), Ordering::Relaxed);
    }
}

/// What the manifest says of a shard.
#[derive(Clone, Debug)]
pub struct ShardRef {
    pub path: PathBuf,
    pub index_path: PathBuf,
    pub size: u64,
    /// BLAKE3 of the index file, which holds the sums of the shard's blocks.
    pub index_digest: [u8; 32],
    pub tokens: u64,
    pub documents: u64,
    /// In quarantine: its size and blocks are not checked at opening. Reads are checked as always.
    pub blind: bool,
}

/// An open shard.
#[derive(Debug)]
pub struct Shard {
    pub says: ShardRef,
    file: File,
    opened: Stamp,
    /// Number of record batches.
    pub batches: u64,
    index: OnceLock<Index>,
    checked: RwLock<Arc<Checked>>,
}

impl Shard {
    /// Opens and checks sizes, the index against its digest, and the first and last block of the data.
    pub fn open(says: ShardRef, id_bytes: u64) -> Result<Self> {
        let io = |error| StoreError::Io(says.path.clone(), error);
        let file = File::open(&says.path).map_err(io)?;
        let opened = Stamp::of(&file.metadata().map_err(io)?);
        if opened.size != says.size && !says.blind {
            let what = format!(
                "it has {} bytes, the manifest says {}",
                opened.size, says.size
            );
            return Err(StoreError::Damaged(
                says.path,
                opened.size.min(says.size),
                what,
            ));
        }
        let mut shard = Self {
            file,
            opened,
            batches: 0,
            index: OnceLock::new(),
            checked: RwLock::new(Arc::new(Checked::new(opened, 0))),
            says,
        };
        let index = shard.load()?;
        if index.id_bytes != id_bytes {
            let what = format!(
                "its ids have {} bytes, the manifest says {id_bytes}",
                index.id_bytes
            );
            return Err(StoreError::Damaged(shard.says.path, 0, what));
        }
        shard.batches = index.batches.len() as u64;
        shard.checked = RwLock::new(Arc::new(Checked::new(opened, index.sums.len())));
        let mut scratch = Vec::new();
        for block in [0, index.sums.len().saturating_sub(1)] {
            if block < index.sums.len() && !shard.says.blind {
                shard.check_block(&index, block, &mut scratch)?;
            }
        }
        Ok(shard)
    }

    pub fn load(&self) -> Result<Index> {
        let path = &self.says.index_path;
        let bytes = std::fs::read(path).map_err(|error| StoreError::Io(path.clone(), error))?;
        if blake3::hash(&bytes).as_bytes() != &self.says.index_digest {
            let what = "its hash is not the one in the manifest".to_owned();
            return Err(StoreError::Damaged(path.clone(), 0, what));
        }
        let index = Index::parse(path, &bytes)?;
        let says = (self.says.size, self.says.tokens, self.says.documents);
        if (index.size, index.tokens, index.documents) != says {
            let what = "its sizes are not those in the manifest".to_owned();
            return Err(StoreError::Damaged(path.clone(), 8, what));
        }
        Ok(index)
    }

    /// The index, read again at first use: an open corpus of any size stays small.
    pub fn index(&self) -> Result<&Index> {
        if let Some(index) = self.index.get() {
            return Ok(index);
        }
        let index = self.load()?;
        Ok(self.index.get_or_init(|| index))
    }

    fn io(&self, error: std::io::Error) -> StoreError {
        if error.kind() == std::io::ErrorKind::UnexpectedEof {
            let what = "it is shorter than it was".to_owned();
            return StoreError::Damaged(self.says.path.clone(), self.says.size, what);
        }
        StoreError::Io(self.says.path.clone(), error)
    }

    pub fn check_block(&self, index: &Index, block: usize, scratch: &mut Vec<u8>) -> Result<()> {
        let start = block as u64 * index.block_bytes;
        let length = index.block_bytes.min(index.size - start);
        scratch.resize(length as usize, 0);
        self.file
            .read_exact_at(scratch, start)
            .map_err(|error| self.io(error))?;
        if xxh3_64(scratch) != index.sums[block] {
            let what = format!("block {block} fails its checksum");
            return Err(StoreError::Damaged(self.says.path.clone(), start, what));
        }
        Ok(())
    }

    /// What was checked, as of now: all forgotten if the file was touched, an error if its size changed.
    fn state(&self, blocks: usize) -> Result<Arc<Checked>> {
        let now = Stamp::of(&self.file.metadata().map_err(|error| self.io(error))?);
        let state = self.checked.read().expect("no panic holds it").clone();
        if state.stamp == now {
            return Ok(state);
        }
        if now.size != self.opened.size {
            let what = format!(
                "it was changed in place: {} bytes, {} at opening",
                now.size, self.opened.size
            );
            return Err(StoreError::Damaged(
                self.says.path.clone(),
                now.size.min(self.opened.size),
                what,
            ));
        }
        let fresh = Arc::new(Checked::new(now, blocks));
        *self.checked.write().expect("no panic holds it") = fresh.clone();
        Ok(fresh)
    }

    /// A look at the file as it is now: reads through it are checked against that.
    pub fn look(&self) -> Result<Look<'_>> {
        let index = self.index()?;
        Ok(Look {
            shard: self,
            index,
            state: self.state(index.sums.len())?,
        })
    }
}

/// Reads of a shard between two looks at its size and modification time.
#[derive(Debug)]
pub struct Look<'a> {
    pub shard: &'a Shard,
    pub index: &'a Index,
    state: Arc<Checked>,
}

impl Look<'_> {
    /// Whether the file is still what it was: if not, what was read through this look is void.
    pub fn holds(&self) -> Result<bool> {
        Ok(self.shard.state(self.index.sums.len())?.stamp == self.state.stamp)
    }

    fn damaged(&self, at: u64, what: &str) -> StoreError {
        StoreError::Damaged(self.shard.says.path.clone(), at, what.into())
    }

    /// The error for a file that does not hold still.
    pub fn restless(&self) -> StoreError {
        self.damaged(0, "it is being changed in place while it is read")
    }

    /// Reads `out.len()` bytes at `position`, all of them checked.
    pub fn read(&self, position: u64, out: &mut [u8], block: &mut Vec<u8>) -> Result<()> {
        let end = position.checked_add(out.len() as u64);
        if end.is_none_or(|end| end > self.index.size) {
            return Err(self.damaged(position, "its index points beyond its end"));
        }
        let mut done = 0;
        while done < out.len() {
            let at = position + done as u64;
            let number = (at / self.index.block_bytes) as usize;
            done += if self.state.has(number) {
                self.read_checked(number, at, &mut out[done..])?
            } else {
                self.read_first(number, at, &mut out[done..], block)?
            };
        }
        Ok(())
    }

    /// Reads from blocks that were checked before, as many of them as there are in a row.
    fn read_checked(&self, number: usize, at: u64, out: &mut [u8]) -> Result<usize> {
        let blocks = (number..self.index.sums.len()).take_while(|&block| self.state.has(block));
        let mut until = self
            .index
            .size
            .min((number as u64 + 1) * self.index.block_bytes);
        for block in blocks.skip(1) {
            if until >= at + out.len() as u64 {
                break;
            }
            until = self
                .index
                .size
                .min((block as u64 + 1) * self.index.block_bytes);
        }
        let length = out.len().min((until - at) as usize);
        let part = &mut out[..length];
        self.shard
            .file
            .read_exact_at(part, at)
            .map_err(|error| self.shard.io(error))?;
        Ok(length)
    }

    /// Reads a whole block, checks it, and hands out the part that is wanted.
    fn read_first(
        &self,
        number: usize,
        at: u64,
        out: &mut [u8],
        block: &mut Vec<u8>,
    ) -> Result<usize> {
        self.shard.check_block(self.index, number, block)?;
        let offset = (at - number as u64 * self.index.block_bytes) as usize;
        let length = out.len().min(block.len() - offset);
        out[..length].copy_from_slice(&block[offset..offset + length]);
        self.state.add(number);
        Ok(length)
    }
}
