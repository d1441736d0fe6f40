//! Where a domain stands: pass, index in the pass, tokens served; and what a window served does to it.
//!
//! Everything is lazy: a pass that is used up, or whose view has changed, or that a generation joins, changes at the
//! domain's next window and not before.

use super::Member;
use super::blocks::Blocks;

/// The windows that a domain has at a step.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct View {
    /// Names the view: seq_len * 256 + packing.
    pub id: u64,
    /// Number of windows, n.
    pub windows: u64,
    /// Real tokens in them, R; at least one a window.
    pub real: u64,
    /// Tokens a full window would hold.
    pub seq_len: u64,
    /// How many generations of the domain are in it.
    pub generations: u64,
    /// The highest of them that joins a pass at once; those after it wait for the next pass.
    pub joining: u64,
    /// The groups of the order `blocks`, if that is the run's.
    pub blocks: Option<Blocks>,
}

/// A domain's row of the cursor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Domain {
    /// Windows owed by the draw, in units of 2^-32.
    pub credit: i64,
    pub pass: u64,
    /// Windows of the pass that are dealt.
    pub index: u64,
    /// Plan tokens dealt before position `split` of the pass.
    pub before: u64,
    /// Windows of the pass; 0: none is open yet.
    pub windows: u64,
    /// Plan tokens of the pass from position `split` on.
    pub real: u64,
    /// The view that the pass reads.
    pub view: u64,
    pub generations: u64,
    /// Position at which generations joined this pass; 0: none did.
    pub split: u64,
    /// Windows of the pass before generations joined it, `windows` if none did; in the order `blocks`, the rank of the
    /// next group of which nothing is dealt.
    pub first: u64,
}

impl View {
    /// floor(part * windows * seq_len / real): a weight of real tokens as a weight of windows.
    pub fn per_fill(&self, part: u64) -> u128 {
        if part == 0 || self.real == 0 {
            return 0;
        }
        let room = self.windows * self.seq_len;
        if room == self.real {
            return u128::from(part);
        }
        u128::from(part) * u128::from(room) / u128::from(self.real)
    }
}

/// floor(count * real / windows): plan tokens of the first `count` of `windows` windows.
fn tokens_of(count: u64, real: u64, windows: u64) -> u64 {
    if windows == 0 {
        return 0;
    }
    (u128::from(count) * u128::from(real) / u128::from(windows)) as u64
}

impl Domain {
    /// Plan tokens dealt since the start of the run.
    pub fn tokens(&self) -> u64 {
        self.before
            + tokens_of(
                self.index - self.split,
                self.real,
                self.windows - self.split,
            )
    }

    /// Ends or widens the pass if its time has come, so that the next window is `index` of it.
    pub fn settle(&mut self, view: &View) {
        if self.windows == 0 || self.index == self.windows {
            self.open(view);
        } else if self.view != view.id {
            self.change_view(view);
        } else if view.blocks.is_none() && self.split == 0 && self.generations < view.joining {
            self.join(view);
        }
    }

    fn open(&mut self, view: &View) {
        *self = Self {
            credit: self.credit,
            pass: self.pass + u64::from(self.windows > 0),
            index: 0,
            before: self.tokens(),
            windows: view.windows,
            real: view.real,
            view: view.id,
            generations: view.generations,
            split: 0,
            first: if view.blocks.is_some() {
                0
            } else {
                view.windows
            },
        };
    }

    /// A new view opens a new pass, unless its groups hold the same tokens: then the pass goes on at the next group.
    fn change_view(&mut self, view: &View) {
        let same_packing = (self.view ^ view.id) & 0xff == 0;
        let Some(blocks) = view
            .blocks
            .as_ref()
            .filter(|blocks| blocks.goes_on && same_packing)
        else {
            return self.open(view);
        };
        let index = blocks
            .layout(self.pass, self.generations)
            .begins(self.first);
        let (windows, real) = blocks.size(self.generations);
        if index == windows {
            return self.open(view);
        }
        self.before = self.tokens();
        self.index = index;
        self.split = index;
        self.windows = windows;
        self.real = real - tokens_of(index, real, windows);
        self.view = view.id;
    }

    /// What the pass has left and the new windows become one permutation from here on.
    fn join(&mut self, view: &View) {
        let dealt = tokens_of(self.index, self.real, self.windows);
        let new_real = view.real - self.real;
        self.before += dealt;
        self.real = self.real - dealt + new_real;
        self.split = self.index;
        self.windows = view.windows;
        self.generations = view.generations;
    }

    /// Deals `count` windows.
    pub fn serve(&mut self, view: &View, count: u64) {
        if count == 0 {
            return;
        }
        self.settle(view);
        let left = self.windows - self.index;
        if count <= left {
            self.index += count;
        } else {
            self.index = self.windows;
            self.open(view);
            let more = count - left;
            let whole = (more - 1) / self.windows;
            self.pass += whole;
            self.before += whole * self.real;
            self.index = more - whole * self.windows;
        }
        if let Some(blocks) = &view.blocks {
            self.first = blocks
                .layout(self.pass, self.generations)
                .next_rank(self.index);
        }
    }

    /// Windows of the pass that another `seq_len` would leave unread.
    pub fn unread(&self, view: &View) -> u64 {
        match &view.blocks {
            Some(blocks) if blocks.goes_on && self.windows > 0 && self.view == view.id => {
                blocks
                    .layout(self.pass, self.generations)
                    .begins(self.first)
                    - self.index
            }
            _ => self.windows - self.index,
        }
    }

    /// How many more windows keep the plan tokens at or below `budget`.
    pub fn windows_within(&self, view: &View, budget: u64) -> u64 {
        let Some(mut room) = budget.checked_sub(self.tokens()) else {
            return 0;
        };
        let mut next = *self;
        next.settle(view);
        let left = next.windows - next.index;
        let to_end = next.before + next.real - next.tokens();
        if room < to_end {
            return next.within_pass(room);
        }
        room -= to_end;
        next.index = next.windows;
        next.open(view);
        let whole = room / next.real;
        left.saturating_add(whole.saturating_mul(next.windows))
            .saturating_add(next.within_pass(room % next.real))
    }

    /// The most windows of the open pass, from `index` on, that hold at most `room` tokens; the pass holds more.
    fn within_pass(&self, room: u64) -> u64 {
        let (windows, real) = (u128::from(self.windows - self.split), u128::from(self.real));
        let limit = u128::from(self.tokens() - self.before) + u128::from(room);
        let most = ((limit + 1) * windows - 1) / real;
        (most.min(windows) as u64) - (self.index - self.split)
    }
}

impl Member {
    /// Windows that its cap still allows.
    pub fn windows_left(&self, domain: &Domain) -> u64 {
        self.budget.map_or(u64::MAX, |budget| {
            if self.view.windows == 0 {
                0
            } else {
                domain.windows_within(&self.view, budget)
            }
        })
    }
}
