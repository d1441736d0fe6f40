//! GPT-2's pattern, sixty-four bytes at a time.
//!
//! A block begins where a piece begins, so it needs no memory of what stood before. Each byte gets the class of its
//! character, a bit in one word a class, and where pieces begin is then a formula over those words:
//!
//! * a character that is no white space begins one unless it goes on a run of its class or follows a blank;
//! * white space begins one where a run of it begins, and at its last character when something follows;
//! * a contraction is a piece where a piece begins at its quote.
//!
//! The last bytes of a block are looked at again in the next one, because what follows them decides. Text that a block
//! can't hold (a piece of more than 63 bytes, white space of several bytes) is left to the scanner of `scan`.

use crate::bpe::ascii::Ascii;
use crate::bpe::scan::Cursor;
use crate::bpe::unicode::{NUMBER, SPACE};

const SIZE: usize = 64;

/// Ends of pieces, ascending.
pub struct Ends {
    at: [usize; Self::MOST],
    count: usize,
}

impl Default for Ends {
    fn default() -> Self {
        Self {
            at: [0; Self::MOST],
            count: 0,
        }
    }
}

impl Ends {
    const MOST: usize = 128;
    /// Ends that one block may add
    pub const ROOM: usize = SIZE;

    pub fn clear(&mut self) {
        self.count = 0;
    }

    /// Whether a block more fits.
    pub fn has_room(&self) -> bool {
        self.count <= Self::MOST - Self::ROOM
    }

    #[inline(always)]
    pub fn push(&mut self, end: usize) {
        self.at[self.count & (Self::MOST - 1)] = end;
        self.count += 1;
    }

    pub fn as_slice(&self) -> &[usize] {
        &self.at[..self.count.min(Self::MOST)]
    }
}

/// The classes of the first `known` bytes of a block, a bit a byte.
struct Classes {
    ascii: Ascii,
    known: usize,
}

/// Push the ends of the pieces of the block at `at`, where a piece begins; where the first piece without an end begins.
#[inline]
pub fn gpt2(cursor: &Cursor, at: usize, letters: u8, ends: &mut Ends) -> usize {
    let rest = &cursor.text[at..];
    let is_last = rest.len() <= SIZE;
    let mut classes = match rest.first_chunk() {
        Some(block) => Classes {
            ascii: Ascii::of(block),
            known: SIZE,
        },
        None => {
            let mut padded = [0; SIZE];
            padded[..rest.len()].copy_from_slice(rest);
            Classes {
                ascii: Ascii::of(&padded),
                known: rest.len(),
            }
        }
    };
    if classes.ascii.lead != 0 {
        classes.widen(cursor, at, letters);
    }
    let is_last = is_last && classes.known == rest.len();
    let mut begins = classes.begins(is_last);
    let mut quotes = begins & classes.ascii.quote;
    while quotes != 0 {
        begins = contracted(
            cursor,
            at,
            quotes.trailing_zeros() as usize,
            begins,
            &classes,
            is_last,
        );
        quotes &= quotes - 1;
    }
    if begins == 1 && !is_last {
        let end = classes.run_on(cursor, at, letters);
        ends.push(end);
        return end;
    }
    let mut left = begins & !1;
    while left != 0 {
        ends.push(at + left.trailing_zeros() as usize);
        left &= left - 1;
    }
    if is_last {
        ends.push(cursor.text.len());
        return cursor.text.len();
    }
    at + (63 - begins.leading_zeros() as usize)
}

/// Where pieces begin when a contraction at the quote `quote`, where one begins, is counted in.
fn contracted(
    cursor: &Cursor,
    at: usize,
    quote: usize,
    begins: u64,
    classes: &Classes,
    is_last: bool,
) -> u64 {
    let Some(end) = cursor.contraction(at + quote, false) else {
        return begins;
    };
    let end = end - at;
    let inside = below(end) & !below(quote + 1);
    if end + 1 < classes.known || (is_last && end < classes.known) {
        begins & !inside | 1 << end
    } else if is_last {
        begins & !inside
    } else {
        begins & below(quote + 1)
    }
}

/// The lowest `count` bits.
#[inline(always)]
fn below(count: usize) -> u64 {
    if count < 64 {
        (1 << count) - 1
    } else {
        u64::MAX
    }
}

