//! How a language's development text differs from its training text, before merges are spent on it.
//!
//! Merges learned from training text cannot fire where the development text is written otherwise: in another encoding
//! of the same script, with characters or sequences that training lacks. Then the language stays needy whatever it
//! is given. What shows it: the parts of the development text's characters and of its pairs of characters (inside
//! pieces) that the training text never has, and the characters that are frequent on one side only.

use rustc_hash::FxHashMap;

use crate::bpe::counter::Counter;

/// Characters that are this much rarer on the other side are told.
const ONE_SIDED: f64 = 20.0;
/// Most characters that are told of a language.
const TOLD: usize = 8;

/// One language's two texts compared. Shares are parts of all characters, or pairs, of a text.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Mismatch {
    /// Part of the development text's characters that the training text never has
    pub unseen_characters: f64,
    pub unseen_pairs: f64,
    /// Distinct characters of the training text
    pub alphabet: usize,
    /// (character, share in training text, share in development text) of those that stand on one side
    pub one_sided: Vec<(char, f64, f64)>,
}

/// Counts of a character or pair in (training, development) text.
type Seen<K> = FxHashMap<K, (u64, u64)>;

/// Compare the training column of a language with its development column.
pub fn compare(counter: &Counter, train: usize, dev: usize) -> Mismatch {
    let (mut characters, mut pairs) = (Seen::<char>::default(), Seen::<(char, char)>::default());
    counter.each_piece(dev, |piece, count| {
        visit(piece, |character, pair| {
            characters.entry(character).or_default().1 += count;
            if let Some(pair) = pair {
                pairs.entry(pair).or_default().1 += count;
            }
        });
    });
    counter.each_piece(train, |piece, count| {
        visit(piece, |character, pair| {
            characters.entry(character).or_default().0 += count;
            if let Some(seen) = pair.and_then(|pair| pairs.get_mut(&pair)) {
                seen.0 += count;
            }
        });
    });
    Mismatch {
        unseen_characters: unseen(&characters),
        unseen_pairs: unseen(&pairs),
        alphabet: characters.values().filter(|counts| counts.0 > 0).count(),
        one_sided: one_sided(&characters),
    }
}

/// Hand each character of a piece, with the one before it, to `each`.
fn visit(piece: &str, mut each: impl FnMut(char, Option<(char, char)>)) {
    let mut before = None;
    for character in piece.chars() {
        each(character, before.map(|before| (before, character)));
        before = Some(character);
    }
}

/// The part of what the development text has that the training text never has.
fn unseen<K>(seen: &Seen<K>) -> f64 {
    let total: u64 = seen.values().map(|counts| counts.1).sum();
    let missing: u64 = seen
        .values()
        .filter(|counts| counts.0 == 0)
        .map(|counts| counts.1)
        .sum();
    missing as f64 / total.max(1) as f64
}

fn one_sided(characters: &Seen<char>) -> Vec<(char, f64, f64)> {
    let (train, dev) = characters
        .values()
        .fold((0, 0), |sum, c| (sum.0 + c.0, sum.1 + c.1));
    let share = |count: u64, total: u64| count as f64 / total.max(1) as f64;
    let shares = characters
        .iter()
        .map(|(&c, counts)| (c, share(counts.0, train), share(counts.1, dev)));
    let is_one_sided = |one: f64, other: f64| one.max(other) > ONE_SIDED * one.min(other);
    let mut found: Vec<_> = shares
        .filter(|&(_, one, other)| is_one_sided(one, other))
        .collect();
    found.sort_by(|a, b| b.1.max(b.2).total_cmp(&a.1.max(a.2)).then(a.0.cmp(&b.0)));
    found.truncate(TOLD);
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bpe::pattern::Pattern;

    #[test]
    fn finds_what_training_lacks() {
        let mut counter = Counter::new(Pattern::Gpt2m, 2).unwrap();
        counter.add(0, &["abab\u{200b}ab"], 1).unwrap();
        counter.add(1, &["abba", "xx"], 1).unwrap();
        let found = compare(&counter, 0, 1);
        assert_eq!(found.unseen_characters, 2.0 / 6.0);
        // Of ab, bb, ba and xx the training text lacks bb and xx.
        assert_eq!(found.unseen_pairs, 2.0 / 4.0);
        assert_eq!(found.alphabet, 3);
        assert_eq!(found.one_sided[0], ('x', 0.0, 2.0 / 6.0));
        assert_eq!(found.one_sided[1], ('\u{200b}', 1.0 / 7.0, 0.0));
    }
}
