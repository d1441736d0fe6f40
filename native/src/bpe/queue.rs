//! Which pair is best: a lazy queue for keys that only fall.
//!
//! An entry's key is the pair's key when it was put in, so it is never too low; the head is compared with the pair's
//! present key before it is given out, and goes back with that one if it has fallen. Entries wait, unsorted, in
//! levels of the power of two of their key; only the level of the head is a heap, so the many rare pairs cost nothing
//! until the rare ones are all that is left.

use std::cmp::Ordering;

/// An ordered key with a level: keys of a higher level are larger.
pub trait Key: Copy + Ord + Default + Send + Sync {
    fn level(self) -> usize;
}

impl Key for u64 {
    fn level(self) -> usize {
        (u64::BITS - self.leading_zeros()) as usize
    }
}

impl Key for u128 {
    fn level(self) -> usize {
        (u128::BITS - self.leading_zeros()) as usize
    }
}

/// A queue of pair numbers.
pub struct Queue<K> {
    heap: Vec<(K, u32)>,
    /// Level of the heap; entries of this level and above are in it
    floor: usize,
    levels: Vec<Vec<(K, u32)>>,
}

impl<K: Key> Default for Queue<K> {
    fn default() -> Self {
        Self {
            heap: Vec::new(),
            floor: usize::MAX,
            levels: Vec::new(),
        }
    }
}

impl<K: Key> Queue<K> {
    /// Put a pair in; `order` breaks ties (the larger comes first).
    #[inline]
    pub fn push(&mut self, key: K, pair: u32, order: impl Fn(u32, u32) -> Ordering) {
        let level = key.level();
        if level >= self.floor {
            self.heap.push((key, pair));
            let last = self.heap.len() - 1;
            self.rise(last, &order);
        } else {
            if level >= self.levels.len() {
                self.levels.resize_with(level + 1, Vec::new);
            }
            self.levels[level].push((key, pair));
        }
    }

    /// The best pair by its present key, which stays in the queue; None when all keys are zero.
    pub fn best(
        &mut self,
        now: impl Fn(u32) -> K,
        order: impl Fn(u32, u32) -> Ordering,
    ) -> Option<(K, u32)> {
        loop {
            while self.heap.is_empty() {
                if !self.open_level(&now, &order) {
                    return None;
                }
            }
            let (key, pair) = self.heap[0];
            let present = now(pair);
            if present == key {
                return Some((key, pair));
            }
            if present > K::default() && present.level() >= self.floor {
                self.heap[0].0 = present;
            } else {
                let last = self.heap.pop().unwrap_or_default();
                if !self.heap.is_empty() {
                    self.heap[0] = last;
                }
                if present > K::default() {
                    self.levels[present.level()].push((present, pair));
                }
            }
            self.sink(0, &order);
        }
    }

    /// Make a heap of the highest level that has entries; false when there is none.
    fn open_level(
        &mut self,
        now: &impl Fn(u32) -> K,
        order: &impl Fn(u32, u32) -> Ordering,
    ) -> bool {
        let Some(level) = self.levels.iter().rposition(|entries| !entries.is_empty()) else {
            return false;
        };
        let entries = std::mem::take(&mut self.levels[level]);
        self.floor = level;
        for (_, pair) in entries {
            let present = now(pair);
            match present.level() {
                0 => {}
                l if l >= level => self.heap.push((present, pair)),
                l => self.levels[l].push((present, pair)),
            }
        }
        for at in (0..self.heap.len() / 2).rev() {
            self.sink(at, order);
        }
        true
    }

    fn before(&self, a: usize, b: usize, order: &impl Fn(u32, u32) -> Ordering) -> bool {
        let (one, other) = (self.heap[a], self.heap[b]);
        one.0.cmp(&other.0).then_with(|| order(one.1, other.1)) == Ordering::Greater
    }

    fn rise(&mut self, mut at: usize, order: &impl Fn(u32, u32) -> Ordering) {
        while at > 0 && self.before(at, (at - 1) / 2, order) {
            self.heap.swap(at, (at - 1) / 2);
            at = (at - 1) / 2;
        }
    }

    fn sink(&mut self, mut at: usize, order: &impl Fn(u32, u32) -> Ordering) {
        loop {
            let mut best = at;
            for child in [2 * at + 1, 2 * at + 2] {
                if child < self.heap.len() && self.before(child, best, order) {
                    best = child;
                }
            }
            if best == at {
                return;
            }
            self.heap.swap(at, best);
            at = best;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn gives_the_largest_present_key(start in prop::collection::vec(0u64..50, 1..60), falls in prop::collection::vec((0usize..60, 0u64..30), 0..80)) {
            let mut keys = start;
            let mut queue = Queue::default();
            for (pair, &key) in keys.iter().enumerate() {
                queue.push(key, pair as u32, |a, b| a.cmp(&b));
            }
            for (pair, fall) in falls {
                let expected = keys.iter().copied().zip(0u32..).max().filter(|best| best.0 > 0);
                prop_assert_eq!(queue.best(|p| keys[p as usize], |a, b| a.cmp(&b)), expected);
                let pair = pair % keys.len();
                keys[pair] = keys[pair].saturating_sub(fall);
            }
        }
    }
}
