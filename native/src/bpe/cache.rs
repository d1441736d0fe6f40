//! Pieces with their ids: exact, and of bounded size.
//!
//! Short pieces lie in tables beside their ids (see `packed`), longer ones in an arena. A table that is full at its
//! largest size is emptied: what is frequent comes back at once. Memory latency is what look-ups cost, so entries are
//! small, and a caller asks for many pieces before it looks at the first. One thread's cache stays below 56 MiB.

use crate::bpe::packed::{Narrow, Packed, PackedTable, Tiny, Wide, hash_long, prefetch};

/// Largest numbers of slots: 4 MiB of tiny ones, 6 MiB of narrow ones, 10 MiB of wide ones, up to 24 MiB of long ones.
const MOST_SLOTS: usize = 1 << 18;
/// Pieces longer than this are not kept.
const LONGEST: usize = 256;
/// Bytes that the arenas of long pieces and of ids may hold.
const ARENA_BYTES: usize = 12 << 20;

const ID_BITS: u32 = 21;
const ID: u64 = (1 << ID_BITS) - 1;
/// Most ids that lie beside a key.
const INLINE: usize = 3;
const COUNT_BITS: u32 = 16;

/// Ids of a piece in a word: up to three, each plus one, or with the highest bit set their place in the arena.
#[derive(Clone, Copy, Default)]
struct Ids(u64);

const IN_ARENA: u64 = 1 << 63;

/// One piece in the arena.
#[derive(Clone, Copy, Default)]
struct Entry {
    hash: u64,
    start: u32,
    length: u32,
    ids: Ids,
}

/// A piece that was asked for: its hash, and its packed bytes when it is short.
#[derive(Clone, Copy, Default)]
pub struct Asked {
    hash: u64,
    key: Narrow,
}

/// The cache of one thread.
pub struct Cache {
    most: usize,
    tiny: PackedTable<Tiny, Ids>,
    narrow: PackedTable<Narrow, Ids>,
    wide: PackedTable<Wide, Ids>,
    long: Vec<Entry>,
    filled: usize,
    bytes: Vec<u8>,
    ids: Vec<u32>,
}

impl Default for Cache {
    fn default() -> Self {
        Self::of(MOST_SLOTS)
    }
}

impl Cache {
    /// A cache whose tables have at most this number of slots, a power of two.
    pub fn of(most: usize) -> Self {
        Self {
            most,
            tiny: PackedTable::new(most),
            narrow: PackedTable::new(most),
            wide: PackedTable::new(most),
            long: vec![Entry::default(); 1 << 10],
            filled: 0,
            bytes: Vec::new(),
            ids: Vec::new(),
        }
    }

    /// Ask for a piece, which brings near what `get` will look at.
    #[inline(always)]
    pub fn ask(&self, piece: &[u8]) -> Asked {
        if piece.len() <= Tiny::LONGEST {
            let key = Tiny::pack(piece);
            let hash = key.hash();
            self.tiny.prefetch(hash);
            Asked {
                hash,
                key: [key[0], 0],
            }
        } else if piece.len() <= Narrow::LONGEST {
            let key = Narrow::pack(piece);
            let hash = key.hash();
            self.narrow.prefetch(hash);
            Asked { hash, key }
        } else if piece.len() <= Wide::LONGEST {
            let hash = Wide::pack(piece).hash();
            self.wide.prefetch(hash);
            Asked { hash, key: [0; 2] }
        } else {
            let hash = hash_long(piece);
            prefetch(&self.long[hash as usize & (self.long.len() - 1)]);
            Asked { hash, key: [0; 2] }
        }
    }

    /// Append the ids of a piece that was asked for, if it is known.
    #[inline(always)]
    pub fn get(&self, piece: &[u8], asked: &Asked, out: &mut Vec<u32>) -> bool {
        let found = if piece.len() <= Tiny::LONGEST {
            self.tiny
                .find_hashed([asked.key[0]], asked.hash)
                .ok()
                .map(|at| *self.tiny.value(at))
        } else if piece.len() <= Narrow::LONGEST {
            self.narrow
                .find_hashed(asked.key, asked.hash)
                .ok()
                .map(|at| *self.narrow.value(at))
        } else if piece.len() <= Wide::LONGEST {
            let found = self.wide.find_hashed(Wide::pack(piece), asked.hash);
            found.ok().map(|at| *self.wide.value(at))
        } else if piece.len() <= LONGEST {
            self.find_long(asked.hash, piece)
                .ok()
                .map(|at| self.long[at].ids)
        } else {
            None
        };
        match found {
            Some(ids) if ids.0 < 1 << ID_BITS => out.push((ids.0 - 1) as u32),
            Some(ids) => self.emit(ids, out),
            None => return false,
        }
        true
    }

