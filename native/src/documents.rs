//! From texts to documents of token ids: encoded, wrapped in the ids that begin and end a document, in the width of the
//! store. Ids leave the encoder some texts at a time, so that they are narrowed while they are still in the cache.

use memchr::memmem::Finder;
use xxhash_rust::xxh3::xxh3_128;

use crate::bpe::encoder::Encoder;
use crate::texts::Texts;

/// Bytes of text below which one thread encodes them.
const PARALLEL_BYTES: usize = 1 << 18;
/// Bytes of text that are encoded before their ids are narrowed.
const CHUNK_BYTES: usize = 1 << 16;

/// Bytes of a text above which its ids leave the encoder some at a time: all of them at once would take four times
/// the memory of the text and more.
const LONG_BYTES: usize = 1 << 20;

/// Bytes of text that give at least one id, mostly: a guess, so that memory is asked for once.
const BYTES_AN_ID: usize = 4;

/// How documents are made of texts.
#[derive(Clone, Copy, Debug)]
pub struct Rule<'a> {
    pub before: Option<u32>,
    pub after: Option<u32>,
    /// Texts that hold this are told; nothing is looked for when it is empty.
    pub spelling: &'a str,
}

/// Documents one after another.
#[derive(Debug, Default)]
pub struct Documents<T> {
    pub ids: Vec<T>,
    pub ends: Vec<i64>,
    /// XXH3-128 of each text's UTF-8, 16 bytes a document.
    pub digests: Vec<u8>,
    /// UTF-8 bytes of each text.
    pub sizes: Vec<i64>,
    /// Numbers of the texts that hold the spelling.
    pub spelling: Vec<usize>,
}

/// An id in the width of a store.
pub trait Id: Copy + Send + TryFrom<u32> {
    fn narrow(id: u32) -> Self;
    const LARGEST: u32;
}

impl Id for u16 {
    const LARGEST: u32 = u16::MAX as u32;
    fn narrow(id: u32) -> Self {
        id as Self
    }
}

impl Id for u32 {
    const LARGEST: u32 = u32::MAX;
    fn narrow(id: u32) -> Self {
        id
    }
}

/// The documents of texts, the same for any number of threads.
pub fn encode<T: Id>(
    encoder: &Encoder,
    texts: &Texts,
    rule: Rule<'_>,
    threads: usize,
) -> Result<Documents<T>, String> {
    let parts = if texts.bytes() < PARALLEL_BYTES {
        1
    } else {
        threads.clamp(1, texts.len().max(1))
    };
    let bounds = split(texts, parts);
    if let [(first, last)] = bounds[..] {
        return part(encoder, texts, first, last, rule);
    }
    let done: Vec<Result<Documents<T>, String>> = std::thread::scope(|scope| {
        let start = |(first, last)| scope.spawn(move || part(encoder, texts, first, last, rule));
        let running: Vec<_> = bounds.into_iter().map(start).collect();
        let died = |_| Err("an encoding thread died".into());
        running
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(died))
            .collect()
    });
    join(done)
}

/// Ranges of texts of about equal bytes.
fn split(texts: &Texts, parts: usize) -> Vec<(usize, usize)> {
    if parts == 1 {
        return vec![(0, texts.len())];
    }
    let share = texts.bytes() / parts + 1;
    let mut bounds = Vec::new();
    let (mut first, mut held) = (0, 0);
    for (number, text) in texts.iter().enumerate() {
        held += text.len();
        if held >= share {
            bounds.push((first, number + 1));
            (first, held) = (number + 1, 0);
        }
    }
    if first < texts.len() {
        bounds.push((first, texts.len()));
    }
    bounds
}

