//! Plan, generator and permutation for Python. States are uint64 arrays (domains, FIELDS); credit in two's complement.

use numpy::{
    IntoPyArray, PyArray1, PyArray2, PyReadonlyArray1, PyReadonlyArray2, PyUntypedArrayMethods,
};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::perm::Permutation;
use crate::plan::{
    AtCap, Blocks, Curve, Domain, Draw, Generation, Member, Order, PARTS_BITS, Piece, Ramp, View,
    shares,
};
use crate::rng;

const FIELDS: usize = 10;
const LARGEST_PERMUTATION: u64 = 1 << 63;
const LARGEST_BATCH: u32 = 1 << 20;

type Slots<'py> = (
    Bound<'py, PyArray1<u32>>,
    Bound<'py, PyArray1<u64>>,
    Bound<'py, PyArray1<u64>>,
    Bound<'py, PyArray1<u64>>,
);

#[pyfunction]
fn key(seed: u64, purpose: &str, number: u64, name: &str) -> (u64, u64) {
    let [a, b] = rng::key(seed, purpose, number, name);
    (a, b)
}

#[pyfunction]
fn random_u64(key: (u64, u64), counter: u64) -> u64 {
    rng::random_u64([key.0, key.1], counter)
}

fn permutation(key: (u64, u64), n: u64) -> PyResult<Permutation> {
    if !(1..=LARGEST_PERMUTATION).contains(&n) {
        return Err(PyValueError::new_err(format!(
            "a permutation has 1 to 2^63 places, not {n}"
        )));
    }
    Ok(Permutation::new([key.0, key.1], n))
}

fn in_range(index: u64, n: u64) -> PyResult<u64> {
    if index < n {
        Ok(index)
    } else {
        Err(PyValueError::new_err(format!(
            "index {index} is outside [0, {n})"
        )))
    }
}

#[pyfunction]
fn permute(key: (u64, u64), n: u64, index: u64) -> PyResult<u64> {
    Ok(permutation(key, n)?.at(in_range(index, n)?))
}

#[pyfunction]
fn permute_many<'py>(
    py: Python<'py>,
    key: (u64, u64),
    n: u64,
    indices: PyReadonlyArray1<'py, u64>,
) -> PyResult<Bound<'py, PyArray1<u64>>> {
    let permutation = permutation(key, n)?;
    let indices = indices.as_array().to_vec();
    indices
        .iter()
        .try_for_each(|&index| in_range(index, n).map(drop))?;
    let places: Vec<u64> = py.detach(|| {
        indices
            .into_iter()
            .map(|index| permutation.at(index))
            .collect()
    });
    Ok(places.into_pyarray(py))
}

/// Windows of a group, whether passes go on, and (windows, real tokens, groups) of each generation.
type Groups = (u64, bool, Vec<(u64, u64, u64)>);

