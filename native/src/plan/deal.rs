//! The slots of a step: whose, and which window.

use super::{Domain, Ended, Order, Piece, View};
use crate::perm::Permutation;
use crate::rng;

/// A step's slots, in slot order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Slots {
    pub domains: Vec<u32>,
    pub passes: Vec<u64>,
    pub indices: Vec<u64>,
    pub windows: Vec<u64>,
}

impl Piece {
    /// Deals `step` from the state at its start.
    pub fn deal(&self, domains: &[Domain], step: u64) -> Result<Slots, Ended> {
        let counts = self.one_step(&mut domains.to_vec(), step)?;
        let mut slots = Slots {
            domains: self.places(&counts, step),
            ..Slots::default()
        };
        let mut readers: Vec<Reader<'_>> = domains
            .iter()
            .zip(&self.members)
            .map(|(&domain, member)| Reader::new(self, domain, &member.name))
            .collect();
        for &domain in &slots.domains {
            let (pass, index, window) =
                readers[domain as usize].next(&self.members[domain as usize].view);
            slots.passes.push(pass);
            slots.indices.push(index);
            slots.windows.push(window);
        }
        Ok(slots)
    }

    /// The step's domains, sorted by name, dealt to slots by a permutation keyed by (seed, step).
    fn places(&self, counts: &[u64], step: u64) -> Vec<u32> {
        let places = Permutation::new(
            rng::key(self.seed, "slots", step, ""),
            u64::from(self.batch),
        );
        let mut domains = vec![0; self.batch as usize];
        let sorted = counts
            .iter()
            .enumerate()
            .flat_map(|(i, &count)| (0..count).map(move |_| i as u32));
        for (item, domain) in sorted.enumerate() {
            domains[places.at(item as u64) as usize] = domain;
        }
        domains
    }
}

/// Reads one domain's windows in order.
struct Reader<'a> {
    piece: &'a Piece,
    domain: Domain,
    name: &'a str,
    /// The permutations of the open pass: from its start, and since generations joined it.
    open: Option<(Permutation, Option<Permutation>)>,
}

impl<'a> Reader<'a> {
    fn new(piece: &'a Piece, domain: Domain, name: &'a str) -> Self {
        Self {
            piece,
            domain,
            name,
            open: None,
        }
    }

    /// Pass, index and window of the domain's next slot.
    fn next(&mut self, view: &View) -> (u64, u64, u64) {
        let before = (self.domain.pass, self.domain.split);
        self.domain.settle(view);
        if before != (self.domain.pass, self.domain.split) {
            self.open = None;
        }
        let index = self.domain.index;
        self.domain.index += 1;
        (self.domain.pass, index, self.locate(index))
    }

    fn locate(&mut self, index: u64) -> u64 {
        let domain = self.domain;
        if self.piece.order == Order::None {
            return index;
        }
        let (seed, name) = (self.piece.seed, self.name);
        let (pass, joined) = self
            .open
            .get_or_insert_with(|| permutations(seed, name, &domain));
        match joined {
            Some(joined) => match joined.at(index - domain.split) + domain.split {
                place if place < domain.first => pass.at(place),
                place => place,
            },
            None => pass.at(index),
        }
    }
}

/// The permutations of a pass. What it had left when generations joined, and the new windows after them, are places
/// [split, windows); places below `first` are then looked up in the first permutation.
fn permutations(seed: u64, name: &str, domain: &Domain) -> (Permutation, Option<Permutation>) {
    let pass = Permutation::new(rng::key(seed, "pass", domain.pass, name), domain.first);
    let joined = (domain.split > 0).then(|| {
        Permutation::new(
            rng::key(seed, "join", domain.pass, name),
            domain.windows - domain.split,
        )
    });
    (pass, joined)
}
