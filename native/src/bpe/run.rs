//! A training run as its callers see it: begun or taken up again, stepped, asked, and kept.

use crate::bpe::config::{Config, Rule};
use crate::bpe::evidence::{Evidence, Mixed, PowerNorm, TrainCounts};
use crate::bpe::state::State;
use crate::bpe::trainer::Trainer;
use crate::bpe::words::Words;

/// One merge, with what chose it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Merge {
    pub left: u32,
    pub right: u32,
    pub token: u32,
    /// None in the global phase, and for a norm
    pub language: Option<u32>,
    /// Occurrences in the text of who chose it
    pub count: u64,
    /// Tokens that it saved in the text that is that language's score (of all languages when there is none)
    pub saved: u64,
}

/// What a step did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    Merged(Merge),
    /// The number of tokens or merges asked for is there
    Complete,
    /// No language has a pair left that is frequent enough
    Exhausted,
}

/// A training run that is stepped.
pub trait MergeLoop: Send + Sync {
    /// Do one merge.
    fn step(&mut self) -> Step;
    /// Number of tokens of each column now.
    fn totals(&self) -> &[u64];
    /// For each language, the number of merges after which it had no pair left.
    fn exhausted(&self) -> &[Option<usize>];
    /// Everything that a run with the same settings needs to go on from here.
    fn state(&self) -> State;
}

/// Begin a training run.
pub fn start(words: Words, config: Config) -> Result<Box<dyn MergeLoop>, String> {
    config.check(&words)?;
    with_rule(config, Begin::New(words))
}

/// Take up a run where `state` was taken; the settings must be the same.
pub fn resume(state: State, config: Config) -> Result<Box<dyn MergeLoop>, String> {
    config.check_columns(state.totals.len())?;
    with_rule(config, Begin::At(Box::new(state)))
}

enum Begin {
    New(Words),
    At(Box<State>),
}

fn with_rule(config: Config, begin: Begin) -> Result<Box<dyn MergeLoop>, String> {
    let min_frequency = config.min_frequency.max(1);
    match config.rule {
        Rule::Train => {
            let evidence = TrainCounts {
                languages: config.languages,
                min_frequency,
            };
            boxed(config, evidence, begin)
        }
        Rule::Mixed {
            part,
            whole,
            eta,
            kappa,
        } => {
            let evidence = Mixed {
                sizes: config.sizes(),
                part,
                whole,
                eta,
                kappa,
                min_frequency,
            };
            boxed(config, evidence, begin)
        }
        Rule::Norm { part, whole, power } => {
            let evidence = PowerNorm {
                sizes: config.sizes(),
                lambda: part as f64 / whole as f64,
                power,
                min_frequency,
                cost: (config.cost_column(), config.lines),
                weights: vec![1.0; config.languages],
            };
            boxed(config, evidence, begin)
        }
    }
}

fn boxed<E: Evidence + 'static>(
    config: Config,
    evidence: E,
    begin: Begin,
) -> Result<Box<dyn MergeLoop>, String> {
    Ok(match begin {
        Begin::New(words) => Box::new(Trainer::new(words, config, evidence)?),
        Begin::At(state) => Box::new(Trainer::resume(*state, config, evidence)?),
    })
}
