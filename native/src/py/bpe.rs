//! The BPE of the crate in Python: a counter of pieces, a trainer that is stepped, an encoder.

use std::time::{Duration, Instant};

use numpy::{IntoPyArray, PyArray1, PyReadonlyArray1};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedStr;
use pyo3::types::PyBytes;

use crate::bpe::config::{Config, Development, Rule};
use crate::bpe::encoder::Encoder;
use crate::bpe::mismatch::compare;
use crate::bpe::pattern::{NAMES, Pattern};
use crate::bpe::select::Window;
use crate::bpe::trainer::{MergeLoop, Step, start};
use crate::bpe::words::Counter;

/// How long the trainer runs before Python may handle a signal.
const SLICE: Duration = Duration::from_millis(50);

type MergeRow = (u32, u32, u32, Option<u32>, u64, u64);
type MismatchRow = (f64, f64, usize, Vec<(char, f64, f64)>);
type FlatBatch<'py> = (Bound<'py, PyArray1<u32>>, Bound<'py, PyArray1<u64>>);

fn value_error(message: String) -> PyErr {
    PyValueError::new_err(message)
}

/// Counts the pieces of texts, a column a language and use.
#[pyclass(name = "PieceCounter", module = "headrace.native._native")]
struct PieceCounter(Counter);

#[pymethods]
impl PieceCounter {
    #[new]
    fn new(pattern: &str, columns: usize) -> PyResult<Self> {
        let pattern = Pattern::named(pattern).map_err(value_error)?;
        Ok(Self(Counter::new(pattern, columns).map_err(value_error)?))
    }

    /// Count documents of a column.
    fn add(
        &mut self,
        py: Python<'_>,
        column: usize,
        texts: Vec<PyBackedStr>,
        threads: usize,
    ) -> PyResult<()> {
        py.detach(|| {
            let texts: Vec<&str> = texts.iter().map(|text| &**text).collect();
            self.0.add(column, &texts, threads)
        })
        .map_err(value_error)
    }

    /// Count the next bytes of a stream that is one document. Not None: after how many bytes, from the start of what
    /// was not yet counted, it is no UTF-8.
    fn add_chunk(
        &mut self,
        py: Python<'_>,
        column: usize,
        chunk: &[u8],
        last: bool,
        threads: usize,
    ) -> PyResult<Option<usize>> {
        let done = py.detach(|| self.0.add_chunk(column, chunk, last, threads));
        Ok(done.map_err(value_error)?.err())
    }

    /// How a development column differs from a training column: parts of its characters and pairs of characters that
    /// the other never has, distinct characters of training, and (character, share in training, share in development) of those on one side.
    fn mismatch(&self, py: Python<'_>, train: usize, dev: usize) -> PyResult<MismatchRow> {
        if train.max(dev) >= self.0.columns() {
            return Err(PyValueError::new_err(format!(
                "there is no column {}",
                train.max(dev)
            )));
        }
        let found = py.detach(|| compare(&self.0, train, dev));
        Ok((
            found.unseen_characters,
            found.unseen_pairs,
            found.alphabet,
            found.one_sided,
        ))
    }

    /// (documents, bytes, distinct pieces) of a column.
    fn seen(&self, column: usize) -> PyResult<(u64, u64, u64)> {
        if column >= self.0.columns() {
            return Err(PyValueError::new_err(format!(
                "there is no column {column}"
            )));
        }
        Ok(self.0.seen(column))
    }
}

/// The merge loop.
#[pyclass(name = "BpeTrainer", module = "headrace.native._native")]
struct BpeTrainer {
    trainer: Box<dyn MergeLoop>,
    is_exhausted: bool,
    is_complete: bool,
}

