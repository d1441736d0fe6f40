//! Pieces with their counts: an open-addressing table whose pieces lie one behind the other.

use std::hash::Hasher;

use rustc_hash::FxHasher;

/// An open-addressing table from pieces to counts.
#[derive(Default)]
pub struct Table {
    pub(super) bytes: Vec<u8>,
    pub(super) ends: Vec<usize>,
    pub(super) counts: Vec<u64>,
    /// (high half of the hash, number of the piece + 1), 0 where empty
    slots: Vec<(u32, u32)>,
}

fn hash(piece: &[u8]) -> u64 {
    let mut hasher = FxHasher::default();
    hasher.write(piece);
    hasher.finish()
}

impl Table {
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    pub fn piece(&self, number: usize) -> &[u8] {
        let start = if number == 0 {
            0
        } else {
            self.ends[number - 1]
        };
        &self.bytes[start..self.ends[number]]
    }

    /// Add `count` to a piece and return its number.
    #[inline]
    pub fn add(&mut self, piece: &[u8], count: u64) -> usize {
        if self.ends.len() * 2 >= self.slots.len() {
            self.grow();
        }
        let hash = hash(piece);
        let (tag, mask) = ((hash >> 32) as u32, self.slots.len() - 1);
        let mut at = hash as usize & mask;
        loop {
            let (other, number) = self.slots[at];
            if number == 0 {
                self.slots[at] = (tag, self.ends.len() as u32 + 1);
                self.bytes.extend_from_slice(piece);
                self.ends.push(self.bytes.len());
                self.counts.push(count);
                return self.ends.len() - 1;
            }
            if other == tag && self.piece(number as usize - 1) == piece {
                self.counts[number as usize - 1] += count;
                return number as usize - 1;
            }
            at = (at + 1) & mask;
        }
    }

    fn grow(&mut self) {
        let size = (self.slots.len() * 2).max(1024);
        let mut slots = vec![(0u32, 0u32); size];
        for number in 0..self.ends.len() {
            let hash = hash(self.piece(number));
            let mut at = hash as usize & (size - 1);
            while slots[at].1 != 0 {
                at = (at + 1) & (size - 1);
            }
            slots[at] = ((hash >> 32) as u32, number as u32 + 1);
        }
        self.slots = slots;
    }

    pub fn add_all(&mut self, other: &Table) {
        for number in 0..other.len() {
            self.add(other.piece(number), other.counts[number]);
        }
    }

    /// Drop the pieces that occur `most` times or less; how many these are, and how often they occur.
    pub fn drop_rare(&mut self, most: u64) -> (u64, u64) {
        let mut kept = Table::default();
        let mut dropped = (0, 0);
        for number in 0..self.len() {
            match self.counts[number] {
                count if count > most => {
                    kept.add(self.piece(number), count);
                }
                count => dropped = (dropped.0 + 1, dropped.1 + count),
            }
        }
        *self = kept;
        dropped
    }
}
