//! Tables keyed by pieces, one cache line a look-up.
//!
//! A piece of up to 7 bytes is kept, with its length, in one word, one of up to 15 in two, one of up to 31 in four.
//! They compare as integers and lie beside their value. Memory latency is what such tables cost, so callers prefetch
//! the slots of many pieces before they look at the first.

/// The bytes of a piece and its length as words; distinct for distinct pieces, all zero for none.
pub trait Packed: Copy + PartialEq + Default {
    /// Bytes of the longest piece that fits.
    const LONGEST: usize;
    fn pack(piece: &[u8]) -> Self;
    fn hash(&self) -> u64;
}

/// Up to 7 bytes.
pub type Tiny = [u64; 1];
/// Up to 15 bytes.
pub type Narrow = [u64; 2];
/// Up to 31 bytes.
pub type Wide = [u64; 4];

/// Eight bytes as a word.
#[inline(always)]
pub fn word(bytes: &[u8]) -> u64 {
    match *bytes {
        [a, b, c, d, e, f, g, h] => u64::from_le_bytes([a, b, c, d, e, f, g, h]),
        _ => 0,
    }
}

/// Up to eight bytes as a word, by reads that overlap.
#[inline(always)]
fn tail(bytes: &[u8]) -> u64 {
    let n = bytes.len();
    match n {
        8.. => word(&bytes[..8]),
        4.. => {
            let low = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
            let end = &bytes[n - 4..];
            let high = u32::from_le_bytes([end[0], end[1], end[2], end[3]]);
            low as u64 | (high as u64) << (8 * (n - 4))
        }
        1.. => {
            let (middle, last) = (n / 2, n - 1);
            bytes[0] as u64
                | (bytes[middle] as u64) << (8 * middle)
                | (bytes[last] as u64) << (8 * last)
        }
        _ => 0,
    }
}

/// Both halves of a product, folded.
#[inline]
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

impl Packed for Tiny {
    const LONGEST: usize = 7;

    #[inline(always)]
    fn pack(piece: &[u8]) -> Self {
        [tail(piece) | (piece.len() as u64) << 56]
    }

    #[inline(always)]
    fn hash(&self) -> u64 {
        fold(self[0] ^ KEYS[0], KEYS[1])
    }
}

impl Packed for Narrow {
    const LONGEST: usize = 15;

    /// Of 8 bytes or more.
    #[inline(always)]
    fn pack(piece: &[u8]) -> Self {
        [
            word(&piece[..8]),
            tail(&piece[8..]) | (piece.len() as u64) << 56,
        ]
    }

    #[inline(always)]
    fn hash(&self) -> u64 {
        fold(self[0] ^ KEYS[0], self[1] ^ KEYS[1])
    }
}

impl Packed for Wide {
    const LONGEST: usize = 31;

    #[inline(always)]
    fn pack(piece: &[u8]) -> Self {
        let n = piece.len();
        let length = (n as u64) << 56;
        let (first, second) = (word(&piece[..8]), word(&piece[8..16]));
        if n < 24 {
            [first, second, tail(&piece[16..]), length]
        } else {
            [
                first,
                second,
                word(&piece[16..24]),
                tail(&piece[24..]) | length,
            ]
        }
    }

    #[inline(always)]
    fn hash(&self) -> u64 {
        fold(self[0] ^ KEYS[0], self[1] ^ KEYS[1]) ^ fold(self[2] ^ KEYS[2], self[3] ^ KEYS[3])
    }
}

/// A hash of a piece of 16 bytes or more.
#[inline]
pub fn hash_long(piece: &[u8]) -> u64 {
    let mut sum = piece.len() as u64;
    let mut rest = piece;
    while rest.len() > 16 {
        sum = fold(
            word(&rest[..8]) ^ KEYS[0] ^ sum,
            word(&rest[8..16]) ^ KEYS[1],
        );
        rest = &rest[16..];
    }
    let end = &piece[piece.len() - 16..];
    fold(word(&end[..8]) ^ KEYS[2] ^ sum, word(&end[8..]) ^ KEYS[3])
}