fn part<T: Id>(
    encoder: &Encoder,
    texts: &Texts,
    first: usize,
    last: usize,
    rule: Rule<'_>,
) -> Result<Documents<T>, String> {
    let mut done = Documents {
        ids: Vec::with_capacity(texts.bytes_of(first, last) / BYTES_AN_ID),
        ends: Vec::with_capacity(last - first),
        digests: Vec::with_capacity(16 * (last - first)),
        sizes: Vec::with_capacity(last - first),
        spelling: Vec::new(),
    };
    let finder = (!rule.spelling.is_empty()).then(|| Finder::new(rule.spelling));
    let mut chunk: Vec<&str> = Vec::new();
    let mut held = 0;
    for number in first..last {
        let text = texts.get(number);
        if finder
            .as_ref()
            .is_some_and(|finder| finder.find(text.as_bytes()).is_some())
        {
            done.spelling.push(number);
        }
        done.digests.extend(xxh3_128(text.as_bytes()).to_le_bytes());
        done.sizes.push(text.len() as i64);
        if text.len() >= LONG_BYTES {
            add(encoder, &chunk, rule, &mut done)?;
            add_long(encoder, text, rule, &mut done)?;
            chunk.clear();
            held = 0;
            continue;
        }
        chunk.push(text);
        held += text.len();
        if held >= CHUNK_BYTES {
            add(encoder, &chunk, rule, &mut done)?;
            chunk.clear();
            held = 0;
        }
    }
    add(encoder, &chunk, rule, &mut done)?;
    Ok(done)
}

/// One document.
fn add_long<T: Id>(
    encoder: &Encoder,
    text: &str,
    rule: Rule<'_>,
    done: &mut Documents<T>,
) -> Result<(), String> {
    check::<T>(&[], rule)?;
    done.ids.extend(rule.before.map(T::narrow));
    encoder.encode_each(text, &mut |ids| {
        check::<T>(ids, rule)?;
        done.ids.extend(ids.iter().map(|&id| T::narrow(id)));
        Ok(())
    })?;
    done.ids.extend(rule.after.map(T::narrow));
    done.ends.push(done.ids.len() as i64);
    Ok(())
}

/// Refuses ids that the width of the store does not hold.
fn check<T: Id>(ids: &[u32], rule: Rule<'_>) -> Result<(), String> {
    let wraps = [rule.before, rule.after].into_iter().flatten();
    let largest = ids.iter().copied().chain(wraps).max();
    if largest.is_some_and(|largest| largest > T::LARGEST) {
        return Err(format!("an id is above {}", T::LARGEST));
    }
    Ok(())
}

fn add<T: Id>(
    encoder: &Encoder,
    chunk: &[&str],
    rule: Rule<'_>,
    done: &mut Documents<T>,
) -> Result<(), String> {
    let (ids, ends) = encoder.encode_batch(chunk, false, 1)?;
    check::<T>(&ids, rule)?;
    done.ids.reserve(ids.len() + 2 * chunk.len());
    let mut start = 0;
    for end in ends {
        done.ids.extend(rule.before.map(T::narrow));
        let text = &ids[start..end as usize];
        done.ids.extend(text.iter().map(|&id| T::narrow(id)));
        done.ids.extend(rule.after.map(T::narrow));
        done.ends.push(done.ids.len() as i64);
        start = end as usize;
    }
    Ok(())
}

fn join<T: Id>(parts: Vec<Result<Documents<T>, String>>) -> Result<Documents<T>, String> {
    let mut parts = parts.into_iter();
    let mut all = parts
        .next()
        .unwrap_or_else(|| Err("there is nothing to join".into()))?;
    for each in parts {
        let each = each?;
        let base = all.ids.len() as i64;
        all.ids.extend(each.ids);
        all.ends.extend(each.ends.iter().map(|end| base + end));
        all.digests.extend(each.digests);
        all.sizes.extend(each.sizes);
        all.spelling.extend(each.spelling);
    }
    Ok(all)
}

