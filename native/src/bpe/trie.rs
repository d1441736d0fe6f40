//! The longest token that a text begins with.
//!
//! A double array: a node is a place in an array of 32-bit words, and its child by a byte lies at its base with the
//! byte crossed in (xor). No two nodes have the same base, so a child is known by its byte alone. A step is one read,
//! and all the nodes of 32,000 tokens lie in some 300 KB, which is what makes a walk fast: it waits for every read.

use std::collections::VecDeque;

const BYTE: u32 = 0xff;
const USED: u32 = 1 << 8;
const TOKEN: u32 = 1 << 9;
const BASE_SHIFT: u32 = 10;
const BLOCK: usize = 256;
/// Most words that a base can point into.
const MOST: usize = 1 << (32 - BASE_SHIFT);
/// Blocks, the newest ones, in which free places are looked for.
const OPEN: usize = 4;

/// The trie of token strings, among which are the 256 bytes.
pub struct Trie {
    words: Vec<u32>,
    /// Number of the token that ends in a node
    tokens: Vec<u32>,
    root: u32,
}

impl Trie {
    /// From distinct strings by number; None if they are too many.
    pub fn new(strings: &[Vec<u8>]) -> Option<Self> {
        let mut order: Vec<u32> = (0..strings.len() as u32).collect();
        order.sort_unstable_by(|&a, &b| strings[a as usize].cmp(&strings[b as usize]));
        let mut builder = Builder::default();
        // The node of the root stands for itself; its word keeps its base.
        let mut todo = vec![(None, 0usize, 0..order.len())];
        let mut root = 0;
        while let Some((node, depth, mut range)) = todo.pop() {
            if let Some(node) = node
                && strings[order[range.start] as usize].len() == depth
            {
                builder.end(node, order[range.start]);
                range.start += 1;
            }
            let children = children(strings, &order[range.clone()], depth);
            if children.is_empty() {
                continue;
            }
            let base = builder.place(children.iter().map(|child| child.0))?;
            match node {
                Some(node) => builder.words[node] |= (base as u32) << BASE_SHIFT,
                None => root = base as u32,
            }
            for (byte, part) in children {
                let part = range.start + part.start..range.start + part.end;
                todo.push((Some(base ^ byte as usize), depth + 1, part));
            }
        }
        Some(Self {
            words: builder.words,
            tokens: builder.tokens,
            root,
        })
    }

    /// The longest token that a text, which is not empty, begins with.
    #[inline]
    pub fn longest(&self, text: &[u8]) -> Longest {
        let (mut base, mut best, mut length, mut looked) = (self.root as usize, 0, 0, 0);
        for &byte in text {
            looked += 1;
            let node = base ^ byte as usize;
            let word = self.words[node];
            if word & (USED | BYTE) != USED | byte as u32 {
                break;
            }
            (best, length) = if word & TOKEN != 0 {
                (node, looked)
            } else {
                (best, length)
            };
            base = (word >> BASE_SHIFT) as usize;
        }
        Longest {
            token: self.tokens[best],
            length,
            looked,
        }
    }
}

/// A token at the beginning of a text, and how many bytes were looked at.
#[derive(Clone, Copy, Debug)]
pub struct Longest {
    pub token: u32,
    pub length: usize,
    pub looked: usize,
}

/// The bytes that follow at `depth` in sorted strings, each with its range.
fn children(strings: &[Vec<u8>], order: &[u32], depth: usize) -> Vec<(u8, std::ops::Range<usize>)> {
    let mut found: Vec<(u8, std::ops::Range<usize>)> = Vec::new();
    for (at, &token) in order.iter().enumerate() {
        let byte = strings[token as usize][depth];
        match found.last_mut() {
            Some((last, range)) if *last == byte => range.end = at + 1,
            _ => found.push((byte, at..at + 1)),
        }
    }
    found
}

/// The array as it grows, with what is free in its newest blocks.
#[derive(Default)]
struct Builder {
    words: Vec<u32>,
    tokens: Vec<u32>,
    open: VecDeque<Open>,
}

/// A block: which places are used, and which are the base of a node.
struct Open {
    start: usize,
    used: [bool; BLOCK],
    bases: [bool; BLOCK],
    free: usize,
}

impl Builder {
    fn end(&mut self, node: usize, token: u32) {
        self.words[node] |= TOKEN;
        self.tokens[node] = token;
    }

    /// A base at which all these bytes are free, which are then used.
    fn place(&mut self, bytes: impl Iterator<Item = u8> + Clone) -> Option<usize> {
        let count = bytes.clone().count();
        let fits = |open: &Open| {
            let free = |base: usize| bytes.clone().all(|byte| !open.used[base ^ byte as usize]);
            (0..BLOCK).find(|&base| !open.bases[base] && free(base))
        };
        let open = self
            .open
            .iter()
            .enumerate()
            .filter(|(_, open)| open.free >= count);
        let mut found = open.filter_map(|(at, open)| Some((at, fits(open)?)));
        let (at, base) = match found.next() {
            Some(found) => found,
            None => {
                self.grow()?;
                (self.open.len() - 1, usize::from(self.words.len() == BLOCK))
            }
        };
        let open = &mut self.open[at];
        open.bases[base] = true;
        open.free -= count;
        for byte in bytes {
            let place = base ^ byte as usize;
            open.used[place] = true;
            self.words[open.start + place] = USED | byte as u32;
        }
        Some(open.start + base)
    }

    fn grow(&mut self) -> Option<()> {
        let start = self.words.len();
        if start + BLOCK > MOST {
            return None;
        }
        self.words.resize(start + BLOCK, 0);
        self.tokens.resize(start + BLOCK, 0);
        if self.open.len() == OPEN {
            self.open.pop_front();
        }
        let mut open = Open {
            start,
            used: [false; BLOCK],
            bases: [false; BLOCK],
            free: BLOCK,
        };
        // Base 0 is that of the nodes without children: no place p has the byte p.
        open.bases[0] = start == 0;
        self.open.push_back(open);
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn finds_the_longest(
            words in prop::collection::btree_set(prop::collection::vec(0u8..4, 1..8), 0..60),
            text in prop::collection::vec(0u8..4, 1..12),
        ) {
            let mut strings: BTreeSet<Vec<u8>> = words;
            strings.extend((0..=255u8).map(|byte| vec![byte]));
            let strings: Vec<Vec<u8>> = strings.into_iter().rev().collect();
            let trie = Trie::new(&strings).unwrap();
            let expected = (1..=text.len()).rev().find_map(|end| strings.iter().position(|s| s == &text[..end]));
            prop_assert_eq!(trie.longest(&text).token as usize, expected.unwrap());
        }
    }
}
