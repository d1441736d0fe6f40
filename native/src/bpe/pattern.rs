//! Named pre-tokenizers: text to pieces, inside which merges happen.
//!
//! All but `paper` and `line` are lossless: the pieces of a text, joined, are the text. Those two are the rules of the
//! parity-aware reference implementation: every piece gets a space in front, and `paper` drops white space.

use fancy_regex::Regex;

use crate::bpe::blocks::{self, Ends};
use crate::bpe::scan::{Cursor, WITH_MARKS};
use crate::bpe::unicode::{LETTER, NUMBER, SPACE, table};

const CONTRACTIONS: &str = r"'(?:[sdmt]|ll|ve|re)";
const CASED: &str = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+{c}|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*{c}";

/// A pre-tokenizer.
#[derive(Clone, Debug)]
pub enum Pattern {
    /// GPT-2 with combining marks kept with their letters
    Gpt2m,
    Gpt2,
    /// `Gpt2m` with words that one blank parts kept together
    Clause,
    Cl100k,
    O200k,
    Llama3,
    Qwen,
    /// The reference's `--apertus-formatting`
    Apertus,
    /// The reference's default: words and punctuation runs, each with a space in front; white space is lost
    Paper,
    /// The reference's `--pretokenize bytelevel`: the whole text is one piece, with a space in front
    Line,
    /// Any other regular expression; what it does not match is a piece of its own
    Regex(Box<Regex>),
}

/// The names that `Pattern::named` knows, the default first.
pub const NAMES: [&str; 10] = [
    "gpt2m", "gpt2", "clause", "cl100k", "o200k", "llama3", "qwen", "apertus", "paper", "line",
];

impl Pattern {
    /// A pattern by its name, or by `regex:EXPRESSION`.
    pub fn named(name: &str) -> Result<Self, String> {
        Ok(match name {
            "gpt2m" => Self::Gpt2m,
            "gpt2" => Self::Gpt2,
            "clause" => Self::Clause,
            "cl100k" => Self::Cl100k,
            "o200k" => Self::O200k,
            "llama3" => Self::Llama3,
            "qwen" => Self::Qwen,
            "apertus" => Self::Apertus,
            "paper" => Self::Paper,
            "line" => Self::Line,
            _ => {
                match name.strip_prefix("regex:") {
                    Some(source) => Self::Regex(Box::new(Regex::new(source).map_err(|e| {
                        format!("pattern `{source}` is no regular expression: {e}")
                    })?)),
                    None => {
                        return Err(format!(
                            "unknown pre-tokenizer `{name}`; known are {}, and regex:EXPRESSION",
                            NAMES.join(", ")
                        ));
                    }
                }
            }
        })
    }

    /// The regular expression that the pattern stands for; None for `paper` and `line`, which are not one split.
    pub fn regex(&self) -> Option<String> {
        let tail = r"\s*[\r\n]+|\s+(?!\S)|\s+";
        Some(match self {
            Self::Gpt2m => format!(
                r"{CONTRACTIONS}| ?[\p{{L}}\p{{M}}]+| ?\p{{N}}+| ?[^\s\p{{L}}\p{{M}}\p{{N}}]+|\s+(?!\S)|\s+"
            ),
            Self::Clause => format!(
                r"{CONTRACTIONS}| ?[\p{{L}}\p{{M}}]+(?: [\p{{L}}\p{{M}}]+)*| ?\p{{N}}+| ?[^\s\p{{L}}\p{{M}}\p{{N}}]+|\s+(?!\S)|\s+"
            ),
            Self::Gpt2 => format!(
                r"{CONTRACTIONS}| ?\p{{L}}+| ?\p{{N}}+| ?[^\s\p{{L}}\p{{N}}]+|\s+(?!\S)|\s+"
            ),
            Self::Cl100k | Self::Llama3 => Self::cl100k_source("{1,3}", tail),
            Self::Qwen => Self::cl100k_source("", tail),
            Self::O200k => format!(
                r"{}|\p{{N}}{{1,3}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{tail}",
                CASED.replace("{c}", r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?")
            ),
            Self::Apertus => {
                format!(
                    r"{}|\p{{N}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|{tail}",
                    CASED.replace("{c}", "")
                )
            }
            Self::Regex(regex) => regex.as_str().to_owned(),
            Self::Paper | Self::Line => return None,
        })
    }

    fn cl100k_source(digits: &str, tail: &str) -> String {
        format!(
            r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}{digits}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|{tail}"
        )
    }

