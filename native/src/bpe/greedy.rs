//! Merge one piece without its merges: the longest token first, taken back where merging would have cut otherwise.
//!
//! A sequence of tokens is what merging gives exactly when every two neighbours are what merging gives for their joined
//! bytes; and two tokens are, when on undoing their merges from the latest to the earliest no pair across the border
//! would have been merged before (van Antwerpen and Neubeck, "So many tokens, so little time", 2024). So one walks along
//! a trie of the tokens, takes the longest token that goes with the one before, and steps back when there is none; a
//! place from which there is no way on is never tried again. A piece costs about as many steps as it has tokens, where
//! merging costs as many as it has bytes.
//!
//! Tokens are numbered by the order of their making: the bytes first. That needs merges each of which makes a new token
//! out of older ones, and tokens that their own merges make; other lists are merged by `piece`.

use crate::bpe::ranks::{NONE, Ranks};
use crate::bpe::trie::{Longest, Trie};

/// Looks at bytes and pairs, for each byte of a piece, after which merging is surely not slower.
const PATIENCE: usize = 24;

/// What a walk wants to know of a token, in one read.
#[derive(Clone, Copy)]
struct Token {
    /// The two tokens that it is made of; a byte is made of itself
    left: u32,
    right: u32,
    /// Longest token that it begins with, NONE for bytes
    shorter: u32,
    id: u32,
}

/// The tables.
pub struct Greedy {
    trie: Trie,
    tokens: Vec<Token>,
    lengths: Vec<u32>,
    pairs: Pairs,
}

/// Reusable memory of one thread.
#[derive(Default)]
pub struct Trail {
    tokens: Vec<u32>,
    /// A bit a place: whether it leads nowhere
    closed: Vec<u64>,
}

impl Greedy {
    /// From the id of each byte and (left, right, made) in rank order; None where merging can't be replaced.
    pub fn new(byte_ids: &[u32; 256], merges: &[(u32, u32, u32)]) -> Option<Self> {
        let (ids, halves) = number(byte_ids, merges)?;
        let mut strings: Vec<Vec<u8>> = (0..=255u8).map(|byte| vec![byte]).collect();
        for &(left, right) in &halves[256..] {
            strings.push([strings[left as usize].as_slice(), &strings[right as usize]].concat());
        }
        let trie = Trie::new(&strings)?;
        let shorter = |string: &Vec<u8>| match string.len() {
            1 => NONE,
            length => trie.longest(&string[..length - 1]).token,
        };
        let all = halves.iter().zip(&ids).zip(&strings);
        let tokens = all.map(|((&(left, right), &id), string)| Token {
            left,
            right,
            shorter: shorter(string),
            id,
        });
        Some(Self {
            tokens: tokens.collect(),
            lengths: strings.iter().map(|string| string.len() as u32).collect(),
            pairs: Pairs::new(&halves)?,
            trie,
        })
    }

    /// Append the ids of a piece; false, and nothing appended, where merging is the better way.
    pub fn encode(&self, piece: &[u8], trail: &mut Trail, out: &mut Vec<u32>) -> bool {
        let first = self.trie.longest(piece);
        if first.length == piece.len() {
            out.push(self.tokens[first.token as usize].id);
            return true;
        }
        if !self.walk(piece, first, trail) {
            return false;
        }
        out.extend(
            trail
                .tokens
                .iter()
                .map(|&token| self.tokens[token as usize].id),
        );
        true
    }

    fn walk(&self, piece: &[u8], first: Longest, trail: &mut Trail) -> bool {
        trail.begin(piece.len());
        let (mut at, mut token, mut length) = (0, first.token, first.length);
        let mut patience = PATIENCE * piece.len();
        loop {
            let end = at + length;
            if trail.is_open(end) && self.may_follow(trail.tokens.last(), token) {
                trail.tokens.push(token);
                if end == piece.len() {
                    return true;
                }
                at = end;
                let next = self.trie.longest(&piece[at..]);
                (token, length) = (next.token, next.length);
                patience = patience.saturating_sub(8 + next.looked);
            } else if self.tokens[token as usize].shorter != NONE {
                token = self.tokens[token as usize].shorter;
                length = self.lengths[token as usize] as usize;
                patience = patience.saturating_sub(8);
            } else {
                let Some(last) = trail.tokens.pop() else {
                    return false;
                };
                trail.close(at);
                (token, length) = (last, self.lengths[last as usize] as usize);
                at -= length;
            }
            if patience == 0 {
                return false;
            }
        }
    }

    /// Whether merging the bytes of two tokens gives these two.
    #[inline]
    fn may_follow(&self, last: Option<&u32>, mut right: u32) -> bool {
        let Some(&left) = last else { return true };
        // Only merges below this number come before the one that was undone last.
        let (mut left, mut limit) = (left, u32::MAX);
        loop {
            if self.pairs.find(left, right) < limit {
                return false;
            }
            if left > right && left >= 256 {
                limit = left;
                left = self.tokens[left as usize].right;
            } else if right >= 256 {
                // Of equal pairs the left one is merged first.
                limit = right + 1;
                right = self.tokens[right as usize].left;
            } else {
                return true;
            }
        }
    }
}

/// Numbers of tokens and their halves.
type Numbered = (Vec<u32>, Vec<(u32, u32)>);

