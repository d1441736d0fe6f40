//! The token store's Python face: `TokenStore`, `block_sums` and the incremental `Blake3`.

use std::path::PathBuf;

use numpy::{PyArray1, PyReadonlyArray1};
use pyo3::create_exception;
use pyo3::exceptions::{PyOSError, PyValueError};
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedStr;
use pyo3::types::PyBytes;

use crate::gather::{PADDING, Parts, Store};
use crate::groups::Ask;
use crate::shard::{ShardRef, block_sums as sums_of};
use crate::store_error::StoreError;

create_exception!(
    headrace.native._native,
    DamagedError,
    PyValueError,
    "Bytes of a shard differ from what was written."
);

fn raise(error: StoreError) -> PyErr {
    match &error {
        StoreError::Io(..) => PyOSError::new_err(error.to_string()),
        StoreError::Damaged(path, ..) => Python::attach(|py| {
            let made = DamagedError::new_err(error.to_string());
            match made.value(py).setattr("path", path.display().to_string()) {
                Ok(()) => made,
                Err(failed) => failed,
            }
        }),
        StoreError::Range(..) => PyValueError::new_err(error.to_string()),
    }
}

fn slice<'a, T: numpy::Element>(
    array: &'a PyReadonlyArray1<'_, T>,
    name: &str,
) -> PyResult<&'a [T]> {
    array
        .as_slice()
        .map_err(|_| PyValueError::new_err(format!("`{name}` must be contiguous")))
}

/// XXH3-64 of each block of an array of bytes, 8 little-endian bytes a block.
#[pyfunction]
fn block_sums<'py>(
    py: Python<'py>,
    data: PyReadonlyArray1<'py, u8>,
    block_bytes: usize,
) -> PyResult<Bound<'py, PyBytes>> {
    if block_bytes == 0 {
        return Err(PyValueError::new_err("`block_bytes` must be above 0"));
    }
    let bytes = slice(&data, "data")?;
    let sums = py.detach(|| {
        sums_of(bytes, block_bytes)
            .iter()
            .flat_map(|sum| sum.to_le_bytes())
            .collect::<Vec<u8>>()
    });
    Ok(PyBytes::new(py, &sums))
}

/// Shard, document, source row, begin, end.
type PieceTuple = (u64, u64, u64, u64, u64);

/// Two and three arrays.
type Groups<'py> = (Bound<'py, PyArray1<u64>>, Bound<'py, PyArray1<u32>>);
type Parted<'py> = (
    Bound<'py, PyArray1<u32>>,
    Bound<'py, PyArray1<u64>>,
    Bound<'py, PyArray1<u32>>,
);

/// Path, path of the index, size, digest of the index, tokens, documents, whether in quarantine.
type ShardTuple = (PathBuf, PathBuf, u64, [u8; 32], u64, u64, bool);

fn shard_ref(
    (path, index_path, size, index_digest, tokens, documents, blind): ShardTuple,
) -> ShardRef {
    ShardRef {
        path,
        index_path,
        size,
        index_digest,
        tokens,
        documents,
        blind,
    }
}

/// The shards of a corpus, opened read-only and checked block by block as they are read.
#[pyclass(frozen, module = "headrace.native._native")]
struct TokenStore(Store);

#[pymethods]
impl TokenStore {
    #[new]
    fn new(
        py: Python<'_>,
        id_bytes: usize,
        pad_id: u32,
        streams: Vec<Vec<ShardTuple>>,
    ) -> PyResult<Self> {
        if !matches!(id_bytes, 2 | 4) || (id_bytes == 2 && pad_id > u32::from(u16::MAX)) {
            return Err(PyValueError::new_err(
                "`id_bytes` must be 2 or 4 and hold `pad_id`",
            ));
        }
        let streams = streams
            .into_iter()
            .map(|shards| shards.into_iter().map(shard_ref).collect())
            .collect();
        py.detach(|| Store::open(id_bytes, pad_id, streams))
            .map(Self)
            .map_err(raise)
    }