    /// Whether the pieces of a text, joined, are the text.
    pub fn is_lossless(&self) -> bool {
        !matches!(self, Self::Paper | Self::Line)
    }

    /// The last place, at or below `before`, at which a long text may be cut without changing its pieces: after a
    /// lone newline that stands between a character that is no white space and a letter or number. None where there
    /// is none, or the pattern is not known to allow it.
    pub fn last_cut(&self, text: &str, before: usize) -> Option<usize> {
        if matches!(self, Self::Regex(_) | Self::Line) {
            return None;
        }
        let class = |c: char| table().of(c as u32);
        let may_cut = |at: usize| {
            let (left, right) = (
                text[..at].chars().next_back(),
                text[at + 1..].chars().next(),
            );
            left.is_some_and(|c| class(c) & SPACE == 0)
                && right.is_some_and(|c| class(c) & (LETTER | NUMBER) != 0)
        };
        let head = &text.as_bytes()[..before];
        let mut newlines = (0..head.len()).rev().filter(|&at| head[at] == b'\n');
        newlines.find(|&at| may_cut(at)).map(|at| at + 1)
    }

    /// Whether `fill` knows the pattern.
    pub fn is_scanned(&self) -> bool {
        !matches!(self, Self::Regex(_) | Self::Paper | Self::Line)
    }

    /// Push ends of the pieces of `text` from `at` on, where one begins, while there is room; where the next piece
    /// begins. For the patterns that are scanned.
    #[inline]
    pub fn fill(&self, text: &str, at: usize, ends: &mut Ends) -> usize {
        let cursor = Cursor {
            text: text.as_bytes(),
            table: table(),
        };
        match self {
            Self::Gpt2m => blocks_of(&cursor, at, WITH_MARKS, ends),
            Self::Gpt2 => blocks_of(&cursor, at, LETTER, ends),
            Self::Clause => fill(&cursor, at, ends, |c, at| c.clause(at)),
            Self::Cl100k | Self::Llama3 => fill(&cursor, at, ends, |c, at| c.cl100k(at, 3)),
            Self::Qwen => fill(&cursor, at, ends, |c, at| c.cl100k(at, 1)),
            Self::O200k => fill(&cursor, at, ends, |c, at| c.o200k(at, 3, true)),
            Self::Apertus => fill(&cursor, at, ends, |c, at| c.o200k(at, 1, false)),
            Self::Regex(_) | Self::Paper | Self::Line => text.len(),
        }
    }

    /// Hand each piece of `text` to `emit`, in order.
    #[inline]
    pub fn for_each<F: FnMut(&[u8])>(&self, text: &str, emit: F) -> Result<(), String> {
        let cursor = Cursor {
            text: text.as_bytes(),
            table: table(),
        };
        match self {
            Self::Gpt2m => pieces(cursor, |c, at| c.gpt2(at, WITH_MARKS), emit),
            Self::Gpt2 => pieces(cursor, |c, at| c.gpt2(at, LETTER), emit),
            Self::Clause => pieces(cursor, |c, at| c.clause(at), emit),
            Self::Cl100k | Self::Llama3 => pieces(cursor, |c, at| c.cl100k(at, 3), emit),
            Self::Qwen => pieces(cursor, |c, at| c.cl100k(at, 1), emit),
            Self::O200k => pieces(cursor, |c, at| c.o200k(at, 3, true), emit),
            Self::Apertus => pieces(cursor, |c, at| c.o200k(at, 1, false), emit),
            Self::Paper => paper(cursor, emit),
            Self::Line => line(text.as_bytes(), emit),
            Self::Regex(regex) => return by_regex(regex, text, emit),
        }
        Ok(())
    }
}

#[inline]
fn blocks_of(cursor: &Cursor, mut at: usize, letters: u8, ends: &mut Ends) -> usize {
    while at < cursor.text.len() && ends.has_room() {
        at = blocks::gpt2(cursor, at, letters, ends);
    }
    at
}

#[inline]
fn fill<N: Fn(&Cursor, usize) -> usize>(
    cursor: &Cursor,
    mut at: usize,
    ends: &mut Ends,
    next: N,
) -> usize {
    while at < cursor.text.len() && ends.has_room() {
        at = next(cursor, at);
        ends.push(at);
    }
    at
}

/// Cut the text at the ends that `next` gives.
#[inline]
fn pieces<N: Fn(&Cursor, usize) -> usize, F: FnMut(&[u8])>(cursor: Cursor, next: N, mut emit: F) {
    let mut at = 0;
    while at < cursor.text.len() {
        let end = next(&cursor, at);
        debug_assert!(end > at);
        emit(&cursor.text[at..end]);
        at = end;
    }
}

