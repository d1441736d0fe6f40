//! Plain replies for Python.

use numpy::{IntoPyArray, PyArray1, PyReadonlyArray1, PyReadwriteArray1};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::reply::{Batch, Wanted};

type Words<'py> = Bound<'py, PyArray1<u32>>;
type Rows<'py> = (
    u64,
    bool,
    Words<'py>,
    Words<'py>,
    Bound<'py, PyArray1<f32>>,
    Words<'py>,
    Words<'py>,
    Bound<'py, PyBytes>,
    Bound<'py, PyBytes>,
    Bound<'py, PyBytes>,
);

/// Reads a plain reply and copies its ids to `into`, checked against their digests; None when it is not plain, also
/// where `into` was written to. Gives segment, whether the ids were shared, real ids, domains, loss weights, edge ends
/// (one for each row), edges, and as bytes row digests (16 a row), plan hash and next plan hash.
#[pyfunction]
#[pyo3(signature = (reply, shared, into, step, first_slot, rows, id_bytes, names))]
#[allow(clippy::too_many_arguments)]
fn take_plain<'py>(
    py: Python<'py>,
    reply: PyReadonlyArray1<'py, u8>,
    shared: Option<PyReadonlyArray1<'py, u8>>,
    mut into: PyReadwriteArray1<'py, u8>,
    step: u64,
    first_slot: u64,
    rows: usize,
    id_bytes: u64,
    names: Vec<String>,
) -> PyResult<Option<Rows<'py>>> {
    let into = into.as_slice_mut()?;
    let wanted = Wanted {
        step,
        first_slot,
        rows,
        row_bytes: into.len() / rows.max(1),
        names: &names,
    };
    let Some(batch) = Batch::read(reply.as_slice()?).filter(|batch| batch.answers(&wanted)) else {
        return Ok(None);
    };
    let ids = match &shared {
        Some(shared) if batch.shared => shared.as_slice()?,
        None if batch.shared => return Ok(None),
        _ => batch.token_ids,
    };
    let row_bytes = batch
        .seq_len
        .checked_add(1)
        .and_then(|columns| columns.checked_mul(id_bytes));
    if row_bytes != Some(wanted.row_bytes as u64)
        || ids.len() != into.len()
        || ids.len() != rows * wanted.row_bytes
    {
        return Ok(None);
    }
    if !py.detach(|| batch.copy(&wanted, ids, into)) {
        return Ok(None);
    }
    Ok(Some((
        batch.segment,
        batch.shared,
        batch.real_ids.into_pyarray(py),
        batch.domains.into_pyarray(py),
        batch.loss_weights.into_pyarray(py),
        batch.edge_ends.into_pyarray(py),
        batch.edges.into_pyarray(py),
        PyBytes::new(py, batch.row_digests),
        PyBytes::new(py, batch.plan_hash),
        PyBytes::new(py, batch.next_plan_hash),
    )))
}

pub(super) fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_function(wrap_pyfunction!(take_plain, m)?)
}