/// Tokens by the order of their making: the id and the halves of each. None where the merges have another order.
fn number(byte_ids: &[u32; 256], merges: &[(u32, u32, u32)]) -> Option<Numbered> {
    let most = merges
        .iter()
        .map(|m| m.2)
        .chain(byte_ids.iter().copied())
        .max()?;
    let mut numbers = vec![NONE; most as usize + 1];
    let mut ids = byte_ids.to_vec();
    for (number, &id) in byte_ids.iter().enumerate() {
        numbers[id as usize] = number as u32;
    }
    let mut halves: Vec<(u32, u32)> = (0..256).map(|byte| (byte, byte)).collect();
    for &(left, right, made) in merges {
        let [left, right] =
            [left, right].map(|id| numbers.get(id as usize).copied().unwrap_or(NONE));
        if left == NONE || right == NONE || numbers[made as usize] != NONE {
            return None;
        }
        numbers[made as usize] = ids.len() as u32;
        ids.push(made);
        halves.push((left, right));
    }
    Some((ids, halves))
}

/// What each pair of numbers makes, behind a filter: most pairs that are asked for make nothing, and the filter,
/// sixteen bits a pair, stays in the nearest cache.
struct Pairs {
    ranks: Ranks,
    filter: Vec<u64>,
    shift: u32,
}

impl Pairs {
    fn new(halves: &[(u32, u32)]) -> Option<Self> {
        let made = halves.iter().enumerate().skip(256);
        let merges: Vec<_> = made
            .map(|(number, half)| (half.0, half.1, number as u32))
            .collect();
        let words = (merges.len() / 4).next_power_of_two().max(64);
        let mut pairs = Self {
            ranks: Ranks::new(std::array::from_fn(|byte| byte as u32), &merges).ok()?,
            filter: vec![0; words],
            shift: 64 - 6 - words.trailing_zeros(),
        };
        for &(left, right, _) in &merges {
            let (word, bit) = pairs.place(left, right);
            pairs.filter[word] |= 1 << bit;
        }
        Some(pairs)
    }

    #[inline(always)]
    fn place(&self, left: u32, right: u32) -> (usize, u32) {
        let key = (left as u64) << 32 | right as u64;
        let hash = key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> self.shift;
        ((hash >> 6) as usize, hash as u32 & 63)
    }

    /// The number of the token that a pair makes, NONE for none.
    #[inline(always)]
    fn find(&self, left: u32, right: u32) -> u32 {
        let (word, bit) = self.place(left, right);
        if self.filter[word] >> bit & 1 == 0 {
            return NONE;
        }
        match self.ranks.find(left, right) {
            NONE => NONE,
            rank => rank + 256,
        }
    }
}

impl Trail {
    fn begin(&mut self, length: usize) {
        self.tokens.clear();
        self.closed.clear();
        self.closed.resize(length / 64 + 1, 0);
    }

    #[inline]
    fn is_open(&self, at: usize) -> bool {
        self.closed[at / 64] & 1 << (at % 64) == 0
    }

    fn close(&mut self, at: usize) {
        self.closed[at / 64] |= 1 << (at % 64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bpe::piece::{Scratch, merge_long};
    use proptest::prelude::*;

    /// Merges over a small alphabet, each of which makes a new string that its own merges make.
    fn grown(choices: &[(usize, usize)]) -> Vec<(u32, u32, u32)> {
        let byte_ids: [u32; 256] = std::array::from_fn(|byte| byte as u32);
        let mut strings: Vec<Vec<u8>> = (0..=255u8).map(|byte| vec![byte]).collect();
        let mut merges = Vec::new();
        for &(left, right) in choices {
            let known: Vec<u32> = (0..3).chain(256..strings.len() as u32).collect();
            let (left, right) = (known[left % known.len()], known[right % known.len()]);
            let string = [
                strings[left as usize].clone(),
                strings[right as usize].clone(),
            ]
            .concat();
            if strings.contains(&string) || string.len() >= 40 {
                continue;
            }
            let mut tried = merges.clone();
            tried.push((left, right, strings.len() as u32));
            let ranks = Ranks::new(byte_ids, &tried).unwrap();
            let mut out = Vec::new();
            merge_long(&string, &ranks, &mut Scratch::default(), &mut out);
            if out == [strings.len() as u32] {
                merges = tried;
                strings.push(string);
            }
        }
        merges
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(150))]
        #[test]
        fn equals_merging(choices in prop::collection::vec((0usize..60, 0usize..60), 1..60), pieces in prop::collection::vec(prop::collection::vec(0u8..3, 1..150), 1..8)) {
            let byte_ids: [u32; 256] = std::array::from_fn(|byte| byte as u32);
            let merges = grown(&choices);
            let ranks = Ranks::new(byte_ids, &merges).unwrap();
            let greedy = Greedy::new(&byte_ids, &merges).unwrap();
            let mut trail = Trail::default();
            for piece in pieces {
                let (mut one, mut other) = (Vec::new(), Vec::new());
                merge_long(&piece, &ranks, &mut Scratch::default(), &mut one);
                if greedy.encode(&piece, &mut trail, &mut other) {
                    prop_assert_eq!(one, other);
                }
            }
        }
    }

    #[test]
    fn odd_merges_are_left_to_merging() {
        let byte_ids: [u32; 256] = std::array::from_fn(|byte| byte as u32);
        assert!(Greedy::new(&byte_ids, &[(256, 97, 257), (97, 98, 256)]).is_none());
        assert!(Greedy::new(&byte_ids, &[(97, 98, 256), (98, 97, 256)]).is_none());
        assert!(Greedy::new(&byte_ids, &[(97, 98, 256), (256, 97, 257)]).is_some());
    }
}