#[pymethods]
impl BpeTrainer {
    /// Takes the pieces out of the counter. Columns: languages' training text, then their development text, in one
    /// part or, for `split`, two. `mixed` is (part, whole, eta, kappa), `norm` (part, whole, power).
    #[new]
    #[pyo3(signature = (counter, *, languages, development, lines, max_tokens, max_merges, global_merges=0,
        min_frequency=2, window=None, ratio=None, stop_when_exhausted=false, least_word_count=1, mixed=None, norm=None))]
    #[allow(clippy::too_many_arguments)]
    fn new(
        py: Python<'_>,
        counter: &mut PieceCounter,
        languages: usize,
        development: &str,
        lines: u64,
        max_tokens: usize,
        max_merges: usize,
        global_merges: usize,
        min_frequency: u64,
        window: Option<(usize, f64, usize)>,
        ratio: Option<Vec<f64>>,
        stop_when_exhausted: bool,
        least_word_count: u64,
        mixed: Option<(u64, u64, f64, f64)>,
        norm: Option<(u64, u64, u32)>,
    ) -> PyResult<Self> {
        let config = Config {
            languages,
            development: match development {
                "none" => Development::None,
                "shared" => Development::Shared,
                "split" => Development::Split,
                other => {
                    return Err(PyValueError::new_err(format!(
                        "unknown use of development text `{other}`"
                    )));
                }
            },
            rule: match (mixed, norm) {
                (Some((part, whole, eta, kappa)), None) => Rule::Mixed {
                    part,
                    whole,
                    eta,
                    kappa,
                },
                (None, Some((part, whole, power))) => Rule::Norm { part, whole, power },
                (None, None) => Rule::Train,
                (Some(_), Some(_)) => return Err(PyValueError::new_err("give one rule, not two")),
            },
            max_tokens,
            max_merges,
            global_merges,
            min_frequency,
            window: window.map(|(size, alpha, parts)| Window { size, alpha, parts }),
            ratio,
            stop_when_exhausted,
            bytes: (0..counter.0.columns())
                .map(|column| counter.0.seen(column).1)
                .collect(),
            lines,
        };
        let trainer = py.detach(|| {
            let mut words = counter.0.take_words();
            if least_word_count > 1 {
                words.drop_rare(languages, least_word_count);
            }
            start(words, config)
        });
        Ok(Self {
            trainer: trainer.map_err(value_error)?,
            is_exhausted: false,
            is_complete: false,
        })
    }

    /// Merge for a moment; the merges done, as (left, right, token, language, count, tokens saved).
    fn run(&mut self, py: Python<'_>) -> Vec<MergeRow> {
        py.detach(|| {
            let start = Instant::now();
            let mut done = Vec::new();
            while start.elapsed() < SLICE && !self.is_exhausted && !self.is_complete {
                match self.trainer.step() {
                    Step::Merged(m) => {
                        done.push((m.left, m.right, m.token, m.language, m.count, m.saved))
                    }
                    Step::Complete => self.is_complete = true,
                    Step::Exhausted => self.is_exhausted = true,
                }
            }
            done
        })
    }

    /// All tokens or merges asked for are there.
    #[getter]
    fn is_complete(&self) -> bool {
        self.is_complete
    }

    /// No pair is left that may be merged.
    #[getter]
    fn is_exhausted(&self) -> bool {
        self.is_exhausted
    }

    /// Tokens of each column now.
    #[getter]
    fn totals(&self) -> Vec<u64> {
        self.trainer.totals().to_vec()
    }

    /// For each language, after how many merges it had no pair left.
    #[getter]
    fn exhausted(&self) -> Vec<Option<usize>> {
        self.trainer.exhausted().to_vec()
    }
}

/// A tokenizer's tables: text to ids and back.
#[pyclass(name = "BpeEncoder", module = "headrace.native._native", frozen)]
struct BpeEncoder(Encoder);

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

/// The pieces of a text under a pattern.
#[pyfunction]
fn split_pieces<'py>(
    py: Python<'py>,
    pattern: &str,
    text: &str,
) -> PyResult<Vec<Bound<'py, PyBytes>>> {
    let mut pieces = Vec::new();
    let pattern = Pattern::named(pattern).map_err(value_error)?;
    pattern
        .for_each(text, |piece| pieces.push(PyBytes::new(py, piece)))
        .map_err(value_error)?;
    Ok(pieces)
}

/// How many pieces each text has under a pattern.
#[pyfunction]
fn count_pieces(py: Python<'_>, pattern: &str, texts: Vec<PyBackedStr>) -> PyResult<Vec<u64>> {
    let pattern = Pattern::named(pattern).map_err(value_error)?;
    py.detach(|| {
        let count = |text: &PyBackedStr| {
            let mut count = 0;
            pattern.for_each(text, |_| count += 1).map(|()| count)
        };
        texts
            .iter()
            .map(count)
            .collect::<Result<Vec<u64>, String>>()
    })
    .map_err(value_error)
}

/// The regular expression of a named pattern; None where it is not one split.
#[pyfunction]
fn pattern_regex(pattern: &str) -> PyResult<Option<String>> {
    Ok(Pattern::named(pattern).map_err(value_error)?.regex())
}

/// The names of the patterns, the default first.
#[pyfunction]
fn pattern_names() -> Vec<&'static str> {
    NAMES.to_vec()
}

pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<PieceCounter>()?;
    m.add_class::<BpeTrainer>()?;
    m.add_class::<BpeEncoder>()?;
    m.add_function(wrap_pyfunction!(split_pieces, m)?)?;
    m.add_function(wrap_pyfunction!(count_pieces, m)?)?;
    m.add_function(wrap_pyfunction!(pattern_regex, m)?)?;
    m.add_function(wrap_pyfunction!(pattern_names, m)?)?;
    Ok(())
}
