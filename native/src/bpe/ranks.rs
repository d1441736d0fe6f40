//! Which pairs of ids merge, and in which order: a table of one word an entry.
//!
//! An entry packs (left, right, rank), 21 bits each, so eight share a cache line. Pairs of bytes, which every piece
//! asks for first, have a table of their own.

const BITS: u32 = 21;
const LIMIT: usize = 1 << BITS;
const EMPTY: u64 = u64::MAX;
const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;

/// A rank that no pair has.
pub const NONE: u32 = u32::MAX;

/// Ranks of pairs, and the id that each rank makes.
pub struct Ranks {
    slots: Vec<u64>,
    shift: u32,
    bytes: Vec<u32>,
    /// Id of each byte, and the id that each rank makes
    pub byte_ids: [u32; 256],
    pub made: Vec<u32>,
}

impl Ranks {
    /// From (left, right, made) in rank order; a pair that comes again keeps its first rank.
    pub fn new(byte_ids: [u32; 256], merges: &[(u32, u32, u32)]) -> Result<Self, String> {
        let largest = merges
            .iter()
            .map(|m| m.0.max(m.1).max(m.2))
            .max()
            .unwrap_or(0) as usize;
        if merges.len() >= LIMIT || largest >= LIMIT {
            return Err(format!("at most {LIMIT} ids and merges are supported"));
        }
        let size = (merges.len() * 2).next_power_of_two().max(64);
        let mut ranks = Self {
            slots: vec![EMPTY; size],
            shift: 64 - size.trailing_zeros(),
            bytes: Vec::new(),
            byte_ids,
            made: merges.iter().map(|m| m.2).collect(),
        };
        for (rank, &(left, right, _)) in merges.iter().enumerate() {
            ranks.insert(left, right, rank as u32);
        }
        ranks.bytes = (0..1usize << 16)
            .map(|pair| ranks.find(byte_ids[pair >> 8], byte_ids[pair & 255]))
            .collect();
        Ok(ranks)
    }

    fn insert(&mut self, left: u32, right: u32, rank: u32) {
        if self.find(left, right) != NONE {
            return;
        }
        let key = (left as u64) << BITS | right as u64;
        let mut at = (key.wrapping_mul(SPREAD) >> self.shift) as usize;
        while self.slots[at] != EMPTY {
            at = (at + 1) & (self.slots.len() - 1);
        }
        self.slots[at] = key << BITS | rank as u64;
    }

    /// The rank of a pair of ids, NONE if it does not merge.
    #[inline]
    pub fn find(&self, left: u32, right: u32) -> u32 {
        let key = (left as u64) << BITS | right as u64;
        let mut at = (key.wrapping_mul(SPREAD) >> self.shift) as usize;
        loop {
            let slot = self.slots[at];
            if slot >> BITS == key {
                return slot as u32 & (LIMIT as u32 - 1);
            }
            if slot == EMPTY {
                return NONE;
            }
            at = (at + 1) & (self.slots.len() - 1);
        }
    }

    /// The rank of a pair of bytes.
    #[inline]
    pub fn of_bytes(&self, left: u8, right: u8) -> u32 {
        self.bytes[(left as usize) << 8 | right as usize]
    }
}
