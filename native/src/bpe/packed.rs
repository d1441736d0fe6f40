//! Tables keyed by short pieces, one cache line a look-up.
//!
//! The bytes of a piece and its length are kept in words, two for up to 15 bytes and four for up to 31; so they compare
//! as integers and lie beside their value. Memory latency is what such tables cost, so callers prefetch the slots of
//! many pieces before they look at the first.

use crate::bpe::pages::{Pages, Zeroed};

/// Eight bytes as a word.
#[inline(always)]
pub fn word(bytes: &[u8]) -> u64 {
    match *bytes {
        [a, b, c, d, e, f, g, h] => u64::from_le_bytes([a, b, c, d, e, f, g, h]),
        _ => 0,
    }
}

/// Both halves of a product, folded.
#[inline(always)]
fn fold(a: u64, b: u64) -> u64 {
    let product = a as u128 * b as u128;
    product as u64 ^ (product >> 64) as u64
}

const KEYS: [u64; 4] = [
    0x9e37_79b9_7f4a_7c15,
    0xd6e8_feb8_6659_fd93,
    0xa076_1d64_78bd_642f,
    0xe703_7ed1_a0b4_28db,
];

/// The bytes of two words that a piece of each length has, and its length in the highest byte.
const MASKS: [[u64; 3]; 16] = {
    let mut masks = [[0; 3]; 16];
    let mut length = 0;
    while length < 16 {
        let low = if length < 8 {
            (1 << (8 * length)) - 1
        } else {
            u64::MAX
        };
        let high = if length > 8 {
            (1 << (8 * (length - 8))) - 1
        } else {
            0
        };
        masks[length] = [low, high, (length as u64) << 56];
        length += 1;
    }
    masks
};

/// A slot: the words of a key, of which the last is never 0, and those of its value.
pub trait Slot: Zeroed {
    type Key: Copy + PartialEq;
    type Value: Copy;
    fn of(key: &Self::Key, value: Self::Value) -> Self;
    fn key(&self) -> Self::Key;
    fn value(&self) -> Self::Value;
    fn is_empty(&self) -> bool;
    fn hash(key: &Self::Key) -> u64;
}

/// A piece of up to 15 bytes and two words.
#[derive(Clone, Copy)]
#[repr(align(32))]
pub struct Narrow([u64; 4]);

/// A piece of 16 to 31 bytes and four words.
#[derive(Clone, Copy)]
#[repr(align(64))]
pub struct Wide([u64; 8]);

impl Narrow {
    pub const LONGEST: usize = 15;

    /// The key of the `length` bytes of a text at `start`.
    #[inline(always)]
    pub fn pack(text: &[u8], start: usize, length: usize) -> [u64; 2] {
        let [low, high, mark] = MASKS[length & 15];
        // Two reads and no branch on the length, but where the text is nearly over.
        let [one, other] = match text.get(start..start + 16) {
            Some(bytes) => [word(&bytes[..8]), word(&bytes[8..])],
            None => padded(&text[start..start + length]),
        };
        [one & low, other & high | mark]
    }
}

#[inline(never)]
fn padded(piece: &[u8]) -> [u64; 2] {
    let mut bytes = [0; 16];
    bytes[..piece.len()].copy_from_slice(piece);
    [word(&bytes[..8]), word(&bytes[8..])]
}

impl Wide {
    pub const LONGEST: usize = 31;

    /// The key of a piece of 16 to 31 bytes.
    #[inline(always)]
    pub fn pack(piece: &[u8]) -> [u64; 4] {
        let n = piece.len();
        // The last bytes by a read that overlaps, moved to where they belong.
        let end = [word(&piece[n - 16..n - 8]), word(&piece[n - 8..])];
        let end = end[0] as u128 | (end[1] as u128) << 64;
        let tail = end.checked_shr(8 * (32 - n as u32)).unwrap_or(0);
        [
            word(&piece[..8]),
            word(&piece[8..16]),
            tail as u64,
            (tail >> 64) as u64 | (n as u64) << 56,
        ]
    }
}

impl Slot for Narrow {
    type Key = [u64; 2];
    type Value = [u64; 2];

    fn of(key: &[u64; 2], value: [u64; 2]) -> Self {
        Self([key[0], key[1], value[0], value[1]])
    }

    #[inline(always)]
    fn key(&self) -> [u64; 2] {
        [self.0[0], self.0[1]]
    }

    #[inline(always)]
    fn value(&self) -> [u64; 2] {
        [self.0[2], self.0[3]]
    }

    #[inline(always)]
    fn is_empty(&self) -> bool {
        self.0[1] == 0
    }

    #[inline(always)]
    fn hash(key: &[u64; 2]) -> u64 {
        fold(key[0] ^ KEYS[0], key[1] ^ KEYS[1])
    }
}

impl Slot for Wide {
    type Key = [u64; 4];
    type Value = [u64; 4];

