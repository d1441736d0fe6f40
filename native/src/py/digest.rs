//! Row and step digests for Python.

use numpy::PyReadonlyArray1;
use pyo3::buffer::PyBuffer;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::PyBytes;

use crate::digest::{self, Row};

/// Bytes are read where they lie; any other buffer is copied, since another thread may write to it.
#[derive(FromPyObject)]
enum Data {
    Bytes(PyBackedBytes),
    Buffer(PyBuffer<u8>),
}

impl Data {
    fn view(self, py: Python<'_>) -> PyResult<Box<dyn AsRef<[u8]> + Send + Sync>> {
        match self {
            Self::Bytes(bytes) => Ok(Box::new(bytes)),
            Self::Buffer(buffer) => Ok(Box::new(buffer.to_vec(py)?)),
        }
    }
}

/// Digests of rows that lie one after the other; see `headrace.native`. Without masks nothing is masked.
#[pyfunction]
#[pyo3(signature = (ids, row_bytes, edge_ends, edges, names, domains, loss_weights, mask_ends=None, masks=None))]
#[allow(clippy::too_many_arguments)]
fn row_digests<'py>(
    py: Python<'py>,
    ids: Data,
    row_bytes: usize,
    edge_ends: PyReadonlyArray1<'py, u32>,
    edges: PyReadonlyArray1<'py, u32>,
    names: Vec<String>,
    domains: PyReadonlyArray1<'py, u32>,
    loss_weights: PyReadonlyArray1<'py, f32>,
    mask_ends: Option<PyReadonlyArray1<'py, u32>>,
    masks: Option<PyReadonlyArray1<'py, u32>>,
) -> PyResult<Bound<'py, PyBytes>> {
    let ids = ids.view(py)?;
    let ids = (*ids).as_ref();
    let (edge_ends, edges) = (edge_ends.as_array().to_vec(), edges.as_array().to_vec());
    let (domains, loss_weights) = (
        domains.as_array().to_vec(),
        loss_weights.as_array().to_vec(),
    );
    let list = |array: Option<PyReadonlyArray1<'py, u32>>| {
        array.map_or_else(Vec::new, |array| array.as_array().to_vec())
    };
    let (mut mask_ends, masks) = (list(mask_ends), list(masks));
    if masks.is_empty() {
        mask_ends = vec![0; domains.len()];
    }
    check_ends("mask ends", &mask_ends, domains.len(), masks.len())
        .map_err(PyValueError::new_err)?;
    check(
        ids,
        row_bytes,
        &edge_ends,
        &edges,
        &names,
        &domains,
        &loss_weights,
    )
    .map_err(PyValueError::new_err)?;
    let digests = py.detach(|| {
        let mut digests = Vec::with_capacity(16 * domains.len());
        let (mut begin, mut masked) = (0, 0);
        for (i, &domain) in domains.iter().enumerate() {
            let end = edge_ends[i] as usize;
            digests.extend(digest::row_digest(&Row {
                ids: &ids[i * row_bytes..(i + 1) * row_bytes],
                edges: &edges[begin..end],
                domain: &names[domain as usize],
                loss_weight: loss_weights[i],
                masks: &masks[masked..mask_ends[i] as usize],
            }));
            (begin, masked) = (end, mask_ends[i] as usize);
        }
        digests
    });
    Ok(PyBytes::new(py, &digests))
}

fn check(
    ids: &[u8],
    row_bytes: usize,
    edge_ends: &[u32],
    edges: &[u32],
    names: &[String],
    domains: &[u32],
    loss_weights: &[f32],
) -> Result<(), String> {
    let rows = domains.len();
    if rows.checked_mul(row_bytes) != Some(ids.len()) {
        return Err(format!(
            "{} id bytes are not {rows} rows of {row_bytes}",
            ids.len()
        ));
    }
    if edge_ends.len() != rows || loss_weights.len() != rows {
        return Err(format!(
            "{rows} domains, {} edge ends, {} loss weights",
            edge_ends.len(),
            loss_weights.len()
        ));
    }
    check_ends("edge ends", edge_ends, rows, edges.len())?;
    match domains
        .iter()
        .find(|&&domain| domain as usize >= names.len())
    {
        Some(domain) => Err(format!(
            "domain {domain} is outside the {} names",
            names.len()
        )),
        None => Ok(()),
    }
}

fn check_ends(what: &str, ends: &[u32], rows: usize, total: usize) -> Result<(), String> {
    let last = ends.last().map_or(0, |&end| end as usize);
    if ends.len() != rows || !ends.is_sorted() || last != total {
        return Err(format!(
            "{rows} {what} must rise to their number, {total}: there are {} up to {last}",
            ends.len()
        ));
    }
    Ok(())
}

/// BLAKE3 over the row digests of a step in slot order.
#[pyfunction]
fn step_digest<'py>(py: Python<'py>, row_digests: Data) -> PyResult<Bound<'py, PyBytes>> {
    Ok(PyBytes::new(
        py,
        &digest::step_digest((*row_digests.view(py)?).as_ref()),
    ))
}

/// Adds this file's names to the module.
pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_function(wrap_pyfunction!(row_digests, m)?)?;
    m.add_function(wrap_pyfunction!(step_digest, m)?)
}
