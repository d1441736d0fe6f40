//! What can be wrong with the files of a token store, in words that name file, place and remedy.

use std::fmt;
use std::path::PathBuf;

/// What went wrong with a shard; the message names the file.
#[derive(Debug)]
pub enum StoreError {
    /// The operating system refused.
    Io(PathBuf, std::io::Error),
    /// Bytes differ from what was written: file, byte offset, what differs.
    Damaged(PathBuf, u64, String),
    /// The caller asked for tokens that the stream does not have.
    Range(String),
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(path, error) => write!(f, "cannot read `{}`: {error}", path.display()),
            Self::Damaged(path, at, what) => write!(
                f,
                "`{}` is damaged at byte {at}: {what}; restore the file, or mend it: headrace corpus build --check CORPUS.toml",
                path.display()
            ),
            Self::Range(what) => f.write_str(what),
        }
    }
}