    /// Ids, edge ends and edges of rows of `row_ids` ids; row r is parts `part_ends[r-1]:part_ends[r]`, then padding.
    /// A part of stream PADDING is padding; with `whole` each part lies within one document.
    #[allow(clippy::type_complexity, clippy::too_many_arguments)]
    fn gather<'py>(
        &self,
        py: Python<'py>,
        row_ids: usize,
        part_ends: PyReadonlyArray1<'py, u32>,
        streams: PyReadonlyArray1<'py, u32>,
        starts: PyReadonlyArray1<'py, u64>,
        lengths: PyReadonlyArray1<'py, u32>,
        whole: bool,
    ) -> PyResult<(
        Bound<'py, PyBytes>,
        Bound<'py, PyArray1<u32>>,
        Bound<'py, PyArray1<u32>>,
    )> {
        let parts = Parts {
            whole,
            ends: slice(&part_ends, "part_ends")?,
            streams: slice(&streams, "streams")?,
            starts: slice(&starts, "starts")?,
            lengths: slice(&lengths, "lengths")?,
        };
        let total = parts.starts.len();
        let ordered = parts.ends.windows(2).all(|pair| pair[0] <= pair[1]);
        let last = parts.ends.last().map_or(0, |&end| end as usize);
        if !ordered || last != total || parts.streams.len() != total || parts.lengths.len() != total
        {
            return Err(PyValueError::new_err("the parts do not fit their ends"));
        }
        let size = row_ids
            .checked_mul(self.0.id_bytes())
            .and_then(|bytes| bytes.checked_mul(parts.ends.len()))
            .ok_or_else(|| PyValueError::new_err("the rows are too large"))?;
        let mut edges = None;
        let ids = PyBytes::new_with(py, size, |out| {
            edges = Some(
                py.detach(|| self.0.gather(parts, row_ids, out))
                    .map_err(raise)?,
            );
            Ok(())
        })?;
        let edges = edges.unwrap_or_default();
        Ok((
            ids,
            PyArray1::from_vec(py, edges.ends),
            PyArray1::from_vec(py, edges.edges),
        ))
    }

    /// Documents of tokens [start, start + length): (shard, document, source row, begin, end) each.
    fn pieces(
        &self,
        py: Python<'_>,
        stream: u32,
        start: u64,
        length: u64,
    ) -> PyResult<Vec<PieceTuple>> {
        let pieces = py
            .detach(|| self.0.pieces(stream, start, length))
            .map_err(raise)?;
        Ok(pieces
            .iter()
            .map(|p| (p.shard, p.document, p.row, p.begin, p.end))
            .collect())
    }

    /// Groups of a `best_fit` view: the first batch of each and the end, and the windows of each.
    fn groups<'py>(
        &self,
        py: Python<'py>,
        stream: u32,
        seq_len: u32,
        group_windows: u64,
    ) -> PyResult<Groups<'py>> {
        if seq_len == 0 {
            return Err(PyValueError::new_err("`seq_len` must be above 0"));
        }
        let groups = py
            .detach(|| self.0.groups(stream, seq_len, group_windows))
            .map_err(raise)?;
        Ok((
            PyArray1::from_vec(py, groups.first_batches),
            PyArray1::from_vec(py, groups.windows),
        ))
    }

    /// Parts of `best_fit` windows: window `numbers[i]` of the group of batches [firsts[i], ends[i]) of `streams[i]`.
    fn best_fit<'py>(
        &self,
        py: Python<'py>,
        seq_len: u32,
        streams: PyReadonlyArray1<'py, u32>,
        firsts: PyReadonlyArray1<'py, u64>,
        ends: PyReadonlyArray1<'py, u64>,
        numbers: PyReadonlyArray1<'py, u32>,
    ) -> PyResult<Parted<'py>> {
        let (streams, firsts) = (slice(&streams, "streams")?, slice(&firsts, "firsts")?);
        let (ends, numbers) = (slice(&ends, "ends")?, slice(&numbers, "numbers")?);
        let count = streams.len();
        if seq_len == 0 || [firsts.len(), ends.len(), numbers.len()] != [count; 3] {
            return Err(PyValueError::new_err(
                "the arrays must be equally long, and `seq_len` above 0",
            ));
        }
        let asks: Vec<Ask> = (0..count)
            .map(|i| Ask {
                stream: streams[i],
                first: firsts[i],
                end: ends[i],
                number: numbers[i],
            })
            .collect();
        let found = py
            .detach(|| self.0.best_fit(&asks, seq_len))
            .map_err(raise)?;
        Ok((
            PyArray1::from_vec(py, found.ends),
            PyArray1::from_vec(py, found.starts),
            PyArray1::from_vec(py, found.lengths),
        ))
    }
}

/// BLAKE3 of a sequence of byte strings.
#[pyclass(module = "headrace.native._native")]
struct Blake3(blake3::Hasher);

#[pymethods]
impl Blake3 {
    #[new]
    fn new() -> Self {
        Self(blake3::Hasher::new())
    }

    /// Takes in more bytes.
    fn update(&mut self, py: Python<'_>, data: &[u8]) {
        py.detach(|| self.0.update(data));
    }

    /// Takes in the bytes of an array.
    fn update_array(&mut self, py: Python<'_>, data: PyReadonlyArray1<'_, u8>) -> PyResult<()> {
        let data = slice(&data, "data")?;
        py.detach(|| self.0.update(data));
        Ok(())
    }

    /// The 32 bytes of the hash of all taken in so far.
    fn digest<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, self.0.finalize().as_bytes())
    }
}

/// XXH3-128 of each text's UTF-8, 16 bytes a text, and the number of its bytes.
#[pyfunction]
fn text_digests<'py>(
    py: Python<'py>,
    texts: Vec<PyBackedStr>,
) -> (Bound<'py, PyBytes>, Bound<'py, PyArray1<i64>>) {
    let digests = py.detach(|| {
        let digest =
            |text: &PyBackedStr| xxhash_rust::xxh3::xxh3_128(text.as_bytes()).to_le_bytes();
        texts.iter().flat_map(digest).collect::<Vec<u8>>()
    });
    let sizes = texts.iter().map(|text| text.len() as i64).collect();
    (PyBytes::new(py, &digests), PyArray1::from_vec(py, sizes))
}

pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add("DamagedError", m.py().get_type::<DamagedError>())?;
    m.add("PADDING", PADDING)?;
    m.add_class::<TokenStore>()?;
    m.add_class::<Blake3>()?;
    m.add_function(wrap_pyfunction!(block_sums, m)?)?;
    m.add_function(wrap_pyfunction!(text_digests, m)?)
}
