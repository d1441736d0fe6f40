//! Merge one piece: the pair of lowest rank first, the leftmost of equal ones.
//!
//! A short piece is one register of living places and one array of keys (rank, place), whose smallest is the next
//! merge. Long ones use a heap, so that a run of a million equal characters costs n log n.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::bpe::ranks::{NONE, Ranks};

/// Places that one register holds; longer pieces are merged with a heap.
const SHORT: usize = 64;
const PLACE_BITS: u32 = 6;
const NEVER: i32 = i32::MAX;

/// Reusable memory of the merges of one thread.
#[derive(Default)]
pub struct Scratch {
    /// id, and the rank of its pair with the next one
    parts: Vec<(u32, u32)>,
    heap: BinaryHeap<Reverse<(u32, u32)>>,
    links: Vec<(u32, u32)>,
}

/// Append the ids of a piece.
pub fn merge(piece: &[u8], ranks: &Ranks, scratch: &mut Scratch, out: &mut Vec<u32>) {
    if piece.len() <= SHORT {
        merge_short(piece, ranks, out)
    } else {
        merge_long(piece, ranks, scratch, out)
    }
}

/// (rank, place) as one number that compares as the tuple.
#[inline]
fn key(rank: u32, place: usize) -> i32 {
    if rank == NONE {
        NEVER
    } else {
        (rank << PLACE_BITS) as i32 | place as i32
    }
}

fn merge_short(piece: &[u8], ranks: &Ranks, out: &mut Vec<u32>) {
    let (mut ids, mut keys) = ([0u32; SHORT], [NEVER; SHORT]);
    for (id, &byte) in ids.iter_mut().zip(piece) {
        *id = ranks.byte_ids[byte as usize];
    }
    for (place, pair) in piece.windows(2).enumerate() {
        keys[place] = key(ranks.of_bytes(pair[0], pair[1]), place);
    }
    let mut alive = if piece.len() == SHORT {
        u64::MAX
    } else {
        (1u64 << piece.len()) - 1
    };
    let used = piece.len().next_multiple_of(8);
    loop {
        let smallest = keys[..used].iter().copied().fold(NEVER, i32::min);
        if smallest == NEVER {
            break;
        }
        let place = smallest as usize & (SHORT - 1);
        let id = ranks.made[(smallest >> PLACE_BITS) as usize];
        // The places above this one: the right part, which dies, and what follows it.
        let above = alive & !(u64::MAX >> (63 - place));
        let gone = above.trailing_zeros() as usize & (SHORT - 1);
        let after = above & above.wrapping_sub(1);
        alive &= !(1 << gone);
        keys[gone] = NEVER;
        ids[place] = id;
        let next = after.trailing_zeros() as usize;
        keys[place] = if next < SHORT {
            key(ranks.find(id, ids[next]), place)
        } else {
            NEVER
        };
        let below = alive & ((1 << place) - 1);
        if below != 0 {
            let before = 63 - below.leading_zeros() as usize;
            keys[before] = key(ranks.find(ids[before], id), before);
        }
    }
    while alive != 0 {
        out.push(ids[alive.trailing_zeros() as usize & (SHORT - 1)]);
        alive &= alive - 1;
    }
}

/// Parts stay where they are, linked to their neighbours; a heap holds the pairs by (rank, place).
pub(crate) fn merge_long(piece: &[u8], ranks: &Ranks, scratch: &mut Scratch, out: &mut Vec<u32>) {
    let Scratch { parts, heap, links } = scratch;
    let end = piece.len() as u32;
    parts.clear();
    parts.extend(
        piece
            .iter()
            .map(|&byte| (ranks.byte_ids[byte as usize], NONE)),
    );
    for (part, pair) in parts.iter_mut().zip(piece.windows(2)) {
        part.1 = ranks.of_bytes(pair[0], pair[1]);
    }
    links.clear();
    links.extend((0..end).map(|at| (at.wrapping_sub(1), at + 1)));
    heap.clear();
    heap.extend(
        (0..end)
            .map(|at| Reverse((parts[at as usize].1, at)))
            .filter(|entry| entry.0.0 != NONE),
    );
    while let Some(Reverse((rank, at))) = heap.pop() {
        // An entry holds while its place still has that pair; a place that was merged away has rank NONE.
        if parts[at as usize].1 != rank {
            continue;
        }
        let id = ranks.made[rank as usize];
        let (before, gone) = links[at as usize];
        let after = links[gone as usize].1;
        parts[gone as usize] = (NONE, NONE);
        links[at as usize].1 = after;
        let mut pair = NONE;
        if after < end {
            links[after as usize].0 = at;
            pair = ranks.find(id, parts[after as usize].0);
        }
        parts[at as usize] = (id, pair);
        if pair != NONE {
            heap.push(Reverse((pair, at)));
        }
        if before < end {
            let pair = ranks.find(parts[before as usize].0, id);
            parts[before as usize].1 = pair;
            if pair != NONE {
                heap.push(Reverse((pair, before)));
            }
        }
    }
    out.extend(parts.iter().map(|part| part.0).filter(|&id| id != NONE));
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn heap_equals_register(pairs in prop::collection::vec((0u32..8, 0u32..8), 1..24), piece in prop::collection::vec(0u8..4, 1..=64)) {
            let byte_ids: [u32; 256] = std::array::from_fn(|byte| byte as u32 % 4);
            let merges: Vec<(u32, u32, u32)> =
                pairs.iter().enumerate().map(|(rank, &(left, right))| (left, right, 4 + rank as u32 % 20)).collect();
            let ranks = Ranks::new(byte_ids, &merges).unwrap();
            let (mut short, mut long) = (Vec::new(), Vec::new());
            merge_short(&piece, &ranks, &mut short);
            merge_long(&piece, &ranks, &mut Scratch::default(), &mut long);
            prop_assert_eq!(short, long);
        }
    }
}
