//! Byte-level BPE: split text into pieces, count them, learn merges (classical and parity-aware), encode.
//!
//! The path of a training run is `pattern` (text to pieces), `words` (distinct pieces with counts a column),
//! `trainer` (the merge loop over `cells`, `pairs` and `queue`). The path of encoding is `pattern`, then `encoder`.
//! Everything is exact: counts are integers, ties have one written rule, and no result depends on the number of
//! threads or on the order in which text arrived.

pub mod alphabet;
pub mod apply;
pub mod ascii;
pub mod batch;
pub mod blocks;
pub mod cache;
pub mod cells;
pub mod config;
pub mod counter;
pub mod encoder;
pub mod evidence;
pub mod greedy;
pub mod memory;
pub mod mismatch;
pub mod packed;
pub mod pages;
pub mod pairs;
pub mod pattern;
pub mod piece;
pub mod queue;
pub mod ranks;
pub mod run;
pub mod scan;
pub mod select;
pub mod slots;
pub mod state;
pub mod table;
pub mod tokens;
pub mod trainer;
pub mod trie;
pub mod unicode;
pub mod words;
