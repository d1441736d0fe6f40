//! The slots of a step: whose, and which window.

use super::blocks::Layout;
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
    /// How the open pass is ordered.
    open: Option<Open<'a>>,
}

enum Open<'a> {
    AsTheyLie,
    Full(Permutation),
    /// The permutation of the pass, and that of what was left and new when generations joined it.
    Joined(Permutation, Permutation),
    Blocks(Layout<'a>),
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
    fn next(&mut self, view: &'a View) -> (u64, u64, u64) {
        let before = (self.domain.pass, self.domain.split);
        self.domain.settle(view);
        if before != (self.domain.pass, self.domain.split) {
            self.open = None;
        }
        let index = self.domain.index;
        self.domain.index += 1;
        let domain = self.domain;
        let (piece, name) = (self.piece, self.name);
        let open = self
            .open
            .get_or_insert_with(|| open_pass(piece, name, &domain, view));
        (domain.pass, index, open.window(&domain, index))
    }
}

fn open_pass<'a>(piece: &Piece, name: &str, domain: &Domain, view: &'a View) -> Open<'a> {
    if let Some(blocks) = &view.blocks {
        return Open::Blocks(blocks.layout(domain.pass, domain.generations));
    }
    if piece.order == Order::None {
        return Open::AsTheyLie;
    }
    let key = |purpose| rng::key(piece.seed, purpose, domain.pass, name);
    let pass = Permutation::new(key("pass"), domain.first);
    if domain.split == 0 {
        return Open::Full(pass);
    }
    Open::Joined(
        pass,
        Permutation::new(key("join"), domain.windows - domain.split),
    )
}

impl Open<'_> {
    /// The window at place `index` of the pass.
    ///
    /// What a pass had left when generations joined it, and the new windows after them, are places [split, windows);
    /// those below `first` are then looked up in the permutation of the pass.
    fn window(&self, domain: &Domain, index: u64) -> u64 {
        match self {
            Open::AsTheyLie => index,
            Open::Full(pass) => pass.at(index),
            Open::Blocks(layout) => layout.window(index),
            Open::Joined(pass, joined) => match joined.at(index - domain.split) + domain.split {
                place if place < domain.first => pass.at(place),
                place => place,
            },
        }
    }
}
