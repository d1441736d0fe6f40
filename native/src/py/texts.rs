//! Texts and their way to documents for Python: `Texts`, `encode_documents`, `count_ids`.

use numpy::{IntoPyArray, PyArray1, PyReadonlyArray1};
use pyo3::exceptions::{PyIndexError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyString;

use crate::documents::{Documents, Id, Rule, count, encode};
use crate::py::encoder::BpeEncoder;
use crate::texts::{Run, Texts as Inner};

/// Texts of documents and the rows they stand in.
#[pyclass(module = "headrace.native._native")]
struct Texts(Inner);

/// Rows taken, and where the next row begins.
type Taken = (usize, usize);

fn taken(run: Run) -> Taken {
    (run.rows, run.at)
}

fn within(at: usize, length: usize) -> PyResult<()> {
    if at > length {
        return Err(PyValueError::new_err("`at` lies behind the end"));
    }
    Ok(())
}

/// The part of a block before `end`.
fn until(block: &[u8], end: usize) -> PyResult<&[u8]> {
    let part = block.get(..end);
    part.ok_or_else(|| PyValueError::new_err("`end` lies behind the block"))
}

#[pymethods]
impl Texts {
    #[new]
    fn new() -> Self {
        Self(Inner::default())
    }

    fn __len__(&self) -> usize {
        self.0.len()
    }

    fn __getitem__<'py>(&self, py: Python<'py>, number: isize) -> PyResult<Bound<'py, PyString>> {
        let length = self.0.len() as isize;
        let at = if number < 0 { number + length } else { number };
        if !(0..length).contains(&at) {
            return Err(PyIndexError::new_err("there is no such text"));
        }
        Ok(PyString::new(py, self.0.get(at as usize)))
    }

    /// UTF-8 bytes of all texts.
    #[getter]
    fn bytes(&self) -> usize {
        self.0.bytes()
    }

    /// The row of each text.
    #[getter]
    fn rows<'py>(&self, py: Python<'py>) -> Bound<'py, PyArray1<u64>> {
        PyArray1::from_slice(py, self.0.rows())
    }

    /// Adds a text.
    fn push(&mut self, row: u64, text: &str) {
        self.0.push(row, text);
    }

    /// Adds all texts of another one.
    fn extend(&mut self, other: PyRef<'_, Self>) {
        self.0.extend(&other.0);
    }

    /// Lets go of all texts.
    fn clear(&mut self) {
        self.0 = Inner::default();
    }

    /// The texts that `keep` names.
    fn select(&self, keep: Vec<bool>) -> PyResult<Self> {
        if keep.len() != self.0.len() {
            return Err(PyValueError::new_err(
                "`keep` must say yes or no to each text",
            ));
        }
        Ok(Self(self.0.select(&keep)))
    }

    /// Takes plain JSON lines of a block in [at, end), the next of them row `row`, up to the first odd one:
    /// (rows taken, where the next line begins, raw JSON of the fields `names` of each).
    #[allow(clippy::too_many_arguments)]
    fn take_jsonl(
        &mut self,
        py: Python<'_>,
        block: &[u8],
        at: usize,
        end: usize,
        row: u64,
        field: &str,
        names: Vec<String>,
    ) -> PyResult<(usize, usize, Vec<Vec<String>>)> {
        let block = until(block, end)?;
        within(at, end)?;
        let texts = &mut self.0;
        Ok(py.detach(|| {
            let mut others = Vec::new();
            let run = texts.take_jsonl(block, at, row, field, &names, &mut others);
            let owned = |each: Vec<&str>| each.into_iter().map(str::to_owned).collect();
            (run.rows, run.at, others.into_iter().map(owned).collect())
        }))
    }

    /// Takes lines of plain text likewise; an empty one and one that is not UTF-8 are odd.
    fn take_text_lines(
        &mut self,
        py: Python<'_>,
        block: &[u8],
        at: usize,
        end: usize,
        row: u64,
    ) -> PyResult<Taken> {
        let block = until(block, end)?;
        within(at, end)?;
        let texts = &mut self.0;
        Ok(taken(py.detach(|| texts.take_text_lines(block, at, row))))
    }

    /// Takes values of a column from `at` on; the first of all stands in row `row`. Null, empty, not UTF-8: odd.
    #[pyo3(signature = (data, offsets, valid, at, row))]
    fn take_column(
        &mut self,
        py: Python<'_>,
        data: PyReadonlyArray1<'_, u8>,
        offsets: PyReadonlyArray1<'_, i64>,
        valid: Option<PyReadonlyArray1<'_, bool>>,
        at: usize,
        row: u64,
    ) -> PyResult<Taken> {
        let (data, offsets) = (data.as_slice()?, offsets.as_slice()?);
        let valid = valid.as_ref().map(|valid| valid.as_slice()).transpose()?;
        if valid.is_some_and(|valid| valid.len() + 1 != offsets.len()) {
            return Err(PyValueError::new_err("`valid` does not fit `offsets`"));
        }
        within(at, offsets.len())?;
        let texts = &mut self.0;
        Ok(taken(py.detach(|| {
            texts.take_column(data, offsets, valid, at, row)
        })))
    }
}

