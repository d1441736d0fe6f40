//! The plan's kernel for Python. States are uint64 arrays (domains, FIELDS); credit in two's complement.

use numpy::{IntoPyArray, PyArray1, PyArray2, PyReadonlyArray2, PyUntypedArrayMethods};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::plan::{Domain, PARTS_BITS, Piece, Ramp, shares};
use crate::py::member::{MemberArgs, curve_named, draw_named, order_named};

const FIELDS: usize = 10;
const LARGEST_BATCH: u32 = 1 << 20;

type Slots<'py> = (
    Bound<'py, PyArray1<u32>>,
    Bound<'py, PyArray1<u64>>,
    Bound<'py, PyArray1<u64>>,
    Bound<'py, PyArray1<u64>>,
);

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
        let domains = self.sound(&state)?;
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
        let domains = self.sound(&state)?;
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
        let domains = self.sound(&state)?;
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

    /// Raises ValueError if the state cannot be one at the start of a step of this piece, or of the one after it.
    fn check(&self, state: PyReadonlyArray2<'_, u64>) -> PyResult<()> {
        self.sound(&state).map(|_| ())
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
        let domains: Vec<Domain> = state
            .as_array()
            .rows()
            .into_iter()
            .map(|row| from_row(&row.to_vec()))
            .collect();
        Ok(domains)
    }

    fn sound(&self, state: &PyReadonlyArray2<'_, u64>) -> PyResult<Vec<Domain>> {
        let domains = self.domains(state)?;
        match self.0.check(&domains) {
            Ok(()) => Ok(domains),
            Err(what) => Err(PyValueError::new_err(format!(
                "the state cannot be: {what}"
            ))),
        }
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

/// Adds this file's names to the module.
pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<PyPiece>()?;
    m.add_function(wrap_pyfunction!(plan_tokens, m)?)
}
