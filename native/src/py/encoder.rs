//! The encoder in Python: texts in, one array of ids out, and back.

use numpy::{IntoPyArray, PyArray1, PyReadonlyArray1};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedStr;
use pyo3::types::PyBytes;

use crate::bpe::batch::texts_of;
use crate::bpe::encoder::Encoder;
use crate::bpe::pattern::Pattern;

type FlatBatch<'py> = (Bound<'py, PyArray1<u32>>, Bound<'py, PyArray1<u64>>);

fn value_error(message: String) -> PyErr {
    PyValueError::new_err(message)
}

/// A tokenizer's tables: text to ids and back.
#[pyclass(name = "BpeEncoder", module = "headrace.native._native", frozen)]
pub struct BpeEncoder(pub Encoder);

#[pymethods]
impl BpeEncoder {
    #[new]
    fn new(
        py: Python<'_>,
        pattern: &str,
        tokens: Vec<Vec<u8>>,
        specials: Vec<u32>,
        merges: Vec<(u32, u32)>,
    ) -> PyResult<Self> {
        if let Some(id) = specials.iter().find(|id| **id as usize >= tokens.len()) {
            return Err(PyValueError::new_err(format!(
                "special id {id} is outside the vocabulary"
            )));
        }
        let pattern = Pattern::named(pattern).map_err(value_error)?;
        py.detach(|| Encoder::new(pattern, &tokens, &specials, &merges))
            .map(Self)
            .map_err(value_error)
    }

    /// Flat ids of the texts, and where each text ends among them.
    fn encode_batch<'py>(
        &self,
        py: Python<'py>,
        texts: Vec<PyBackedStr>,
        allow_special: bool,
        threads: usize,
    ) -> PyResult<FlatBatch<'py>> {
        let (ids, ends) = py
            .detach(|| {
                let texts: Vec<&str> = texts.iter().map(|text| &**text).collect();
                self.0.encode_batch(&texts, allow_special, threads)
            })
            .map_err(value_error)?;
        Ok((ids.into_pyarray(py), ends.into_pyarray(py)))
    }

    /// The same of texts that lie one behind the other in an array of bytes, text i from offset i to offset i + 1.
    fn encode_buffer<'py>(
        &self,
        py: Python<'py>,
        bytes: PyReadonlyArray1<'py, u8>,
        offsets: PyReadonlyArray1<'py, i64>,
        allow_special: bool,
        threads: usize,
    ) -> PyResult<FlatBatch<'py>> {
        let fails = |e: numpy::AsSliceError| PyValueError::new_err(e.to_string());
        let (bytes, offsets) = (
            bytes.as_slice().map_err(fails)?,
            offsets.as_slice().map_err(fails)?,
        );
        let encode = || {
            let texts = texts_of(bytes, offsets)?;
            self.0.encode_batch(&texts, allow_special, threads)
        };
        let (ids, ends) = py.detach(encode).map_err(value_error)?;
        Ok((ids.into_pyarray(py), ends.into_pyarray(py)))
    }

    /// The bytes of ids.
    fn decode<'py>(
        &self,
        py: Python<'py>,
        ids: PyReadonlyArray1<'py, u32>,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let ids = ids
            .as_slice()
            .map_err(|e| PyValueError::new_err(e.to_string()))?
            .to_vec();
        let bytes = py.detach(|| self.0.decode(&ids)).map_err(value_error)?;
        Ok(PyBytes::new(py, &bytes))
    }

    /// How many times each special token is written out in the texts: (id, count)s.
    fn count_specials(&self, py: Python<'_>, texts: Vec<PyBackedStr>) -> Vec<(u32, u64)> {
        py.detach(|| {
            let mut counts = std::collections::BTreeMap::new();
            for text in &texts {
                for (_, _, id) in self.0.find_specials(text) {
                    *counts.entry(id).or_insert(0u64) += 1;
                }
            }
            counts.into_iter().collect()
        })
    }

    /// Ids that no text can give.
    fn unreachable(&self) -> Vec<u32> {
        self.0.unreachable()
    }
}

pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<BpeEncoder>()
}
