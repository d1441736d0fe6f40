//! `scan_jsonl` for Python: the plain lines of a block at once.

use numpy::PyArray1;
use pyo3::prelude::*;
use pyo3::types::{PyList, PyString};

use crate::jsonl::plain;

/// Texts of plain lines, ends of all lines (after their LF), and for each plain line the raw other fields.
type Scanned<'py> = (
    Bound<'py, PyList>,
    Bound<'py, PyArray1<u64>>,
    Vec<Vec<String>>,
);

/// Text of each line of a block (None for a line that takes a careful look), the ends of the lines (after their LF),
/// and the raw JSON of `others` for each plain line (nothing when there are none).
#[pyfunction]
fn scan_jsonl<'py>(
    py: Python<'py>,
    block: &[u8],
    field: &str,
    others: Vec<String>,
) -> PyResult<Scanned<'py>> {
    let (found, ends) = py.detach(|| {
        let mut ends = Vec::new();
        let mut found = Vec::new();
        let mut start = 0;
        let last = (!block.ends_with(b"\n") && !block.is_empty()).then_some(block.len());
        for end in memchr::memchr_iter(b'\n', block)
            .map(|at| at + 1)
            .chain(last)
        {
            let line = &block[start..end];
            ends.push(end as u64);
            found.push(plain(
                line.strip_suffix(b"\n").unwrap_or(line),
                field,
                &others,
            ));
            start = end;
        }
        (found, ends)
    });
    let texts = PyList::empty(py);
    let mut raw = Vec::new();
    for line in &found {
        match line {
            Some(line) => {
                texts.append(PyString::new(py, &line.text))?;
                if !others.is_empty() {
                    raw.push(line.others.iter().map(|&other| other.to_owned()).collect());
                }
            }
            None => texts.append(py.None())?,
        }
    }
    Ok((texts, PyArray1::from_vec(py, ends), raw))
}

pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_function(wrap_pyfunction!(scan_jsonl, m)?)
}
