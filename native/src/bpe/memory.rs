//! What encoding threads keep between calls.
//!
//! Each part of a batch takes up what the same part of the last one met, so that text that comes again comes to those
//! who know it.

use std::sync::{Mutex, MutexGuard};

use crate::bpe::blocks::Ends;
use crate::bpe::cache::{Asked, Cache};
use crate::bpe::greedy::Trail;
use crate::bpe::piece::Scratch;

/// Most memories that are kept.
const KEPT: usize = 64;
/// How often a thread tries to get at what is kept before it goes on without.
const TRIES: usize = 64;

/// What one thread works with: the pieces it has met, and the memory of merging.
#[derive(Default)]
pub struct Memory {
    pub cache: Cache,
    pub scratch: Scratch,
    pub trail: Trail,
    pub ends: Ends,
    pub asked: Vec<Asked>,
    pub ids: Vec<u32>,
}

/// The memories that no thread has now, by the number of the part of a batch.
#[derive(Default)]
pub struct Memories(Mutex<Vec<Option<Memory>>>);

impl Memories {
    /// A thread that was forked away may hold the lock for ever, so it is tried for a while and not waited for.
    fn kept(&self) -> Option<MutexGuard<'_, Vec<Option<Memory>>>> {
        (0..TRIES).find_map(|number| {
            if number > 0 {
                std::thread::yield_now();
            }
            self.0.try_lock().ok()
        })
    }

    /// The memory of a part of a batch, or any that is free, or a new one.
    pub fn take(&self, part: usize) -> Memory {
        let taken = self.kept().and_then(|mut kept| {
            let own = kept.get_mut(part).and_then(Option::take);
            own.or_else(|| kept.iter_mut().rev().find_map(Option::take))
        });
        taken.unwrap_or_default()
    }

    /// Keep a memory in its place, or in one that is free.
    pub fn give(&self, part: usize, memory: Memory) {
        let Some(mut kept) = self.kept() else {
            return;
        };
        if kept.len() <= part {
            kept.resize_with(KEPT.min(part + 1), || None);
        }
        let own = kept.get(part).is_some_and(Option::is_none);
        let free = if own {
            Some(part)
        } else {
            kept.iter().position(Option::is_none)
        };
        match free {
            Some(place) => kept[place] = Some(memory),
            None if kept.len() < KEPT => kept.push(Some(memory)),
            None => {}
        }
    }
}
