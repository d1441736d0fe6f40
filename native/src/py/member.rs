//! What Python says of a piece, checked: whatever passes cannot make the kernel panic.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::plan::{AtCap, Blocks, Curve, Draw, Generation, Member, Order, PARTS_BITS, View};

/// Windows of a group, whether passes go on, and (windows, real tokens, groups) of each generation.
type Groups = (u64, bool, Vec<(u64, u64, u64)>);

/// One domain of a piece, as it comes from Python.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub struct MemberArgs {
    name: String,
    parts: u64,
    parts_to: u64,
    view: u64,
    windows: u64,
    real: u64,
    seq_len: u64,
    generations: u64,
    joining: u64,
    budget: Option<u64>,
    stop: bool,
    /// The groups of the order `blocks`.
    blocks: Option<Groups>,
}

impl MemberArgs {
    pub fn check(self, seed: u64) -> PyResult<Member> {
        let wrong = |what: &str| {
            Err(PyValueError::new_err(format!(
                "domain `{}`: {what}",
                self.name
            )))
        };
        if self.parts > 1 << PARTS_BITS || self.parts_to > 1 << PARTS_BITS {
            return wrong("a weight is at most 2^62 parts");
        }
        if self.real < self.windows
            || self.seq_len >= 1 << 32
            || self.windows.checked_mul(self.seq_len).is_none()
        {
            return wrong("a view has a real token a window at least, and fits 64 bits");
        }
        if (self.parts > 0 || self.parts_to > 0) && self.windows == 0 {
            return wrong("it has weight but no window");
        }
        let blocks = match self.blocks {
            None => None,
            Some(groups) => match groups_of(seed, &self.name, groups) {
                Some(blocks) if blocks.generations.len() as u64 == self.generations => Some(blocks),
                _ => return wrong("its groups do not hold its windows"),
            },
        };
        Ok(Member {
            view: View {
                blocks,
                id: self.view,
                windows: self.windows,
                real: self.real,
                seq_len: self.seq_len,
                generations: self.generations,
                joining: self.joining,
            },
            name: self.name,
            parts: self.parts,
            parts_to: self.parts_to,
            budget: self.budget,
            at_cap: if self.stop {
                AtCap::Stop
            } else {
                AtCap::Redistribute
            },
        })
    }
}

fn groups_of(seed: u64, name: &str, given: (u64, bool, Vec<(u64, u64, u64)>)) -> Option<Blocks> {
    let (group, goes_on, sizes) = given;
    let fits = |&(windows, real, groups): &(u64, u64, u64)| {
        let most = groups.checked_mul(group)?;
        (group > 0 && windows <= real && windows <= most && most - windows <= group).then_some(
            Generation {
                windows,
                real,
                groups,
            },
        )
    };
    let generations = sizes
        .iter()
        .map(fits)
        .collect::<Option<Vec<Generation>>>()?;
    Some(Blocks {
        seed,
        name: name.to_owned(),
        group,
        goes_on,
        generations,
    })
}

pub fn draw_named(name: &str) -> PyResult<Draw> {
    match name {
        "balanced" => Ok(Draw::Balanced),
        "multinomial" => Ok(Draw::Multinomial),
        _ => Err(PyValueError::new_err(format!(
            "no draw `{name}`; there are balanced, multinomial"
        ))),
    }
}

pub fn order_named(name: &str) -> PyResult<Order> {
    match name {
        "full" => Ok(Order::Full),
        "blocks" => Ok(Order::Blocks),
        "none" => Ok(Order::None),
        _ => Err(PyValueError::new_err(format!(
            "no order `{name}`; there are full, blocks, none"
        ))),
    }
}

pub fn curve_named(name: &str) -> PyResult<Curve> {
    match name {
        "linear" => Ok(Curve::Linear),
        "cosine" => Ok(Curve::Cosine),
        _ => Err(PyValueError::new_err(format!(
            "no curve `{name}`; there are linear, cosine"
        ))),
    }
}