/// One domain of a piece, as it comes from Python.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
struct MemberArgs {
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
    fn check(self, seed: u64) -> PyResult<Member> {
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
                Some(blocks) => Some(blocks),
                None => return wrong("its groups do not hold its windows"),
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

/// A range of steps in which nothing changes but the cursor.
#[pyclass(name = "Piece", module = "headrace.native", frozen)]
struct PyPiece(Piece);

#[pymethods]
impl PyPiece {
    #[new]
    #[pyo3(signature = (*, seed, draw, order, batch, members, ramp=None))]
    fn new(
        seed: u64,
        draw: &str,
        order: &str,
        batch: u32,
        members: Vec<MemberArgs>,
        ramp: Option<(u64, u64, String)>,
    ) -> PyResult<Self> {
        if !(1..=LARGEST_BATCH).contains(&batch) {
            return Err(PyValueError::new_err(format!(
                "a batch has 1 to 2^20 slots, not {batch}"
            )));
        }
        let members = members
            .into_iter()
            .map(|member| member.check(seed))
            .collect::<PyResult<Vec<_>>>()?;
        if !members.is_sorted_by(|a, b| a.name.as_bytes() < b.name.as_bytes()) {
            return Err(PyValueError::new_err(
                "domains are not in bytewise order, or one comes twice",
            ));
        }
        if members
            .iter()
            .map(|member| u128::from(member.parts))
            .sum::<u128>()
            > 1 << PARTS_BITS
        {
            return Err(PyValueError::new_err("weights sum to more than 2^62 parts"));
        }
        let ramp = match ramp {
            None => None,
            Some((start, length, curve)) => Some(Ramp {
                start,
                length,
                curve: curve_named(&curve)?,
            }),
        };
        Ok(Self(Piece {
            seed,
            draw: draw_named(draw)?,
            order: order_named(order)?,
            batch,
            members,
            ramp,
        }))
    }

    /// The state after at most `steps` steps, how many were made, and the domain that ended the run, if one did.
    fn advance<'py>(
        &self,
        py: Python<'py>,
        state: PyReadonlyArray2<'py, u64>,
        step: u64,
        steps: u64,
    ) -> PyResult<(Bound<'py, PyArray2<u64>>, u64, Option<usize>)> {
        let domains = self.domains(&state)?;
        let advanced = py.detach(|| self.0.advance(&domains, step, steps));
        let ended = advanced.ended.map(|ended| ended.domain);
        Ok((to_array(py, &advanced.domains)?, advanced.steps, ended))
    }

    /// As `advance`, and the least and most credit of each domain at the ends of the steps.
    #[allow(clippy::type_complexity)]
    fn advance_watching<'py>(
        &self,
        py: Python<'py>,
        state: PyReadonlyArray2<'py, u64>,
        step: u64,
        steps: u64,
    ) -> PyResult<(
        Bound<'py, PyArray2<u64>>,
        u64,
        Option<usize>,
        Bound<'py, PyArray1<i64>>,
        Bound<'py, PyArray1<i64>>,
    )> {
        let domains = self.domains(&state)?;
        let (advanced, seen) = py.detach(|| self.0.advance_watching(&domains, step, steps));
        let (least, most): (Vec<i64>, Vec<i64>) = seen.into_iter().unzip();
        let ended = advanced.ended.map(|ended| ended.domain);
        let state = to_array(py, &advanced.domains)?;
        Ok((
            state,
            advanced.steps,
            ended,
            least.into_pyarray(py),
            most.into_pyarray(py),
        ))
    }

    /// Domain, pass, index and window of each slot, or the domain that ends the run before this step.
    fn deal<'py>(
        &self,
        py: Python<'py>,
        state: PyReadonlyArray2<'py, u64>,
        step: u64,
    ) -> PyResult<(Option<Slots<'py>>, Option<usize>)> {
        let domains = self.domains(&state)?;
        match py.detach(|| self.0.deal(&domains, step)) {
            Err(ended) => Ok((None, Some(ended.domain))),
            Ok(slots) => Ok((
                Some((
                    slots.domains.into_pyarray(py),
                    slots.passes.into_pyarray(py),
                    slots.indices.into_pyarray(py),
                    slots.windows.into_pyarray(py),
                )),
                None,
            )),
        }
    }

    /// Weights of a step in units of 2^-62, before caps.
    fn parts<'py>(&self, py: Python<'py>, step: u64) -> Bound<'py, PyArray1<u64>> {
        self.0.parts_at(step).into_pyarray(py)
    }

    /// Shares of a step in units of 2^-32, before caps.
    fn shares<'py>(&self, py: Python<'py>, step: u64) -> Bound<'py, PyArray1<i64>> {
        shares(&self.0.parts_at(step), &self.0.members).into_pyarray(py)
    }

    /// The state with each domain's pass as its next window finds it: ended, widened, or gone on in a new view.
    fn settled<'py>(
        &self,
        py: Python<'py>,
        state: PyReadonlyArray2<'py, u64>,
    ) -> PyResult<Bound<'py, PyArray2<u64>>> {
        let mut domains = self.domains(&state)?;
        for (domain, member) in domains.iter_mut().zip(&self.0.members) {
            if member.view.windows > 0 {
                domain.settle(&member.view);
            }
        }
        to_array(py, &domains)
    }

    /// Windows of each domain's pass that another view would leave unread.
    fn unread<'py>(
        &self,
        py: Python<'py>,
        state: PyReadonlyArray2<'py, u64>,
    ) -> PyResult<Bound<'py, PyArray1<u64>>> {
        let domains = self.domains(&state)?;
        let left: Vec<u64> = self
            .0
            .members
            .iter()
            .zip(&domains)
            .map(|(member, d)| d.unread(&member.view))
            .collect();
        Ok(left.into_pyarray(py))
    }

    /// Windows that the cap of each domain still allows; 2^64 - 1 where there is none.
    fn windows_left<'py>(
        &self,
        py: Python<'py>,
        state: PyReadonlyArray2<'py, u64>,
    ) -> PyResult<Bound<'py, PyArray1<u64>>> {
        let domains = self.domains(&state)?;
        let left: Vec<u64> = self
            .0
            .members
            .iter()
            .zip(&domains)
            .map(|(member, d)| member.windows_left(d))
            .collect();
        Ok(left.into_pyarray(py))
    }
}