/// Ids, ends, digests, sizes of the texts, numbers of those that hold the spelling.
type Encoded<'py> = (
    Bound<'py, PyAny>,
    Bound<'py, PyArray1<i64>>,
    Bound<'py, PyArray1<u8>>,
    Bound<'py, PyArray1<i64>>,
    Vec<usize>,
);

/// Documents of texts, ids in `id_bytes` bytes, with an id before and after each.
#[pyfunction]
#[pyo3(signature = (encoder, texts, before, after, id_bytes, spelling, threads))]
#[allow(clippy::too_many_arguments)]
fn encode_documents<'py>(
    py: Python<'py>,
    encoder: &BpeEncoder,
    texts: PyRef<'py, Texts>,
    before: Option<u32>,
    after: Option<u32>,
    id_bytes: usize,
    spelling: &str,
    threads: usize,
) -> PyResult<Encoded<'py>> {
    let rule = Rule {
        before,
        after,
        spelling,
    };
    match id_bytes {
        2 => encoded::<u16>(py, encoder, &texts.0, rule, threads),
        4 => encoded::<u32>(py, encoder, &texts.0, rule, threads),
        _ => Err(PyValueError::new_err("`id_bytes` must be 2 or 4")),
    }
}

fn encoded<'py, T: Id + numpy::Element>(
    py: Python<'py>,
    encoder: &BpeEncoder,
    texts: &Inner,
    rule: Rule<'_>,
    threads: usize,
) -> PyResult<Encoded<'py>> {
    let done: Documents<T> = py
        .detach(|| encode(&encoder.0, texts, rule, threads))
        .map_err(PyValueError::new_err)?;
    Ok((
        done.ids.into_pyarray(py).into_any(),
        done.ends.into_pyarray(py),
        done.digests.into_pyarray(py),
        done.sizes.into_pyarray(py),
        done.spelling,
    ))
}

/// How often each id occurs in an array of uint16 or uint32, up to the largest that does.
#[pyfunction]
fn count_ids<'py>(py: Python<'py>, ids: Bound<'py, PyAny>) -> PyResult<Bound<'py, PyArray1<i64>>> {
    let counts = if let Ok(ids) = ids.extract::<PyReadonlyArray1<'_, u16>>() {
        let ids = ids.as_slice()?;
        py.detach(|| count(ids))
    } else if let Ok(ids) = ids.extract::<PyReadonlyArray1<'_, u32>>() {
        let ids = ids.as_slice()?;
        py.detach(|| count(ids))
    } else {
        return Err(PyTypeError::new_err("`ids` must be uint16 or uint32"));
    };
    Ok(counts.into_pyarray(py))
}

pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<Texts>()?;
    m.add_function(wrap_pyfunction!(encode_documents, m)?)?;
    m.add_function(wrap_pyfunction!(count_ids, m)?)
}
