//! The Rust core of Headrace. Modules here know no Python; `py` binds them.

pub mod best_fit;
pub mod bpe;
pub mod digest;
pub mod documents;
pub mod ends;
pub mod gather;
pub mod groups;
pub mod jsonl;
pub mod perm;
pub mod plan;
mod py;
pub mod reader;
pub mod reply;
pub mod rng;
pub mod shard;
pub mod shard_index;
pub mod store_error;
pub mod stream;
pub mod texts;