/// How often each id occurs; ids above the largest one that occurs are left out.
pub fn count<T: Id + Into<u32>>(ids: &[T]) -> Vec<i64> {
    let largest = ids.iter().map(|&id| id.into()).max();
    let size = largest.map_or(0, |largest: u32| largest as usize + 1);
    // Two tables, so that a run of one id does not wait for its own last sum.
    let (mut even, mut odd) = (vec![0u32; size], vec![0u32; size]);
    let mut pairs = ids.chunks_exact(2);
    for pair in &mut pairs {
        even[pair[0].into() as usize] += 1;
        odd[pair[1].into() as usize] += 1;
    }
    for &id in pairs.remainder() {
        even[id.into() as usize] += 1;
    }
    let sum = |(&left, &right): (&u32, &u32)| i64::from(left) + i64::from(right);
    even.iter().zip(&odd).map(sum).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bpe::pattern::{NAMES, Pattern};

    fn encoder() -> Encoder {
        let mut tokens = vec![b"<|end|>".to_vec()];
        tokens.extend((0..=255u8).map(|byte| vec![byte]));
        Encoder::new(Pattern::named(NAMES[0]).unwrap(), &tokens, &[0], &[]).unwrap()
    }

    #[test]
    fn documents_are_wrapped_and_do_not_depend_on_threads() {
        let mut texts = Texts::default();
        for number in 0..3000u64 {
            texts.push(number, &"ab <|".repeat(number as usize % 50));
        }
        let rule = Rule {
            before: None,
            after: Some(0),
            spelling: "<|",
        };
        let one: Documents<u16> = encode(&encoder(), &texts, rule, 1).unwrap();
        let many: Documents<u16> = encode(&encoder(), &texts, rule, 3).unwrap();
        assert_eq!(one.ids, many.ids);
        assert_eq!(one.ends, many.ends);
        assert_eq!(one.spelling, many.spelling);
        assert_eq!(one.ids.len(), texts.bytes() + texts.len());
        assert_eq!(one.ids[one.ends[5] as usize - 1], 0);
        assert_eq!(one.spelling[..3], [1, 2, 3]);
        let wide = Rule {
            after: Some(70_000),
            ..rule
        };
        assert!(encode::<u16>(&encoder(), &texts, wide, 1).is_err());
        assert!(encode::<u32>(&encoder(), &texts, wide, 1).is_ok());
    }

    #[test]
    fn long_texts_give_what_they_give_at_once() {
        let long = "one \u{e9}\u{4e2d} 23\n".repeat(LONG_BYTES / 10);
        let mut texts = Texts::default();
        for (row, text) in ["before", &long, "between", &long[..LONG_BYTES], "after"]
            .iter()
            .enumerate()
        {
            texts.push(row as u64, text);
        }
        let rule = Rule {
            before: Some(1),
            after: Some(0),
            spelling: "",
        };
        let done: Documents<u16> = encode(&encoder(), &texts, rule, 1).unwrap();
        let all: Vec<&str> = texts.iter().collect();
        let (ids, ends) = encoder().encode_batch(&all, false, 1).unwrap();
        let mut start = 0;
        for (number, end) in ends.iter().map(|&end| end as usize).enumerate() {
            let first = if number == 0 {
                0
            } else {
                done.ends[number - 1] as usize
            };
            let found: Vec<u32> = done.ids[first..done.ends[number] as usize]
                .iter()
                .map(|&id| id.into())
                .collect();
            assert_eq!(found[1..found.len() - 1], ids[start..end]);
            assert_eq!((found[0], found[found.len() - 1]), (1, 0));
            start = end;
        }
        let wide = Rule {
            after: Some(70_000),
            ..rule
        };
        assert!(encode::<u16>(&encoder(), &texts, wide, 1).is_err());
    }

    #[test]
    fn ids_are_counted() {
        assert_eq!(count(&[3u16, 3, 3, 0, 3]), [1, 0, 0, 4]);
        assert_eq!(count::<u32>(&[]), [0i64; 0]);
    }
}
