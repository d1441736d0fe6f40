//! The kernel of the plan: advances a cursor over steps and deals a step's slots. Integers only.
//!
//! A `Piece` is a range of steps in which batch, views, weights (or one ramp between two weight vectors) and caps do not
//! change; who knows phases and events cuts the run into pieces. A state (one `Domain` a domain, in bytewise order of
//! the names) says where each domain stands at the start of a step. Two functions:
//!
//! * `Piece::advance(state, step, steps)`: the state `steps` later, or where the run ends before.
//! * `Piece::deal(state, step)`: domain, pass, index and window of each slot of the step.

mod advance;
mod balanced;
mod blocks;
mod cap;
mod check;
mod cosine;
mod deal;
mod leap;
mod pass;
mod shares;
mod step;

#[cfg(test)]
mod tests;

pub use advance::Advanced;
pub use blocks::{Blocks, Generation};
pub use deal::Slots;
pub use pass::{Domain, View};
pub use shares::{PARTS_BITS, SHARE_BITS, shares};

/// One window of credit, and the sum of all shares.
pub const WHOLE: i64 = 1 << SHARE_BITS;

/// How the slots of a step are given to domains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Draw {
    /// By credit, carried from step to step.
    Balanced,
    /// Independent draws from a generator keyed by (seed, step).
    Multinomial,
}

/// How the windows of a pass are ordered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// One keyed permutation of the view.
    Full,
    /// Groups of neighbouring windows permuted, and the windows inside each.
    Blocks,
    /// As they lie in the corpus.
    None,
}

/// What happens to a domain at its cap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AtCap {
    /// Its weight is 0 from the next slot on and its credit goes to the others.
    Redistribute,
    /// The run ends before the step that would need more of it.
    Stop,
}

/// A domain's part of a piece.
#[derive(Clone, Debug)]
pub struct Member {
    pub name: String,
    /// Weight in units of 2^-62 at the first step of the ramp; 0: gets nothing.
    pub parts: u64,
    /// Weight at the last step of the ramp; equal to `parts` where nothing changes.
    pub parts_to: u64,
    pub view: View,
    /// Plan tokens that may be served since the start of the run, if capped.
    pub budget: Option<u64>,
    pub at_cap: AtCap,
}

/// The shape of a weight change between two points.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Curve {
    Linear,
    /// Half a cosine, from an integer table.
    Cosine,
}

/// Steps [start, start + length) over which weights move from `parts` to `parts_to`.
#[derive(Clone, Copy, Debug)]
pub struct Ramp {
    pub start: u64,
    pub length: u64,
    pub curve: Curve,
}

/// A range of steps in which nothing changes but the cursor, and weights along one ramp.
#[derive(Clone, Debug)]
pub struct Piece {
    pub seed: u64,
    pub draw: Draw,
    pub order: Order,
    /// Slots of a step.
    pub batch: u32,
    /// In bytewise order of the names.
    pub members: Vec<Member>,
    pub ramp: Option<Ramp>,
}

/// The run ends before this step: it cannot be filled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ended {
    /// The domain that has no more to give; the first by name when all are capped.
    pub domain: usize,
}
