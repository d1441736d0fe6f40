//! Hand-written scanners: where the piece that begins at a position ends.
//!
//! Each function is one published pattern, read as a program. They are linear: a scanner looks at a character at most
//! twice. `pattern` holds the regular expressions that they stand for, and tests compare the two on random text.

use crate::bpe::packed::word;
use crate::bpe::unicode::{LETTER, LOWER, MARK, NUMBER, SPACE, Table, UPPER, WORD};

/// A text with the class table: decodes characters without looking at their validity twice.
#[derive(Clone, Copy)]
pub struct Cursor<'a> {
    pub text: &'a [u8],
    pub table: &'a Table,
}

impl Cursor<'_> {
    /// Flags and width in bytes of the character at `at`; width 0 at the end.
    #[inline]
    fn class(&self, at: usize) -> (u8, usize) {
        let (code, width) = self.code(at);
        if width == 0 {
            (0, 0)
        } else {
            (self.table.of(code), width)
        }
    }

    /// The same for a character that is not ASCII.
    #[inline]
    pub(crate) fn wide_class(&self, at: usize) -> (u8, usize) {
        let (code, width) = self.code(at);
        (self.table.of(code), width)
    }

    /// Code point and width of the character at `at`. The text is valid UTF-8 (it comes from `&str`).
    #[inline]
    fn code(&self, at: usize) -> (u32, usize) {
        let rest = &self.text[at..];
        match *rest {
            [a, ..] if a < 0x80 => (a as u32, 1),
            [a, b, ..] if a < 0xe0 => ((a as u32 & 0x1f) << 6 | b as u32 & 0x3f, 2),
            [a, b, c, ..] if a < 0xf0 => (
                (a as u32 & 0xf) << 12 | (b as u32 & 0x3f) << 6 | c as u32 & 0x3f,
                3,
            ),
            [a, b, c, d, ..] => (
                ((a as u32 & 7) << 18
                    | (b as u32 & 0x3f) << 12
                    | (c as u32 & 0x3f) << 6
                    | d as u32 & 0x3f)
                    .min(0x10_ffff),
                4,
            ),
            _ => (0, 0),
        }
    }

    #[inline]
    fn byte(&self, at: usize) -> u8 {
        self.text.get(at).copied().unwrap_or(0)
    }

    /// End of the run, from `at`, of characters that have one of the flags `any`.
    #[inline]
    fn run(&self, mut at: usize, any: u8) -> usize {
        while let Some(&byte) = self.text.get(at) {
            if byte < 0x80 {
                if self.table.ascii[byte as usize] & any == 0 {
                    return at;
                }
                at += 1;
            } else {
                let (class, width) = self.class(at);
                if class & any == 0 {
                    return at;
                }
                at += width;
            }
        }
        at
    }

    /// The end of the word that begins with an ASCII letter at `at`: mostly one look at eight bytes.
    #[inline(always)]
    fn ascii_word(&self, at: usize, letters: u8) -> Option<usize> {
        let ahead = ascii_letters(word(self.text.get(at..at + 8)?));
        match ahead {
            0 => None,
            8 => Some(self.letters(at + 8, letters)),
            _ if self.text[at + ahead] < 0x80 => Some(at + ahead),
            _ => Some(self.letters(at + ahead, letters)),
        }
    }

    /// The same for flags that include LETTER and no other ASCII characters: eight bytes at a time.
    #[inline]
    pub(crate) fn letters(&self, mut at: usize, any: u8) -> usize {
        loop {
            while let Some(bytes) = self.text.get(at..at + 8) {
                let ahead = ascii_letters(word(bytes));
                at += ahead;
                if ahead < 8 {
                    break;
                }
            }
            // Here stands no ASCII letter, or the text is nearly over.
            let (class, width) = self.class(at);
            if class & any == 0 {
                return at;
            }
            at += width;
        }
    }

    /// End of the run, from `at`, of characters that have none of the flags `none`.
    #[inline]
    fn run_without(&self, mut at: usize, none: u8) -> usize {
        loop {
            let (class, width) = self.class(at);
            if width == 0 || class & none != 0 {
                return at;
            }
            at += width;
        }
    }

    /// `'s 't 're 've 'm 'll 'd` at `at`, and its end.
    pub(crate) fn contraction(&self, at: usize, any_case: bool) -> Option<usize> {
        if self.byte(at) != b'\'' {
            return None;
        }
        let fold = |byte: u8| {
            if any_case {
                byte.to_ascii_lowercase()
            } else {
                byte
            }
        };
        match (fold(self.byte(at + 1)), fold(self.byte(at + 2))) {
            (b's' | b't' | b'm' | b'd', _) => Some(at + 2),
            (b'r' | b'v', b'e') | (b'l', b'l') => Some(at + 3),
            // The long s folds to s.
            _ if any_case && self.text[at + 1..].starts_with("ſ".as_bytes()) => Some(at + 3),
            _ => None,
        }
    }

    /// `\s+(?!\S)|\s+` from `at`, where white space begins: all of it at the end of the text, else all but its last
    /// character, or that one alone.
    fn spaces(&self, at: usize) -> usize {
        let (mut end, mut last) = (at, at);
        loop {
            let (class, width) = self.class(end);
            if width == 0 {
                return end;
            }
            if class & SPACE == 0 {
                return if last > at { last } else { end };
            }
            last = end;
            end += width;
        }
    }

    /// `\s*[\r\n]+|\s+(?!\S)|\s+` from `at`, where white space begins.
    fn spaces_to_newline(&self, at: usize) -> usize {
        let (mut end, mut last, mut newline) = (at, at, at);
        loop {
            let (class, width) = self.class(end);
            if width == 0 || class & SPACE == 0 {
                return match (newline > at, width == 0 || last == at) {
                    (true, _) => newline,
                    (false, true) => end,
                    (false, false) => last,
                };
            }
            last = end;
            end += width;
            if matches!(self.byte(last), b'\r' | b'\n') {
                newline = end;
            }
        }
    }

    /// GPT-2; with `letters` = LETTER | MARK combining marks stay with their letters (`gpt2m`).
    #[inline]
    pub fn gpt2(&self, at: usize, letters: u8) -> usize {
        let first = self.text[at];
        if first == b'\''
            && let Some(end) = self.contraction(at, false)
        {
            return end;
        }
        let start = at + usize::from(first == b' ');
        if let Some(end) = self.ascii_word(start, letters) {
            return end;
        }
        let (class, width) = self.class(start);
        if class & letters != 0 {
            self.letters(start + width, letters)
        } else if class & NUMBER != 0 {
            self.run(start + width, NUMBER)
        } else if width == 0 || class & SPACE != 0 {
            self.spaces(at)
        } else {
            self.run_without(start + width, SPACE | letters | NUMBER)
        }
    }

    /// `gpt2m` with words that one blank parts kept together, for merges across words.
    pub fn clause(&self, at: usize) -> usize {
        let mut end = self.gpt2(at, WITH_MARKS);
        let first = if self.text[at] == b' ' { at + 1 } else { at };
        if first == end || self.class(first).0 & WITH_MARKS == 0 {
            return end;
        }
        while self.byte(end) == b' ' {
            let (class, width) = self.class(end + 1);
            if class & WITH_MARKS == 0 {
                break;
            }
            end = self.letters(end + 1 + width, WITH_MARKS);
        }
        end
    }

    /// cl100k and Llama 3 (`digits` 3), Qwen (`digits` 1).
    #[inline]
    pub fn cl100k(&self, at: usize, digits: usize) -> usize {
        if let Some(end) = self.contraction(at, true) {
            return end;
        }
        let (class, width) = self.class(at);
        if class & LETTER != 0 {
            return self.letters(at + width, LETTER);
        }
        if class & NUMBER != 0 {
            return self.numbers(at, digits);
        }
        let newline = matches!(self.byte(at), b'\r' | b'\n');
        let after = self.class(at + width);
        if !newline && after.0 & LETTER != 0 {
            return self.letters(at + width + after.1, LETTER);
        }
        self.punctuation(at, class, false)
            .unwrap_or_else(|| self.spaces_to_newline(at))
    }

    /// `\p{N}{1,digits}` from `at`.
    fn numbers(&self, mut at: usize, digits: usize) -> usize {
        for _ in 0..digits {
            let (class, width) = self.class(at);
            if class & NUMBER == 0 {
                break;
            }
            at += width;
        }
        at
    }

    /// ` ?[^\s\p{L}\p{N}]+[\r\n]*` (or `[\r\n/]*`) from `at`, a character of flags `class`.
    fn punctuation(&self, at: usize, class: u8, slash: bool) -> Option<usize> {
        let start = if self.byte(at) == b' ' { at + 1 } else { at };
        let (first, width) = if start > at {
            self.class(start)
        } else {
            (class, self.class(at).1)
        };
        if width == 0 || first & (SPACE | LETTER | NUMBER) != 0 {
            return None;
        }
        let mut end = self.run_without(start + width, SPACE | LETTER | NUMBER);
        while matches!(self.byte(end), b'\r' | b'\n') || slash && self.byte(end) == b'/' {
            end += 1;
        }
        Some(end)
    }

    /// o200k (`digits` 3, contractions kept with their word) and the pattern of the parity-aware reference's
    /// `apertus` format (`digits` 1, none).
    #[inline]
    pub fn o200k(&self, at: usize, digits: usize, contractions: bool) -> usize {
        let (class, width) = self.class(at);
        if let Some(end) = self.cased(at, class, width) {
            return if contractions {
                self.contraction(end, true).unwrap_or(end)
            } else {
                end
            };
        }
        if class & NUMBER != 0 {
            return self.numbers(at, digits);
        }
        self.punctuation(at, class, contractions)
            .unwrap_or_else(|| self.spaces_to_newline(at))
    }

    /// `[^\r\n\p{L}\p{N}]?UPPER*LOWER+` or `[^\r\n\p{L}\p{N}]?UPPER+LOWER*` from `at`.
    fn cased(&self, at: usize, class: u8, width: usize) -> Option<usize> {
        let prefix =
            class & (LETTER | NUMBER) == 0 && !matches!(self.byte(at), b'\r' | b'\n') && width > 0;
        // The prefix is greedy: it is tried first, and given back only if no word follows (a mark is both).
        let starts = if prefix {
            [Some(at + width), Some(at)]
        } else {
            [Some(at), None]
        };
        let first = starts
            .into_iter()
            .flatten()
            .find_map(|start| self.upper_lower(start));
        first.or_else(|| {
            starts
                .into_iter()
                .flatten()
                .find_map(|start| self.upper_only(start))
        })
    }

    /// `UPPER*LOWER+` from `at`. Characters of both classes may end the first run, so that it gives one back.
    fn upper_lower(&self, at: usize) -> Option<usize> {
        let (mut end, mut both) = (at, None);
        loop {
            let (class, width) = self.class(end);
            if class & UPPER == 0 {
                break;
            }
            if class & LOWER != 0 {
                both = Some(end + width);
            }
            end += width;
        }
        let lower = self.run(end, LOWER);
        if lower > end { Some(lower) } else { both }
    }

    /// `UPPER+LOWER*` from `at`, where `UPPER*LOWER+` has failed.
    fn upper_only(&self, at: usize) -> Option<usize> {
        let end = self.run(at, UPPER);
        (end > at).then(|| self.run(end, LOWER))
    }

    /// `\w+|[^\w\s]+` from `at`, which is no white space (the paper's `Whitespace`).
    #[inline]
    pub fn words(&self, at: usize) -> usize {
        let (class, width) = self.class(at);
        if class & WORD != 0 {
            self.run(at + width, WORD)
        } else {
            self.run_without(at + width, WORD | SPACE)
        }
    }

    /// End of the white space that begins at `at`.
    pub fn skip_spaces(&self, at: usize) -> usize {
        self.run(at, SPACE)
    }
}

/// How many of the eight bytes of a word, from the lowest, are ASCII letters.
#[inline]
fn ascii_letters(word: u64) -> usize {
    const ONES: u64 = 0x0101_0101_0101_0101;
    const HIGH: u64 = 0x80 * ONES;
    let lower = (word | (0x20 * ONES)) & !HIGH;
    let from_a = lower + (0x80 - b'a' as u64) * ONES;
    let beyond_z = lower + (0x80 - b'z' as u64 - 1) * ONES;
    let letters = from_a & !beyond_z & !word & HIGH;
    ((letters ^ HIGH).trailing_zeros() / 8) as usize
}

/// Letters of `gpt2m`.
pub const WITH_MARKS: u8 = LETTER | MARK;
