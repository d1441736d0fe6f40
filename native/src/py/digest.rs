//! Row and step digests for Python.

use numpy::{PyReadonlyArray1, PyReadwriteArray1};
use pyo3::buffer::PyBuffer;
use pyo3::exceptions::{PyTypeError, PyValueError};
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

/// What a digest covers besides the ids, row after row, checked.
struct Lists {
    edge_ends: Vec<u32>,
    edges: Vec<u32>,
    names: Vec<String>,
    domains: Vec<u32>,
    loss_weights: Vec<f32>,
    mask_ends: Vec<u32>,
    masks: Vec<u32>,
}

type Words<'py> = PyReadonlyArray1<'py, u32>;

impl Lists {
    #[allow(clippy::too_many_arguments)]
    fn new(
        id_bytes: usize,
        row_bytes: usize,
        edge_ends: &Words<'_>,
        edges: &Words<'_>,
        names: Vec<String>,
        domains: &Words<'_>,
        loss_weights: &PyReadonlyArray1<'_, f32>,
        mask_ends: Option<Words<'_>>,
        masks: Option<Words<'_>>,
    ) -> PyResult<Self> {
        let list = |array: &Words<'_>| array.as_array().to_vec();
        let mut lists = Self {
            edge_ends: list(edge_ends),
            edges: list(edges),
            names,
            domains: list(domains),
            loss_weights: loss_weights.as_array().to_vec(),
            mask_ends: mask_ends.as_ref().map_or_else(Vec::new, list),
            masks: masks.as_ref().map_or_else(Vec::new, list),
        };
        if lists.masks.is_empty() {
            lists.mask_ends = vec![0; lists.domains.len()];
        }
        lists
            .check(id_bytes, row_bytes)
            .map_err(PyValueError::new_err)?;
        Ok(lists)
    }

    fn check(&self, id_bytes: usize, row_bytes: usize) -> Result<(), String> {
        let rows = self.domains.len();
        check_ends("mask ends", &self.mask_ends, rows, self.masks.len())?;
        if rows.checked_mul(row_bytes) != Some(id_bytes) {
            return Err(format!(
                "{id_bytes} id bytes are not {rows} rows of {row_bytes}"
            ));
        }
        if self.edge_ends.len() != rows || self.loss_weights.len() != rows {
            return Err(format!(
                "{rows} domains, {} edge ends, {} loss weights",
                self.edge_ends.len(),
                self.loss_weights.len()
            ));
        }
        check_ends("edge ends", &self.edge_ends, rows, self.edges.len())?;
        let names = self.names.len();
        match self.domains.iter().find(|&&it| it as usize >= names) {
            Some(domain) => Err(format!("domain {domain} is outside the {names} names")),
            None => Ok(()),
        }
    }

    fn row<'a>(&'a self, i: usize, ids: &'a [u8]) -> Row<'a> {
        let begin = |ends: &[u32]| i.checked_sub(1).map_or(0, |before| ends[before] as usize);
        Row {
            ids,
            edges: &self.edges[begin(&self.edge_ends)..self.edge_ends[i] as usize],
            domain: &self.names[self.domains[i] as usize],
            loss_weight: self.loss_weights[i],
            masks: &self.masks[begin(&self.mask_ends)..self.mask_ends[i] as usize],
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
    edge_ends: Words<'py>,
    edges: Words<'py>,
    names: Vec<String>,
    domains: Words<'py>,
    loss_weights: PyReadonlyArray1<'py, f32>,
    mask_ends: Option<Words<'py>>,
    masks: Option<Words<'py>>,
) -> PyResult<Bound<'py, PyBytes>> {
    let ids = ids.view(py)?;
    let ids = (*ids).as_ref();
    let lists = Lists::new(
        ids.len(),
        row_bytes,
        &edge_ends,
        &edges,
        names,
        &domains,
        &loss_weights,
        mask_ends,
        masks,
    )?;
    let digests: Vec<u8> = py.detach(|| {
        (0..lists.domains.len())
            .flat_map(|i| digest::row_digest(&lists.row(i, &ids[i * row_bytes..][..row_bytes])))
            .collect()
    });
    Ok(PyBytes::new(py, &digests))
}

/// Copies rows and gives the digests of the copies, in one pass over the ids; see `headrace.native`.
#[pyfunction]
#[pyo3(signature = (ids, into, row_bytes, edge_ends, edges, names, domains, loss_weights, mask_ends=None, masks=None))]
#[allow(clippy::too_many_arguments)]
fn copy_rows<'py>(
    py: Python<'py>,
    ids: PyReadonlyArray1<'py, u8>,
    mut into: PyReadwriteArray1<'py, u8>,
    row_bytes: usize,
    edge_ends: Words<'py>,
    edges: Words<'py>,
    names: Vec<String>,
    domains: Words<'py>,
    loss_weights: PyReadonlyArray1<'py, f32>,
    mask_ends: Option<Words<'py>>,
    masks: Option<Words<'py>>,
) -> PyResult<Bound<'py, PyBytes>> {
    let ids = ids.as_slice()?;
    let into = into.as_slice_mut()?;
    if ids.len() != into.len() {
        let (from, to) = (ids.len(), into.len());
        return Err(PyValueError::new_err(format!(
            "{from} id bytes do not fill the {to} that are to hold them"
        )));
    }
    let lists = Lists::new(
        ids.len(),
        row_bytes,
        &edge_ends,
        &edges,
        names,
        &domains,
        &loss_weights,
        mask_ends,
        masks,
    )?;
    let digests: Vec<u8> = py.detach(|| {
        let mut digests = Vec::with_capacity(16 * lists.domains.len());
        for i in 0..lists.domains.len() {
            let place = i * row_bytes..(i + 1) * row_bytes;
            let copy = &mut into[place.clone()];
            copy.copy_from_slice(&ids[place]);
            digests.extend(digest::row_digest(&lists.row(i, copy)));
        }
        digests
    });
    Ok(PyBytes::new(py, &digests))
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

/// BLAKE3 over the row digests of a step in slot order: in one piece, or one piece after another.
#[pyfunction]
fn step_digest<'py>(
    py: Python<'py>,
    row_digests: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyBytes>> {
    let pieces = pieces(row_digests).ok_or_else(|| PyTypeError::new_err(DIGESTS_NEEDED))?;
    let mut whole = Vec::new();
    for piece in pieces {
        whole.extend_from_slice((*piece.view(py)?).as_ref());
    }
    if whole.is_empty() || !whole.len().is_multiple_of(ROW_DIGEST_BYTES) {
        return Err(PyValueError::new_err(format!(
            "step_digest: {} bytes are no digests of rows, which have {ROW_DIGEST_BYTES} bytes each; {DIGESTS_NEEDED}",
            whole.len()
        )));
    }
    Ok(PyBytes::new(py, &digest::step_digest(&whole)))
}

const ROW_DIGEST_BYTES: usize = 16;
const DIGESTS_NEEDED: &str = "give the row_digests of the step's rows in slot order: bytes, or an array of uint8, or a list with one for each batch";

fn pieces(row_digests: &Bound<'_, PyAny>) -> Option<Vec<Data>> {
    match row_digests.extract::<Data>() {
        Ok(whole) => Some(vec![whole]),
        Err(_) => row_digests.extract().ok(),
    }
}

/// Adds this file's names to the module.
pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_function(wrap_pyfunction!(copy_rows, m)?)?;
    m.add_function(wrap_pyfunction!(row_digests, m)?)?;
    m.add_function(wrap_pyfunction!(step_digest, m)?)
}