impl Classes {
    /// The other characters, up to the first that does not fit or is white space.
    fn widen(&mut self, cursor: &Cursor, at: usize, letters: u8) {
        let mut leads = self.ascii.lead & below(self.known);
        while leads != 0 {
            let place = leads.trailing_zeros() as usize;
            leads &= leads - 1;
            let (class, width) = cursor.wide_class(at + place);
            if place + width > self.known || class & SPACE != 0 {
                self.known = place;
                return;
            }
            let bytes = below(width) << place;
            self.ascii.letter |= if class & letters != 0 { bytes } else { 0 };
            self.ascii.number |= if class & letters == 0 && class & NUMBER != 0 {
                bytes
            } else {
                0
            };
        }
    }

    /// Where pieces begin, contractions aside; the first byte always does, the last known one is left open.
    #[inline(always)]
    fn begins(&self, is_last: bool) -> u64 {
        let known = below(self.known);
        // Beyond the text stands white space: none that ends there is cut.
        let space = self.ascii.space & known | !known;
        let text = !space;
        let (letter, number) = (self.ascii.letter & known, self.ascii.number & known);
        let other = text & !(letter | number);
        let same = |class: u64| class & class << 1;
        let goes_on = same(letter) | same(number) | same(other) | self.ascii.blank << 1;
        let begins = text & !goes_on | space & (text << 1) | space & (text >> 1) | 1;
        let certain = if is_last {
            self.known
        } else {
            self.known.saturating_sub(1)
        };
        begins & below(certain) | 1
    }

    /// The end of the first piece, which this block does not hold.
    #[cold]
    fn run_on(&self, cursor: &Cursor, at: usize, letters: u8) -> usize {
        let run = below(self.known) & !(self.ascii.blank & 1);
        if run != 0 && self.ascii.letter & run == run {
            cursor.letters(at + self.known, letters)
        } else {
            cursor.gpt2(at, letters)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bpe::scan::WITH_MARKS;
    use crate::bpe::unicode::{LETTER, table};
    use proptest::prelude::*;

    fn by_blocks(text: &str, letters: u8) -> Vec<usize> {
        let cursor = Cursor {
            text: text.as_bytes(),
            table: table(),
        };
        let (mut at, mut all, mut ends) = (0, Vec::new(), Ends::default());
        while at < text.len() {
            ends.clear();
            at = gpt2(&cursor, at, letters, &mut ends);
            all.extend_from_slice(ends.as_slice());
        }
        all
    }

    fn one_by_one(text: &str, letters: u8) -> Vec<usize> {
        let cursor = Cursor {
            text: text.as_bytes(),
            table: table(),
        };
        let (mut at, mut all) = (0, Vec::new());
        while at < text.len() {
            at = cursor.gpt2(at, letters);
            all.push(at);
        }
        all
    }

    fn check(text: &str) -> Result<(), TestCaseError> {
        for letters in [LETTER, WITH_MARKS] {
            prop_assert_eq!(
                by_blocks(text, letters),
                one_by_one(text, letters),
                "{:?}",
                text
            );
        }
        Ok(())
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(1500))]
        #[test]
        fn blocks_equal_the_scanner(
            parts in prop::collection::vec(
                (prop::sample::select(vec![
                    " ", "\t", "\n", "\r\n", "\u{a0}", "\u{3000}", "a", "Zebra", "s", "t", "re", "ll", "'", "'s", "'re", "é", "中", "क", "ि", "\u{301}",
                    "9", "½", "٣", "!", "_", "😀", "\u{0}", "\u{7f}", "ſ",
                ]), 1usize..4),
                0..90,
            )
        ) {
            let text: String = parts.iter().map(|(part, times)| part.repeat(*times)).collect();
            check(&text)?;
        }

        #[test]
        fn long_runs_equal_the_scanner(
            before in "[a '\n中!]{0,6}", run in prop::sample::select(vec!["a", "中", " ", "\n", "!", "7", "é", "\u{3000}"]),
            times in 55usize..140, after in "[a 's\n中!1]{0,8}",
        ) {
            check(&format!("{before}{}{after}", run.repeat(times)))?;
        }
    }
}
