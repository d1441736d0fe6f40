//! Generator and permutation for Python.

use numpy::{IntoPyArray, PyArray1, PyReadonlyArray1};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::perm::Permutation;
use crate::rng;

const LARGEST_PERMUTATION: u64 = 1 << 63;

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

/// Adds this file's names to the module.
pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_function(wrap_pyfunction!(key, m)?)?;
    m.add_function(wrap_pyfunction!(random_u64, m)?)?;
    m.add_function(wrap_pyfunction!(permute, m)?)?;
    m.add_function(wrap_pyfunction!(permute_many, m)?)
}
