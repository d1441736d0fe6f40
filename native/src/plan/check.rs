//! Whether a state can be one that the plan came to. States come from a store, and a store can be damaged: what passes
//! here cannot make the kernel panic, and what is inconsistent with the views that are known is refused.

use super::blocks::Blocks;
use super::{Domain, Piece, View};

/// No credit reaches as many windows of 2^32.
const MOST_CREDIT: u64 = 1 << 52;
/// Tokens, windows and passes of a run stay below this.
const MOST: u64 = 1 << 62;

impl Piece {
    /// What is wrong with a state at the start of a step of this piece, or of the step after its last one.
    pub fn check(&self, domains: &[Domain]) -> Result<(), String> {
        for (domain, member) in domains.iter().zip(&self.members) {
            domain
                .check(&member.view)
                .map_err(|what| format!("domain `{}`: {what}", member.name))?;
        }
        match domains
            .iter()
            .map(|domain| i128::from(domain.credit))
            .sum::<i128>()
        {
            0 => Ok(()),
            _ => Err("credits do not sum to nothing".to_owned()),
        }
    }
}

impl Domain {
    fn check(&self, view: &View) -> Result<(), &'static str> {
        if self.credit.unsigned_abs() > MOST_CREDIT {
            return Err("more credit than a run can owe");
        }
        if self.windows == 0 {
            let fresh = Self {
                credit: self.credit,
                ..Self::default()
            };
            return if *self == fresh {
                Ok(())
            } else {
                Err("no pass is open, but something of one is dealt")
            };
        }
        if [self.pass, self.before, self.windows, self.real]
            .iter()
            .any(|&word| word >= MOST)
        {
            return Err("a number beyond the longest run");
        }
        if self.split > self.index
            || self.index > self.windows
            || self.real < self.windows - self.split
        {
            return Err("places of the pass that are not in order");
        }
        if self.generations > view.generations {
            return Err("generations that have not joined");
        }
        match &view.blocks {
            Some(blocks) => self.check_blocks(view, blocks),
            None => self.check_full(view),
        }
    }

    fn check_full(&self, view: &View) -> Result<(), &'static str> {
        let whole = self.split == 0 && self.first == self.windows;
        let joined = 0 < self.split && self.split < self.first && self.first <= self.windows;
        if !whole && !joined {
            return Err("a place of joining that is none");
        }
        let same = self.view == view.id && self.generations == view.generations;
        if same && (self.windows != view.windows || whole && self.real != view.real) {
            return Err("a pass of another size than its view");
        }
        Ok(())
    }

    fn check_blocks(&self, view: &View, blocks: &Blocks) -> Result<(), &'static str> {
        if self.view != view.id {
            // Read on only where groups are the same whatever the windows; else the next window opens a new pass.
            let read_on = blocks.goes_on && (self.view ^ view.id) & 0xff == 0;
            let there = self.first <= blocks.groups(self.generations);
            return if there || !read_on {
                Ok(())
            } else {
                Err("a group that there is not")
            };
        }
        let (windows, real) = blocks.size(self.generations);
        if self.windows != windows || self.split == 0 && self.real != real {
            return Err("a pass of another size than its view");
        }
        let layout = blocks.layout(self.pass, self.generations);
        if self.first != layout.next_rank(self.index) {
            return Err("a group that is not the next one");
        }
        Ok(())
    }
}
