//! The token strings of a training run, their lengths and their order.
//!
//! A token is a byte string; its id is the order of its first making (the 256 bytes come first, by value). Strings are
//! kept as ranks of the byte characters (see `alphabet`), so that comparing slices is comparing GPT-2 strings.

use std::cmp::Ordering;

use crate::bpe::alphabet::{BYTES, RANKS};

/// Token strings by id.
pub struct Tokens {
    ranks: Vec<u8>,
    ends: Vec<usize>,
    /// Length in bytes, beside `ends` because the merge loop reads nothing else
    pub lengths: Vec<u32>,
}

impl Tokens {
    /// The 256 bytes.
    pub fn bytes() -> Self {
        let mut tokens = Self {
            ranks: Vec::new(),
            ends: Vec::new(),
            lengths: Vec::new(),
        };
        for rank in RANKS {
            tokens.push(&[rank]);
        }
        tokens
    }

    pub fn len(&self) -> usize {
        self.ends.len()
    }

    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    fn string(&self, id: u32) -> &[u8] {
        let end = self.ends[id as usize];
        &self.ranks[end - self.lengths[id as usize] as usize..end]
    }

    /// First and last byte of a token.
    pub fn first(&self, id: u32) -> u8 {
        BYTES[self.string(id)[0] as usize]
    }

    pub fn last(&self, id: u32) -> u8 {
        let string = self.string(id);
        BYTES[string[string.len() - 1] as usize]
    }

    fn push(&mut self, string: &[u8]) -> u32 {
        let id = self.ends.len() as u32;
        self.ranks.extend_from_slice(string);
        self.ends.push(self.ranks.len());
        self.lengths.push(string.len() as u32);
        id
    }

    /// Make the token of `left` and `right`.
    pub fn join(&mut self, left: u32, right: u32) -> u32 {
        let string = [self.string(left), self.string(right)].concat();
        self.push(&string)
    }

    /// The order of two pairs as (left, right) tuples of strings.
    pub fn compare(&self, one: (u32, u32), other: (u32, u32)) -> Ordering {
        let left = |pair: (u32, u32)| self.string(pair.0);
        left(one)
            .cmp(left(other))
            .then_with(|| self.string(one.1).cmp(self.string(other.1)))
    }
}