impl PyPiece {
    fn domains(&self, state: &PyReadonlyArray2<'_, u64>) -> PyResult<Vec<Domain>> {
        if state.shape() != [self.0.members.len(), FIELDS] {
            return Err(PyValueError::new_err(format!(
                "the state has shape {:?}, the piece needs [{}, {FIELDS}]",
                state.shape(),
                self.0.members.len()
            )));
        }
        Ok(state
            .as_array()
            .rows()
            .into_iter()
            .map(|row| from_row(&row.to_vec()))
            .collect())
    }
}

/// Plan tokens of each domain of a state.
#[pyfunction]
fn plan_tokens<'py>(
    py: Python<'py>,
    state: PyReadonlyArray2<'py, u64>,
) -> PyResult<Bound<'py, PyArray1<u64>>> {
    if state.shape()[1] != FIELDS {
        return Err(PyValueError::new_err(format!(
            "a state has {FIELDS} columns"
        )));
    }
    let tokens: Vec<u64> = state
        .as_array()
        .rows()
        .into_iter()
        .map(|row| from_row(&row.to_vec()).tokens())
        .collect();
    Ok(tokens.into_pyarray(py))
}

fn from_row(row: &[u64]) -> Domain {
    Domain {
        credit: row[0].cast_signed(),
        pass: row[1],
        index: row[2],
        before: row[3],
        windows: row[4],
        real: row[5],
        view: row[6],
        generations: row[7],
        split: row[8],
        first: row[9],
    }
}

fn to_array<'py>(py: Python<'py>, domains: &[Domain]) -> PyResult<Bound<'py, PyArray2<u64>>> {
    let rows: Vec<Vec<u64>> = domains
        .iter()
        .map(|d| {
            let credit = d.credit.cast_unsigned();
            vec![
                credit,
                d.pass,
                d.index,
                d.before,
                d.windows,
                d.real,
                d.view,
                d.generations,
                d.split,
                d.first,
            ]
        })
        .collect();
    PyArray2::from_vec2(py, &rows).map_err(|error| PyValueError::new_err(error.to_string()))
}

fn draw_named(name: &str) -> PyResult<Draw> {
    match name {
        "balanced" => Ok(Draw::Balanced),
        "multinomial" => Ok(Draw::Multinomial),
        _ => Err(PyValueError::new_err(format!(
            "no draw `{name}`; there are balanced, multinomial"
        ))),
    }
}

fn order_named(name: &str) -> PyResult<Order> {
    match name {
        "full" => Ok(Order::Full),
        "blocks" => Ok(Order::Blocks),
        "none" => Ok(Order::None),
        _ => Err(PyValueError::new_err(format!(
            "no order `{name}`; there are full, blocks, none"
        ))),
    }
}

fn curve_named(name: &str) -> PyResult<Curve> {
    match name {
        "linear" => Ok(Curve::Linear),
        "cosine" => Ok(Curve::Cosine),
        _ => Err(PyValueError::new_err(format!(
            "no curve `{name}`; there are linear, cosine"
        ))),
    }
}

/// Adds this file's names to the module.
pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<PyPiece>()?;
    m.add_function(wrap_pyfunction!(key, m)?)?;
    m.add_function(wrap_pyfunction!(random_u64, m)?)?;
    m.add_function(wrap_pyfunction!(permute, m)?)?;
    m.add_function(wrap_pyfunction!(permute_many, m)?)?;
    m.add_function(wrap_pyfunction!(plan_tokens, m)?)
}
