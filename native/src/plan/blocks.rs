//! The order `blocks`: groups of neighbouring windows in a keyed order, and a keyed order inside each group, so that a
//! remote store is read group by group. O(generations) time and memory, whatever the number of groups.
//!
//! A group is `group` windows that follow each other in one generation; the last group of a generation may have fewer
//! (or none). Where windows are cut every `seq_len` tokens and `seq_len` divides the group's tokens, a group holds the
//! same tokens at every `seq_len`, so that a pass goes on at its next group when `seq_len` changes.

use crate::perm::Permutation;
use crate::rng::{self, Key};

/// How a domain's windows lie in groups.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Blocks {
    pub seed: u64,
    pub name: String,
    /// Windows of a whole group.
    pub group: u64,
    /// Whether a pass goes on in this view after another `seq_len`.
    pub goes_on: bool,
    pub generations: Vec<Generation>,
}

/// One generation in a view.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Generation {
    pub windows: u64,
    pub real: u64,
    /// Groups that its tokens make: all of `group` windows but the last.
    pub groups: u64,
}

/// A group with fewer windows than the others.
#[derive(Clone, Copy, Debug)]
struct Short {
    rank: u64,
    missing: u64,
}

/// The order of one pass.
#[derive(Clone, Debug)]
pub struct Layout<'a> {
    blocks: &'a Blocks,
    generations: &'a [Generation],
    inside: Key,
    order: Option<Permutation>,
    /// By rank.
    shorts: Vec<Short>,
}

impl Blocks {
    /// The order of a pass over the first `generations` generations.
    pub fn layout(&self, pass: u64, generations: u64) -> Layout<'_> {
        let groups = self.groups(generations);
        let generations = &self.generations[..generations as usize];
        let order = (groups > 0)
            .then(|| Permutation::new(rng::key(self.seed, "groups", pass, &self.name), groups));
        let mut layout = Layout {
            blocks: self,
            generations,
            inside: rng::key(self.seed, "block", pass, &self.name),
            order,
            shorts: Vec::new(),
        };
        layout.shorts = layout.find_shorts();
        layout
    }

    /// Groups of the first `generations` generations.
    pub fn groups(&self, generations: u64) -> u64 {
        let used = &self.generations[..generations as usize];
        used.iter().map(|one| one.groups).sum()
    }

    /// (windows, real tokens) of the first `generations` generations.
    pub fn size(&self, generations: u64) -> (u64, u64) {
        let used = &self.generations[..generations as usize];
        used.iter().fold((0, 0), |(windows, real), one| {
            (windows + one.windows, real + one.real)
        })
    }
}

impl Layout<'_> {
    fn find_shorts(&self) -> Vec<Short> {
        let mut shorts = Vec::new();
        let mut groups = 0;
        for generation in self.generations {
            groups += generation.groups;
            let missing = generation.groups * self.blocks.group - generation.windows;
            if let (Some(order), true) = (&self.order, missing > 0) {
                shorts.push(Short {
                    rank: order.inverse(groups - 1),
                    missing,
                });
            }
        }
        shorts.sort_unstable_by_key(|short| short.rank);
        shorts
    }

    /// Windows of the groups before that of `rank`.
    pub fn begins(&self, rank: u64) -> u64 {
        let before = self.shorts.iter().filter(|short| short.rank < rank);
        rank * self.blocks.group - before.map(|short| short.missing).sum::<u64>()
    }

    /// Rank of the group that holds a place of the pass, and the place inside the group.
    fn group_at(&self, index: u64) -> (u64, u64) {
        let mut missing = 0;
        for short in &self.shorts {
            let begin = short.rank * self.blocks.group - missing;
            if index < begin {
                break;
            }
            if index < begin + self.blocks.group - short.missing {
                return (short.rank, index - begin);
            }
            missing += short.missing;
        }
        (
            (index + missing) / self.blocks.group,
            (index + missing) % self.blocks.group,
        )
    }

    /// Rank of the first group of which nothing is dealt when `index` windows of the pass are.
    pub fn next_rank(&self, index: u64) -> u64 {
        if index == 0 {
            return 0;
        }
        self.group_at(index - 1).0 + 1
    }

    /// The window at a place of the pass.
    pub fn window(&self, index: u64) -> u64 {
        let (rank, place) = self.group_at(index);
        let mut group = self.order.as_ref().map_or(0, |order| order.at(rank));
        let id = group;
        let mut first = 0;
        for generation in self.generations {
            if group < generation.groups {
                let begin = group * self.blocks.group;
                let size = self.blocks.group.min(generation.windows - begin);
                let inside = Permutation::new(rng::threefry(self.inside, [id, 0]), size);
                return first + begin + inside.at(place);
            }
            group -= generation.groups;
            first += generation.windows;
        }
        unreachable!("a rank names a group of some generation")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn every_window_once_and_group_by_group(
            group in 1_u64..9,
            sizes in prop::collection::vec((1_u64..5, 0_u64..9), 1..4),
            pass in 0_u64..3,
        ) {
            let generations: Vec<Generation> = sizes
                .iter()
                .map(|&(groups, rest)| {
                    let windows = (groups - 1) * group + rest.min(group);
                    Generation { windows, real: windows, groups }
                })
                .collect();
            let blocks = Blocks { seed: 1, name: "a".into(), group, goes_on: true, generations };
            let count = blocks.generations.len() as u64;
            let (total, _) = blocks.size(count);
            let layout = blocks.layout(pass, count);
            let windows: Vec<u64> = (0..total).map(|index| layout.window(index)).collect();
            let mut sorted = windows.clone();
            sorted.sort_unstable();
            prop_assert_eq!(sorted, (0..total).collect::<Vec<u64>>());
            let ranks: Vec<u64> = (0..total).map(|index| layout.group_at(index).0).collect();
            prop_assert!(ranks.is_sorted());
            for index in 0..total {
                let (rank, place) = layout.group_at(index);
                prop_assert_eq!(layout.begins(rank) + place, index);
                prop_assert_eq!(layout.next_rank(index + 1), rank + 1);
            }
        }
    }
}
