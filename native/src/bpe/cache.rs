//! Pieces with their ids: exact, and of bounded size.
//!
//! A piece of up to 15 bytes lies, with its length and up to three ids, in half a cache line, one of up to 31 bytes
//! with up to seven ids in a whole one; longer ones and longer lists of ids lie in arenas. A table that is full at its
//! largest size is emptied: what is frequent comes back at once. Memory latency is what look-ups cost, so a caller
//! asks for many pieces before it looks at the first. One thread's cache stays below 64 MiB.

use crate::bpe::packed::{Narrow, Slot, Slots, Wide, hash_long, prefetch};

/// Largest numbers of slots: 16 MiB of narrow ones, 8 MiB of wide ones, up to 24 MiB of long ones.
const MOST_NARROW: usize = 1 << 19;
const MOST_WIDE: usize = 1 << 17;
/// Pieces longer than this are not kept.
const LONGEST: usize = 256;
/// Bytes that the arenas of long pieces and of ids may hold.
const ARENA_BYTES: usize = 12 << 20;

/// A count of ids that says: they lie in the arena.
const IN_ARENA: u32 = u32::MAX;
/// Ids that a wide slot holds beside their count.
const MOST_INLINE: usize = 7;

/// One piece in the arena.
#[derive(Clone, Copy, Default)]
struct Entry {
    hash: u64,
    start: u32,
    length: u32,
    first: u32,
    count: u32,
}

/// A piece that was asked for: where it ends, its hash, and its packed bytes when it is short.
#[derive(Clone, Copy, Default)]
pub struct Asked {
    pub end: usize,
    hash: u64,
    key: [u64; 2],
}

/// Ids on their way out: a vector that is longer than what it holds, so that whole groups are written at once.
pub struct Sink<'a> {
    out: &'a mut Vec<u32>,
    len: usize,
}

impl<'a> Sink<'a> {
    pub fn new(out: &'a mut Vec<u32>) -> Self {
        let len = out.len();
        Self { out, len }
    }

    /// Make room for this number of groups.
    #[inline]
    pub fn reserve(&mut self, groups: usize) {
        let room = self.len + (groups + 1) * (MOST_INLINE + 1);
        if room > self.out.len() {
            self.out.resize(room, 0);
        }
    }

    /// Take the first `count` of a group.
    #[inline(always)]
    fn write<const N: usize>(&mut self, group: [u32; N], count: usize) {
        if let Some(room) = self.out.get_mut(self.len..self.len + N) {
            room.copy_from_slice(&group);
        }
        self.len += count;
    }

    /// Append any number of ids; room for `groups` is there afterwards.
    pub fn append(&mut self, groups: usize, ids: &[u32]) {
        self.reserve(groups + ids.len());
        self.out[self.len..self.len + ids.len()].copy_from_slice(ids);
        self.len += ids.len();
    }

    /// Cut off the room that is left.
    pub fn finish(self) {
        self.out.truncate(self.len);
    }
}

/// The cache of one thread.
pub struct Cache {
    narrow: Slots<Narrow>,
    wide: Slots<Wide>,
    long: Vec<Entry>,
    filled: usize,
    bytes: Vec<u8>,
    ids: Vec<u32>,
}

impl Default for Cache {
    fn default() -> Self {
        Self {
            narrow: Slots::new(MOST_NARROW),
            wide: Slots::new(MOST_WIDE),
            long: vec![Entry::default(); 1 << 10],
            filled: 0,
            bytes: Vec::new(),
            ids: Vec::new(),
        }
    }
}

impl Cache {
    /// Ask for a piece of a text, which brings near what `get` will look at.
    #[inline(always)]
    pub fn ask(&self, text: &[u8], start: usize, end: usize) -> Asked {
        let length = end - start;
        if length <= Narrow::LONGEST {
            let key = Narrow::pack(text, start, length);
            let hash = Narrow::hash(&key);
            self.narrow.prefetch(hash);
            Asked { end, hash, key }
        } else if length <= Wide::LONGEST {
            let hash = Wide::hash(&Wide::pack(&text[start..end]));
            self.wide.prefetch(hash);
            Asked {
                end,
                hash,
                key: [0; 2],
            }
        } else {
            let hash = hash_long(&text[start..end]);
            prefetch(&self.long[hash as usize & (self.long.len() - 1)]);
            Asked {
                end,
                hash,
                key: [0; 2],
            }
        }
    }