    fn of(key: &[u64; 4], value: [u64; 4]) -> Self {
        let [a, b, c, d] = *key;
        let [e, f, g, h] = value;
        Self([a, b, c, d, e, f, g, h])
    }

    #[inline(always)]
    fn key(&self) -> [u64; 4] {
        [self.0[0], self.0[1], self.0[2], self.0[3]]
    }

    #[inline(always)]
    fn value(&self) -> [u64; 4] {
        [self.0[4], self.0[5], self.0[6], self.0[7]]
    }

    #[inline(always)]
    fn is_empty(&self) -> bool {
        self.0[3] == 0
    }

    #[inline(always)]
    fn hash(key: &[u64; 4]) -> u64 {
        fold(key[0] ^ KEYS[0], key[1] ^ KEYS[1]) ^ fold(key[2] ^ KEYS[2], key[3] ^ KEYS[3])
    }
}

/// A hash of a piece of 16 bytes or more.
#[inline]
pub fn hash_long(piece: &[u8]) -> u64 {
    let mut sum = piece.len() as u64;
    let mut rest = piece;
    while rest.len() > 16 {
        sum = fold(
            sum ^ word(&rest[..8]) ^ KEYS[0],
            word(&rest[8..16]) ^ KEYS[1],
        );
        rest = &rest[16..];
    }
    let end = &piece[piece.len() - 16..];
    fold(sum ^ word(&end[..8]) ^ KEYS[2], word(&end[8..]) ^ KEYS[3])
}

/// Bring a value into the cache.
#[inline(always)]
pub fn prefetch<T>(value: &T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch of any address is allowed and changes nothing that a program can see.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(value).cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = value;
}

// SAFETY: both are words, and hold nothing that is dropped.
unsafe impl Zeroed for Narrow {}
unsafe impl Zeroed for Wide {}

/// An open-addressing table of slots.
pub struct Slots<S: Slot> {
    slots: Pages<S>,
    filled: usize,
    most: usize,
}

impl<S: Slot> Slots<S> {
    /// A table of at most `most` slots, a power of two.
    pub fn new(most: usize) -> Self {
        Self {
            slots: Pages::new(most.min(1 << 10)),
            filled: 0,
            most,
        }
    }

    /// Bring near the slot where a key of this hash would be.
    #[inline(always)]
    pub fn prefetch(&self, hash: u64) {
        prefetch(&self.slots[hash as usize & (self.slots.len() - 1)]);
    }

    /// The value of a key of this hash.
    #[inline(always)]
    pub fn find(&self, key: &S::Key, hash: u64) -> Option<S::Value> {
        let mask = self.slots.len() - 1;
        let mut at = hash as usize & mask;
        loop {
            let slot = &self.slots[at];
            if slot.key() == *key {
                return Some(slot.value());
            }
            if slot.is_empty() {
                return None;
            }
            at = (at + 1) & mask;
        }
    }

    /// Put in a key that is not there; the table grows, or at its largest is emptied, when it is full.
    pub fn put(&mut self, key: &S::Key, value: S::Value) {
        if self.filled * 8 >= self.slots.len() * 5 {
            self.make_room();
        }
        self.filled += 1;
        self.keep(S::of(key, value));
    }

    fn keep(&mut self, slot: S) {
        let mask = self.slots.len() - 1;
        let mut at = S::hash(&slot.key()) as usize & mask;
        while !self.slots[at].is_empty() {
            at = (at + 1) & mask;
        }
        self.slots[at] = slot;
    }

    fn make_room(&mut self) {
        if self.slots.len() >= self.most {
            self.slots = Pages::new(self.most);
            self.filled = 0;
            return;
        }
        let size = self.slots.len() * 4;
        let old = std::mem::replace(&mut self.slots, Pages::new(size));
        old.iter()
            .filter(|slot| !slot.is_empty())
            .for_each(|slot| self.keep(*slot));
    }

    /// Bytes of the table.
    pub fn size(&self) -> usize {
        self.slots.len() * size_of::<S>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn packed_pieces_are_distinct_wherever_they_lie() {
        let mut seen = HashSet::new();
        for n in 1..=Wide::LONGEST {
            for changed in 0..n {
                for byte in [0u8, 1] {
                    let mut piece = vec![5u8; n];
                    piece[changed] = byte;
                    if n > Narrow::LONGEST {
                        assert!(seen.insert(Wide::pack(&piece)), "{piece:?}");
                        continue;
                    }
                    let [one, other] = Narrow::pack(&piece, 0, n);
                    assert!(seen.insert([one, other, 0, 0]), "{piece:?}");
                    let text = [&[9u8; 3], piece.as_slice(), &[7; 40]].concat();
                    assert_eq!(Narrow::pack(&text, 3, n), [one, other]);
                }
            }
        }
    }
}