    /// Append several ids.
    #[inline]
    fn emit(&self, ids: Ids, out: &mut Vec<u32>) {
        if ids.0 & IN_ARENA == 0 {
            let mut rest = ids.0;
            while rest > 0 {
                out.push((rest & ID) as u32 - 1);
                rest >>= ID_BITS;
            }
        } else {
            let count = ids.0 as usize & ((1 << COUNT_BITS) - 1);
            let first = ((ids.0 & !IN_ARENA) >> COUNT_BITS) as usize;
            out.extend_from_slice(&self.ids[first..first + count]);
        }
    }

    fn find_long(&self, hash: u64, piece: &[u8]) -> Result<usize, usize> {
        let mask = self.long.len() - 1;
        let mut at = hash as usize & mask;
        loop {
            let entry = &self.long[at];
            if entry.length == 0 {
                return Err(at);
            }
            let kept = &self.bytes[entry.start as usize..][..entry.length as usize];
            if entry.hash == hash && kept == piece {
                return Ok(at);
            }
            at = (at + 1) & mask;
        }
    }

    /// Remember the ids of a piece that is not known.
    pub fn put(&mut self, piece: &[u8], ids: &[u32]) {
        if piece.is_empty() || piece.len() > LONGEST {
            return;
        }
        if self.bytes.len() + 4 * self.ids.len() > ARENA_BYTES {
            *self = Self::of(self.most);
        }
        let kept = self.keep(ids);
        if piece.len() <= Tiny::LONGEST {
            self.tiny.put(Tiny::pack(piece), kept);
        } else if piece.len() <= Narrow::LONGEST {
            self.narrow.put(Narrow::pack(piece), kept);
        } else if piece.len() <= Wide::LONGEST {
            self.wide.put(Wide::pack(piece), kept);
        } else {
            self.put_long(piece, kept);
        }
    }

    fn keep(&mut self, ids: &[u32]) -> Ids {
        if ids.len() <= INLINE {
            let add = |sum, &id| sum << ID_BITS | (id as u64 + 1);
            return Ids(ids.iter().rev().fold(0, add));
        }
        let first = self.ids.len() as u64;
        self.ids.extend_from_slice(ids);
        Ids(IN_ARENA | first << COUNT_BITS | ids.len() as u64)
    }

    fn put_long(&mut self, piece: &[u8], ids: Ids) {
        if self.filled * 2 >= self.long.len() {
            self.grow_long();
        }
        let hash = hash_long(piece);
        let Err(at) = self.find_long(hash, piece) else {
            return;
        };
        let (start, length) = (self.bytes.len() as u32, piece.len() as u32);
        self.long[at] = Entry {
            hash,
            start,
            length,
            ids,
        };
        self.bytes.extend_from_slice(piece);
        self.filled += 1;
    }

    fn grow_long(&mut self) {
        let size = self.long.len() * 4;
        let old = std::mem::replace(&mut self.long, vec![Entry::default(); size]);
        for entry in old.into_iter().filter(|entry| entry.length > 0) {
            let mut at = entry.hash as usize & (size - 1);
            while self.long[at].length > 0 {
                at = (at + 1) & (size - 1);
            }
            self.long[at] = entry;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn gives_what_was_put(pieces in prop::collection::vec(prop::collection::vec(0u8..3, 1..50), 1..200)) {
            let mut cache = Cache::default();
            let mut known: HashMap<Vec<u8>, Vec<u32>> = HashMap::new();
            for (number, piece) in pieces.iter().enumerate() {
                let mut out = vec![7];
                let asked = cache.ask(piece);
                prop_assert_eq!(cache.get(piece, &asked, &mut out), known.contains_key(piece));
                if let Some(ids) = known.get(piece) {
                    prop_assert_eq!(&out[1..], &ids[..]);
                } else {
                    let count = number as u32 % 11 + 1;
                    let ids: Vec<u32> = (0..count).map(|i| i * 1000 + number as u32).collect();
                    cache.put(piece, &ids);
                    known.insert(piece.clone(), ids);
                }
            }
        }
    }

    #[test]
    fn stays_bounded() {
        let mut cache = Cache::default();
        for number in 0..600_000u32 {
            let piece = format!("{number:05}{}", "x".repeat(number as usize % 90));
            cache.put(piece.as_bytes(), &[number; 12]);
        }
        assert!(cache.bytes.len() + 4 * cache.ids.len() <= ARENA_BYTES + 1024);
        assert!(cache.tiny.slots() <= MOST_SLOTS && cache.narrow.slots() <= MOST_SLOTS);
        assert!(cache.wide.slots() <= MOST_SLOTS);
        assert!(cache.long.len() * size_of::<Entry>() <= 24 << 20);
    }
}