fn paper<F: FnMut(&[u8])>(cursor: Cursor, mut emit: F) {
    let mut piece = Vec::new();
    let mut at = cursor.skip_spaces(0);
    while at < cursor.text.len() {
        let end = cursor.words(at);
        piece.clear();
        piece.push(b' ');
        piece.extend_from_slice(&cursor.text[at..end]);
        emit(&piece);
        at = cursor.skip_spaces(end);
    }
}

fn line<F: FnMut(&[u8])>(text: &[u8], mut emit: F) {
    match text.first() {
        None => {}
        Some(b' ') => emit(text),
        Some(_) => emit(&[b" ", text].concat()),
    }
}

fn by_regex<F: FnMut(&[u8])>(regex: &Regex, text: &str, mut emit: F) -> Result<(), String> {
    let mut at = 0;
    for found in regex.find_iter(text) {
        let found = found.map_err(|e| format!("pattern `{}` failed: {e}", regex.as_str()))?;
        for (start, end) in [(at, found.start()), (found.start(), found.end())] {
            if end > start {
                emit(&text.as_bytes()[start..end]);
            }
        }
        at = found.end();
    }
    if at < text.len() {
        emit(&text.as_bytes()[at..]);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::LazyLock;

    use super::*;
    use proptest::prelude::*;

    fn split(pattern: &Pattern, text: &str) -> Vec<String> {
        let mut out = Vec::new();
        pattern
            .for_each(text, |piece| {
                out.push(String::from_utf8_lossy(piece).into_owned())
            })
            .unwrap();
        out
    }

    /// The patterns that are one regular expression, each with that expression as a pattern.
    fn twins() -> &'static [(Pattern, Pattern)] {
        static TWINS: LazyLock<Vec<(Pattern, Pattern)>> = LazyLock::new(|| {
            let named = NAMES.iter().map(|name| Pattern::named(name).unwrap());
            let twin = |p: &Pattern| Pattern::named(&format!("regex:{}", p.regex()?)).ok();
            named
                .filter_map(|pattern| Some((pattern.clone(), twin(&pattern)?)))
                .collect()
        });
        &TWINS
    }

    /// Text dense in what the patterns care about.
    fn tricky() -> impl Strategy<Value = String> {
        let alphabet: Vec<char> =
            " \u{20}\t\n\r\u{a0}\u{3000}\u{85}\u{200b}aZsStTdDmMrReEvVlLſ'''éÉǅʰ中ا\u{301}\u{94d}\u{1f3fd}09٣½²!/_-,.😀\u{0}\u{10ffff}"
                .chars()
                .collect();
        prop::collection::vec(prop::sample::select(alphabet), 0..40)
            .prop_map(|chars| chars.into_iter().collect())
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]
        #[test]
        fn scanners_equal_their_regular_expressions(text in tricky()) {
            for (pattern, twin) in twins() {
                prop_assert_eq!(split(pattern, &text), split(twin, &text), "{:?}", pattern);
                prop_assert_eq!(split(pattern, &text).concat(), text.clone());
            }
        }

        #[test]
        fn paper_equals_its_regular_expression(text in tricky()) {
            static WORDS: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"\w+|[^\w\s]+").unwrap());
            let expected: Vec<String> = WORDS.find_iter(&text).map(|m| format!(" {}", m.unwrap().as_str())).collect();
            prop_assert_eq!(split(&Pattern::Paper, &text), expected);
        }

        #[test]
        fn cutting_changes_nothing(left in tricky(), middle in "[a!]", right in "[a-zA-Z0-9中]", rest in tricky()) {
            let text = format!("{left}{middle}\n{right}{rest}");
            for (pattern, _) in twins() {
                let cut = pattern.last_cut(&text, text.len()).unwrap();
                let joined = [split(pattern, &text[..cut]), split(pattern, &text[cut..])].concat();
                prop_assert_eq!(split(pattern, &text), joined, "{:?}", pattern);
            }
        }
    }

    #[test]
    fn examples() {
        assert_eq!(
            split(&Pattern::Gpt2m, "  தமிழ் isn't"),
            [" ", " தமிழ்", " isn", "'t"]
        );
        assert_eq!(
            split(&Pattern::Paper, "Don't  stop\n"),
            [" Don", " '", " t", " stop"]
        );
        assert_eq!(split(&Pattern::Line, "ab c\n"), [" ab c\n"]);
        assert!(Pattern::named("nope").is_err() && Pattern::named("regex:(").is_err());
    }
}
