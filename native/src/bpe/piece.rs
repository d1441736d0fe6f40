//! Merge one piece: the pair of lowest rank first, the leftmost of equal ones.
//!
//! Short pieces are scanned again after each merge; long ones use a heap, so that a run of a million equal characters
//! costs n log n.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use rustc_hash::FxHashMap;

/// Pieces longer than this are merged with a heap.
const SHORT: usize = 96;
const NONE: u32 = u32::MAX;

/// Pairs of ids to (rank, id of the whole).
pub type Ranks = FxHashMap<u64, (u32, u32)>;

fn find(ranks: &Ranks, left: u32, right: u32) -> (u32, u32) {
    ranks
        .get(&((left as u64) << 32 | right as u64))
        .copied()
        .unwrap_or((NONE, NONE))
}

/// Reusable memory of the merges of one thread.
#[derive(Default)]
pub struct Scratch {
    /// id, and (rank, whole) of the pair with the next one
    parts: Vec<(u32, (u32, u32))>,
    heap: BinaryHeap<Reverse<(u32, u32, u32)>>,
    links: Vec<(u32, u32)>,
}

/// Append the ids of a piece, given as the ids of its bytes.
pub fn merge(
    ids: impl Iterator<Item = u32>,
    ranks: &Ranks,
    scratch: &mut Scratch,
    out: &mut Vec<u32>,
) {
    let parts = &mut scratch.parts;
    parts.clear();
    parts.extend(ids.map(|id| (id, (NONE, NONE))));
    for at in 1..parts.len() {
        parts[at - 1].1 = find(ranks, parts[at - 1].0, parts[at].0);
    }
    if parts.len() <= SHORT {
        merge_short(parts, ranks);
        out.extend(parts.iter().map(|part| part.0));
    } else {
        merge_long(scratch, ranks, out);
    }
}

fn merge_short(parts: &mut Vec<(u32, (u32, u32))>, ranks: &Ranks) {
    loop {
        let mut best = (NONE, 0);
        for (at, part) in parts.iter().enumerate() {
            if part.1.0 < best.0 {
                best = (part.1.0, at);
            }
        }
        if best.0 == NONE {
            return;
        }
        let at = best.1;
        let id = parts[at].1.1;
        parts.remove(at + 1);
        parts[at] = (
            id,
            parts
                .get(at + 1)
                .map_or((NONE, NONE), |next| find(ranks, id, next.0)),
        );
        if at > 0 {
            parts[at - 1].1 = find(ranks, parts[at - 1].0, id);
        }
    }
}

/// Parts stay where they are, linked to their neighbours; a heap holds the pairs by (rank, place).
fn merge_long(scratch: &mut Scratch, ranks: &Ranks, out: &mut Vec<u32>) {
    let Scratch { parts, heap, links } = scratch;
    let end = parts.len() as u32;
    heap.clear();
    links.clear();
    links.extend((0..end).map(|at| (at.wrapping_sub(1), at + 1)));
    let entries = parts
        .iter()
        .enumerate()
        .filter(|(_, part)| part.1.0 != NONE);
    heap.extend(entries.map(|(at, part)| Reverse((part.1.0, at as u32, part.1.1))));
    while let Some(Reverse((rank, at, id))) = heap.pop() {
        // An entry holds while its place still has that pair; a place that was merged away has rank NONE.
        if parts[at as usize].1 != (rank, id) {
            continue;
        }
        let (before, gone) = links[at as usize];
        let after = links[gone as usize].1;
        parts[gone as usize] = (NONE, (NONE, NONE));
        links[at as usize].1 = after;
        let mut pair = (NONE, NONE);
        if after < end {
            links[after as usize].0 = at;
            pair = find(ranks, id, parts[after as usize].0);
        }
        parts[at as usize] = (id, pair);
        if pair.0 != NONE {
            heap.push(Reverse((pair.0, at, pair.1)));
        }
        if before < end {
            let pair = find(ranks, parts[before as usize].0, id);
            parts[before as usize].1 = pair;
            if pair.0 != NONE {
                heap.push(Reverse((pair.0, before, pair.1)));
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
        fn heap_equals_scan(pairs in prop::collection::vec((0u32..8, 0u32..8), 1..24), ids in prop::collection::vec(0u32..4, 1..90)) {
            let ranks: Ranks = pairs.iter().enumerate().rev().map(|(rank, &(left, right))| {
                ((left as u64) << 32 | right as u64, (rank as u32, 4 + rank as u32 % 20))
            }).collect();
            let (mut scratch, mut short, mut long) = (Scratch::default(), Vec::new(), Vec::new());
            merge(ids.iter().copied(), &ranks, &mut scratch, &mut short);
            scratch.parts = ids.iter().map(|&id| (id, (NONE, NONE))).collect();
            for at in 1..ids.len() {
                scratch.parts[at - 1].1 = find(&ranks, ids[at - 1], ids[at]);
            }
            merge_long(&mut scratch, &ranks, &mut long);
            prop_assert_eq!(short, long);
        }
    }
}
