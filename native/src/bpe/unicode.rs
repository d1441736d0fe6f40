//! Classes of code points as one byte of flags each, in a two-stage table small enough for the cache.
//!
//! Made once a process from the tables of `regex-syntax`, so that the hand-written scanners and the regex engine
//! agree on the version of Unicode.

use std::collections::HashMap;
use std::sync::OnceLock;

use regex_syntax::hir::{Class, HirKind};

/// `\p{L}`
pub const LETTER: u8 = 1;
/// `\p{M}`
pub const MARK: u8 = 2;
/// `\p{N}`
pub const NUMBER: u8 = 4;
/// `\s`
pub const SPACE: u8 = 8;
/// `[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]`: may begin a capitalised word in the o200k pattern
pub const UPPER: u8 = 16;
/// `[\p{Ll}\p{Lm}\p{Lo}\p{M}]`: may continue one
pub const LOWER: u8 = 32;
/// `\w`
pub const WORD: u8 = 64;

const CLASSES: [(u8, &str); 7] = [
    (LETTER, r"\p{L}"),
    (MARK, r"\p{M}"),
    (NUMBER, r"\p{N}"),
    (SPACE, r"\s"),
    (UPPER, r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]"),
    (LOWER, r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"),
    (WORD, r"\w"),
];
const BLOCK: usize = 256;
const BLOCKS: usize = 0x11_0000 / BLOCK;

/// Flags of every code point.
pub struct Table {
    /// Of the ASCII characters, nearer than the rest
    pub ascii: [u8; 128],
    index: Vec<u16>,
    blocks: Vec<u8>,
}

impl Table {
    fn build() -> Self {
        let mut flat = vec![0u8; 0x11_0000];
        for (flag, pattern) in CLASSES {
            for (first, last) in ranges(pattern) {
                flat[first as usize..=last as usize]
                    .iter_mut()
                    .for_each(|flags| *flags |= flag);
            }
        }
        let mut seen: HashMap<&[u8], u16> = HashMap::new();
        let mut blocks = Vec::new();
        let mut index = Vec::with_capacity(BLOCKS);
        for block in flat.chunks(BLOCK) {
            let next = seen.len() as u16;
            index.push(*seen.entry(block).or_insert_with(|| {
                blocks.extend_from_slice(block);
                next
            }));
        }
        let ascii = std::array::from_fn(|code| flat[code]);
        Self {
            ascii,
            index,
            blocks,
        }
    }

    /// The flags of one code point.
    #[inline]
    pub fn of(&self, code: u32) -> u8 {
        let block = self.index[code as usize / BLOCK] as usize;
        self.blocks[block * BLOCK + code as usize % BLOCK]
    }
}

/// Ranges of code points of one class pattern.
fn ranges(pattern: &str) -> Vec<(u32, u32)> {
    let hir = regex_syntax::parse(pattern).expect("the class patterns above parse");
    match hir.kind() {
        HirKind::Class(Class::Unicode(class)) => class
            .ranges()
            .iter()
            .map(|range| (range.start() as u32, range.end() as u32))
            .collect(),
        _ => Vec::new(),
    }
}

/// The table of this process.
pub fn table() -> &'static Table {
    static TABLE: OnceLock<Table> = OnceLock::new();
    TABLE.get_or_init(Table::build)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_characters() {
        let t = table();
        assert_eq!(t.of('a' as u32), LETTER | LOWER | WORD);
        assert_eq!(t.of('É' as u32), LETTER | UPPER | WORD);
        assert_eq!(t.of('中' as u32), LETTER | UPPER | LOWER | WORD);
        assert_eq!(t.of(0x301), MARK | UPPER | LOWER | WORD);
        assert_eq!(t.of('٣' as u32), NUMBER | WORD);
        assert_eq!(
            (t.of('½' as u32), t.of('_' as u32), t.of('!' as u32)),
            (NUMBER, WORD, 0)
        );
        assert_eq!(
            (t.of(' ' as u32), t.of(0x85), t.of(0x3000), t.of(0x200b)),
            (SPACE, SPACE, SPACE, 0)
        );
    }
}