/// Ask the processor to bring a value near.
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

/// An open-addressing table from packed pieces to values.
pub struct PackedTable<K, V> {
    slots: Vec<(K, V)>,
    filled: usize,
    most: usize,
}

impl<K: Packed, V: Copy + Default> PackedTable<K, V> {
    /// A table of at most `most` slots, a power of two.
    pub fn new(most: usize) -> Self {
        Self {
            slots: vec![Default::default(); most.min(1 << 10)],
            filled: 0,
            most,
        }
    }

    /// Number of pieces.
    pub fn len(&self) -> usize {
        self.filled
    }

    pub fn is_empty(&self) -> bool {
        self.filled == 0
    }

    /// Bring near the slot where a key of this hash would be.
    #[inline(always)]
    pub fn prefetch(&self, hash: u64) {
        prefetch(&self.slots[hash as usize & (self.slots.len() - 1)]);
    }

    /// Where the key is, or where it would be put.
    #[inline(always)]
    pub fn find(&self, key: K) -> Result<usize, usize> {
        self.find_hashed(key, key.hash())
    }

    /// The same for a key whose hash is known.
    #[inline(always)]
    pub fn find_hashed(&self, key: K, hash: u64) -> Result<usize, usize> {
        let mask = self.slots.len() - 1;
        let mut at = hash as usize & mask;
        loop {
            let other = self.slots[at].0;
            if other == key {
                return Ok(at);
            }
            if other == K::default() {
                return Err(at);
            }
            at = (at + 1) & mask;
        }
    }

    #[inline]
    pub fn value(&self, at: usize) -> &V {
        &self.slots[at].1
    }

    #[inline]
    pub fn value_mut(&mut self, at: usize) -> &mut V {
        &mut self.slots[at].1
    }

    /// Put in a key; the table grows, or at its largest is emptied, when it is full.
    pub fn put(&mut self, key: K, value: V) {
        if self.filled * 2 >= self.slots.len() {
            self.make_room();
        }
        match self.find(key) {
            Ok(at) => self.slots[at].1 = value,
            Err(at) => {
                self.slots[at] = (key, value);
                self.filled += 1;
            }
        }
    }

    fn make_room(&mut self) {
        if self.slots.len() >= self.most {
            self.slots.fill(Default::default());
            self.filled = 0;
            return;
        }
        let size = self.slots.len() * 4;
        let old = std::mem::replace(&mut self.slots, vec![Default::default(); size]);
        for (key, value) in old.into_iter().filter(|slot| slot.0 != K::default()) {
            let at = self.find(key).unwrap_or_else(|at| at);
            self.slots[at] = (key, value);
        }
    }

    /// Every key with its value.
    pub fn iter(&self) -> impl Iterator<Item = &(K, V)> {
        self.slots.iter().filter(|slot| slot.0 != K::default())
    }

    /// Number of slots.
    pub fn slots(&self) -> usize {
        self.slots.len()
    }
}

/// Write the bytes of a packed piece into `out`, and how many they are.
pub fn unpack(words: &[u64], out: &mut [u8; 32]) -> usize {
    for (part, word) in out.chunks_exact_mut(8).zip(words) {
        part.copy_from_slice(&word.to_le_bytes());
    }
    let last = words.len() * 8 - 1;
    let length = out[last] as usize;
    out[last] = 0;
    length
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn packed_pieces_are_distinct_and_come_back() {
        let mut seen = HashSet::new();
        for n in 1..=31usize {
            for changed in 0..n {
                for byte in [0u8, 1] {
                    let mut piece = vec![5u8; n];
                    piece[changed] = byte;
                    let packed = match n {
                        ..=Tiny::LONGEST => Tiny::pack(&piece).to_vec(),
                        8..=Narrow::LONGEST => Narrow::pack(&piece).to_vec(),
                        _ => Wide::pack(&piece).to_vec(),
                    };
                    let mut out = [0; 32];
                    assert_eq!(unpack(&packed, &mut out), n);
                    assert_eq!(out[..n], piece);
                    assert!(seen.insert(packed), "{piece:?}");
                }
            }
        }
    }
}
