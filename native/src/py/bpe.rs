//! BPE training in Python: a counter of pieces, a trainer that is stepped, kept and taken up again; patterns.

use std::time::{Duration, Instant};

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedStr;
use pyo3::types::PyBytes;

use crate::bpe::config::{Config, Development, Rule};
use crate::bpe::counter::Counter;
use crate::bpe::mismatch::compare;
use crate::bpe::pattern::{NAMES, Pattern};
use crate::bpe::run::{MergeLoop, Step, resume, start};
use crate::bpe::select::Window;
use crate::bpe::state::State;

/// How long the trainer runs before Python may handle a signal.
const SLICE: Duration = Duration::from_millis(50);

type MergeRow = (u32, u32, u32, Option<u32>, u64, u64);
type MismatchRow = (f64, f64, usize, Vec<(char, f64, f64)>);

fn value_error(message: String) -> PyErr {
    PyValueError::new_err(message)
}

/// Counts the pieces of texts, a column a language and use.
#[pyclass(name = "PieceCounter", module = "headrace.native._native")]
struct PieceCounter(Counter);

#[pymethods]
impl PieceCounter {
    #[new]
    #[pyo3(signature = (pattern, columns, most_pieces=None))]
    fn new(pattern: &str, columns: usize, most_pieces: Option<usize>) -> PyResult<Self> {
        let pattern = Pattern::named(pattern).map_err(value_error)?;
        let mut counter = Counter::new(pattern, columns).map_err(value_error)?;
        if let Some(most) = most_pieces {
            counter.limit(most);
        }
        Ok(Self(counter))
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

    /// (pieces, occurrences) that were dropped from a column because it had too many.
    fn dropped(&self, column: usize) -> PyResult<(u64, u64)> {
        self.seen(column).map(|_| self.0.dropped(column))
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
    done: Vec<MergeRow>,
}

#[pymethods]
impl BpeTrainer {
    /// Takes the pieces out of the counter, or goes on at a state, given with the bytes of each column. Columns: languages' training text, then their development text, in one
    /// part or, for `split`, two. `mixed` is (part, whole, eta, kappa), `norm` (part, whole, power).
    #[new]
    #[pyo3(signature = (counter, *, languages, development, lines, max_tokens, max_merges, global_merges=0,
        min_frequency=2, window=None, ratio=None, stop_when_exhausted=false, least_word_count=1, mixed=None, norm=None,
        cross_from=0, state=None))]
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
        cross_from: usize,
        state: Option<(Vec<u64>, &[u8])>,
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
            cross_from,
            min_frequency,
            window: window.map(|(size, alpha, parts)| Window { size, alpha, parts }),
            ratio,
            stop_when_exhausted,
            bytes: match &state {
                Some((bytes, _)) => bytes.clone(),
                None => (0..counter.0.columns())
                    .map(|column| counter.0.seen(column).1)
                    .collect(),
            },
            lines,
        };
        let trainer = py.detach(|| {
            if let Some((_, state)) = state {
                return resume(State::from_bytes(state)?, config);
            }
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
            done: Vec::new(),
        })
    }

    /// Merge for a moment.
    fn run(&mut self, py: Python<'_>) {
        py.detach(|| {
            let start = Instant::now();
            while start.elapsed() < SLICE && !self.is_exhausted && !self.is_complete {
                match self.trainer.step() {
                    Step::Merged(m) => self
                        .done
                        .push((m.left, m.right, m.token, m.language, m.count, m.saved)),
                    Step::Complete => self.is_complete = true,
                    Step::Exhausted => self.is_exhausted = true,
                }
            }
        });
    }

    /// The merges from this number on, as (left, right, token, language, count, tokens saved). They are kept here, so
    /// that none is lost when a signal comes between the merging and the asking.
    fn rows(&self, first: usize) -> Vec<MergeRow> {
        self.done.get(first..).unwrap_or_default().to_vec()
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

    /// Where the run stands, for a run with the same settings to go on.
    fn state<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        let bytes = py.detach(|| self.trainer.state().to_bytes());
        PyBytes::new(py, &bytes)
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
    m.add_function(wrap_pyfunction!(split_pieces, m)?)?;
    m.add_function(wrap_pyfunction!(count_pieces, m)?)?;
    m.add_function(wrap_pyfunction!(pattern_regex, m)?)?;
    m.add_function(wrap_pyfunction!(pattern_names, m)?)?;
    Ok(())
}
