//! What to learn, checked against the text that was counted.

use crate::bpe::cells::MAX_TOKENS;
use crate::bpe::evidence::Sizes;
use crate::bpe::select::Window;
use crate::bpe::words::Words;

/// What the development columns are for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Development {
    /// There is none: training text is the score
    None,
    /// Columns L..2L: evidence and score
    Shared,
    /// Columns L..2L are evidence, 2L..3L the score, so that what was learned by heart is no score
    Split,
}

impl Development {
    /// How many columns a language has.
    pub fn columns(self) -> usize {
        match self {
            Self::None => 1,
            Self::Shared => 2,
            Self::Split => 3,
        }
    }
}

/// How the worth of a pair is judged (see `evidence`).
#[derive(Clone, Copy, Debug)]
pub enum Rule {
    Train,
    Mixed {
        part: u64,
        whole: u64,
        eta: f64,
        kappa: f64,
    },
    Norm {
        part: u64,
        whole: u64,
        power: u32,
    },
}

/// Settings of a training run.
#[derive(Clone, Debug)]
pub struct Config {
    pub languages: usize,
    pub development: Development,
    pub rule: Rule,
    /// Most tokens to make, the 256 bytes included
    pub max_tokens: usize,
    /// Most merges to write
    pub max_merges: usize,
    /// Steps that choose the pair by the sum over languages, before parity begins
    pub global_merges: usize,
    /// Merges before any pair across a blank inside a piece is merged, if there are as many; 0 for no such rule
    pub cross_from: usize,
    /// A pair must occur this often in the text that the language that asks for it judges by
    pub min_frequency: u64,
    pub window: Option<Window>,
    /// Wanted compression of each language, relative to the first; instead of a development set
    pub ratio: Option<Vec<f64>>,
    /// End at the first exhausted language, as the reference implementation does
    pub stop_when_exhausted: bool,
    /// UTF-8 bytes of each column's text, and development lines of a language
    pub bytes: Vec<u64>,
    pub lines: u64,
}

impl Config {
    /// Whether the settings fit each other and the words.
    pub fn check(&self, words: &Words) -> Result<(), String> {
        self.check_columns(words.columns)
    }

    /// The same for this number of columns.
    pub fn check_columns(&self, counted: usize) -> Result<(), String> {
        let columns = self.languages * self.development.columns();
        if self.languages == 0 || counted != columns || self.bytes.len() != columns {
            return Err(format!(
                "{counted} columns of text were counted, {columns} are needed"
            ));
        }
        if self.max_tokens > MAX_TOKENS || self.max_tokens < 256 {
            return Err(format!(
                "a vocabulary must hold between 256 and {MAX_TOKENS} tokens, not {}",
                self.max_tokens
            ));
        }
        let ratio_fits = |ratio: &Vec<f64>| {
            ratio.len() == self.languages && ratio.iter().all(|r| r.is_finite() && *r > 0.0)
        };
        if !self.ratio.as_ref().is_none_or(ratio_fits) {
            return Err(format!(
                "ratios must be {} positive numbers, not {:?}",
                self.languages, self.ratio
            ));
        }
        if let Some(Window { size, alpha, .. }) = self.window
            && !(size > 0 && alpha.is_finite() && alpha > 0.0)
        {
            return Err(format!(
                "a window needs a positive size and alpha, not {size} and {alpha}"
            ));
        }
        self.check_rule()
    }

    fn check_rule(&self) -> Result<(), String> {
        let (part, whole) = match self.rule {
            Rule::Train => return Ok(()),
            Rule::Mixed {
                part,
                whole,
                eta,
                kappa,
            } => {
                if !(eta.is_finite() && eta >= 0.0 && (0.0..=1.0).contains(&kappa)) {
                    return Err(format!(
                        "eta must be 0 or more and kappa between 0 and 1, not {eta} and {kappa}"
                    ));
                }
                (part, whole)
            }
            Rule::Norm { part, whole, power } => {
                if !(1..=64).contains(&power) {
                    return Err(format!(
                        "the power of the norm must be between 1 and 64, not {power}"
                    ));
                }
                (part, whole)
            }
        };
        if self.development == Development::None || self.lines == 0 {
            return Err("mixed evidence needs development text".into());
        }
        if whole == 0 || part > whole || whole > 1 << 20 {
            return Err(format!(
                "the part of the development text must be between 0 and 1, not {part}/{whole}"
            ));
        }
        Ok(())
    }

    /// The sizes that weigh training against development text.
    pub fn sizes(&self) -> Sizes {
        Sizes {
            train: self.bytes[..self.languages].to_vec(),
            dev: self.bytes[self.languages..2 * self.languages].to_vec(),
            lines: self.lines.max(1),
        }
    }

    /// First of the columns whose tokens are the languages' costs.
    pub fn cost_column(&self) -> usize {
        if self.ratio.is_some() {
            0
        } else {
            (self.development.columns() - 1) * self.languages
        }
    }
}