    /// Append the ids of a piece that was asked for, if it is known; `groups` are asked for and not yet written.
    #[inline(always)]
    pub fn get(&self, piece: &[u8], asked: &Asked, groups: usize, sink: &mut Sink) -> bool {
        if piece.len() <= Narrow::LONGEST {
            let Some([one, other]) = self.narrow.find(&asked.key, asked.hash) else {
                return false;
            };
            let group = [
                one as u32,
                (one >> 32) as u32,
                other as u32,
                (other >> 32) as u32,
            ];
            match group[3] {
                IN_ARENA => self.emit(group[0], group[1], groups, sink),
                count => sink.write(group, count as usize),
            }
            return true;
        }
        self.get_wide(piece, asked, groups, sink)
    }

    #[inline]
    fn get_wide(&self, piece: &[u8], asked: &Asked, groups: usize, sink: &mut Sink) -> bool {
        if piece.len() <= Wide::LONGEST {
            let Some(value) = self.wide.find(&Wide::pack(piece), asked.hash) else {
                return false;
            };
            let mut group = [0; MOST_INLINE + 1];
            for (pair, word) in group.chunks_exact_mut(2).zip(value) {
                (pair[0], pair[1]) = (word as u32, (word >> 32) as u32);
            }
            match group[MOST_INLINE] {
                IN_ARENA => self.emit(group[0], group[1], groups, sink),
                count => sink.write(group, count as usize),
            }
            return true;
        }
        match self.find_long(asked.hash, piece) {
            Ok(at) if piece.len() <= LONGEST => {
                let entry = self.long[at];
                self.emit(entry.first, entry.count, groups, sink);
                true
            }
            _ => false,
        }
    }

    /// Append ids of the arena.
    fn emit(&self, first: u32, count: u32, groups: usize, sink: &mut Sink) {
        sink.append(groups, &self.ids[first as usize..][..count as usize]);
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
            *self = Self::default();
        }
        if piece.len() <= Narrow::LONGEST {
            let value = self.value::<4>(ids);
            let key = Narrow::pack(piece, 0, piece.len());
            self.narrow
                .put(&key, [pair(value[0], value[1]), pair(value[2], value[3])]);
        } else if piece.len() <= Wide::LONGEST {
            let value = self.value::<{ MOST_INLINE + 1 }>(ids);
            let words = std::array::from_fn(|i| pair(value[2 * i], value[2 * i + 1]));
            self.wide.put(&Wide::pack(piece), words);
        } else {
            self.put_long(piece, ids);
        }
    }

    /// Ids and their count, or their place in the arena.
    fn value<const N: usize>(&mut self, ids: &[u32]) -> [u32; N] {
        let mut value = [0; N];
        if ids.len() < N {
            value[..ids.len()].copy_from_slice(ids);
            value[N - 1] = ids.len() as u32;
        } else {
            (value[0], value[1], value[N - 1]) =
                (self.ids.len() as u32, ids.len() as u32, IN_ARENA);
            self.ids.extend_from_slice(ids);
        }
        value
    }

    fn put_long(&mut self, piece: &[u8], ids: &[u32]) {
        if self.filled * 2 >= self.long.len() {
            self.grow_long();
        }
        let hash = hash_long(piece);
        let Err(at) = self.find_long(hash, piece) else {
            return;
        };
        self.long[at] = Entry {
            hash,
            start: self.bytes.len() as u32,
            length: piece.len() as u32,
            first: self.ids.len() as u32,
            count: ids.len() as u32,
        };
        self.bytes.extend_from_slice(piece);
        self.ids.extend_from_slice(ids);
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

fn pair(low: u32, high: u32) -> u64 {
    low as u64 | (high as u64) << 32
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
                let mut sink = Sink::new(&mut out);
                sink.reserve(1);
                let asked = cache.ask(piece, 0, piece.len());
                prop_assert_eq!(cache.get(piece, &asked, 1, &mut sink), known.contains_key(piece));
                sink.finish();
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
        assert!(cache.narrow.size() <= 32 * MOST_NARROW && cache.wide.size() <= 64 * MOST_WIDE);
        assert!(cache.long.len() * size_of::<Entry>() <= 24 << 20);
    }
}
