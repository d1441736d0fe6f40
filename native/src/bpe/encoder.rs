//! Text to ids and back, exactly as the merges say.
//!
//! A piece that is a token which its own merges make is looked up; others are merged and remembered in a cache of
//! bounded size, one a thread at a time. Caches are taken with `try_lock`, and threads are scoped, so a fork at any
//! moment leaves nothing locked and nothing waited for.

use std::sync::Mutex;

use rustc_hash::FxHashMap;

use crate::bpe::pattern::Pattern;
use crate::bpe::piece::{Ranks, Scratch, merge};

/// Pieces longer than this are not remembered.
const CACHED_PIECE: usize = 128;
/// Bytes that a cache may hold before it is emptied.
const CACHE_BYTES: usize = 32 << 20;
/// Bytes of text below which one thread encodes a batch.
const PARALLEL_BYTES: usize = 1 << 18;

/// Pieces with their ids, and the memory of merging.
#[derive(Default)]
struct Cache {
    pieces: FxHashMap<Box<[u8]>, Box<[u32]>>,
    bytes: usize,
    scratch: Scratch,
}

/// A tokenizer's tables.
pub struct Encoder {
    pattern: Pattern,
    bytes: Vec<u8>,
    ends: Vec<usize>,
    byte_ids: [u32; 256],
    ranks: Ranks,
    /// Tokens that encode to themselves
    whole: FxHashMap<Box<[u8]>, u32>,
    specials: Vec<(Vec<u8>, u32)>,
    caches: Mutex<Vec<Cache>>,
}

/// Flat ids of a batch, and where each text ends.
pub type Batch = (Vec<u32>, Vec<u64>);

impl Encoder {
    /// `tokens` by id; `specials` are the ids of those that are not text; `merges` are pairs of ids in rank order.
    pub fn new(
        pattern: Pattern,
        tokens: &[Vec<u8>],
        specials: &[u32],
        merges: &[(u32, u32)],
    ) -> Result<Self, String> {
        let mut ids: FxHashMap<&[u8], u32> = FxHashMap::default();
        for (id, token) in tokens
            .iter()
            .enumerate()
            .filter(|(id, _)| !specials.contains(&(*id as u32)))
        {
            ids.entry(token).or_insert(id as u32);
        }
        let mut byte_ids = [0; 256];
        for byte in 0..=255u8 {
            let id = ids
                .get(&[byte][..])
                .ok_or_else(|| format!("the vocabulary lacks the byte {byte:#04x}"))?;
            byte_ids[byte as usize] = *id;
        }
        let mut encoder = Self {
            pattern,
            bytes: tokens.concat(),
            ends: tokens
                .iter()
                .scan(0, |end, token| {
                    *end += token.len();
                    Some(*end)
                })
                .collect(),
            byte_ids,
            ranks: ranks(tokens, &ids, merges)?,
            whole: FxHashMap::default(),
            specials: specials
                .iter()
                .map(|&id| (tokens[id as usize].clone(), id))
                .collect(),
            caches: Mutex::new(Vec::new()),
        };
        encoder.find_whole(&ids);
        Ok(encoder)
    }

    fn find_whole(&mut self, ids: &FxHashMap<&[u8], u32>) {
        let (mut scratch, mut out) = (Scratch::default(), Vec::new());
        for (&token, &id) in ids {
            out.clear();
            merge(
                token.iter().map(|&byte| self.byte_ids[byte as usize]),
                &self.ranks,
                &mut scratch,
                &mut out,
            );
            if out == [id] {
                self.whole.insert(token.into(), id);
            }
        }
    }

    /// Ids of the tokens that no text can give: their own merges end in something else.
    pub fn unreachable(&self) -> Vec<u32> {
        let mut ids: Vec<bool> = vec![true; self.ends.len()];
        self.whole
            .values()
            .chain(self.specials.iter().map(|s| &s.1))
            .for_each(|&id| ids[id as usize] = false);
        (0..self.ends.len() as u32)
            .filter(|&id| ids[id as usize])
            .collect()
    }

    fn take_cache(&self) -> Cache {
        self.caches
            .try_lock()
            .ok()
            .and_then(|mut caches| caches.pop())
            .unwrap_or_default()
    }

    fn give_cache(&self, cache: Cache) {
        if let Ok(mut caches) = self.caches.try_lock()
            && caches.len() < 64
        {
            caches.push(cache);
        }
    }

    /// Ids of each text. Text that looks like a special token is text, unless `allow_special`.
    pub fn encode_batch(
        &self,
        texts: &[&str],
        allow_special: bool,
        threads: usize,
    ) -> Result<Batch, String> {
        let bytes: usize = texts.iter().map(|text| text.len()).sum();
        let threads = threads.min(texts.len()).max(1);
        if threads == 1 || bytes < PARALLEL_BYTES {
            return self.encode_part(texts, allow_special);
        }
        let parts = split_evenly(texts, bytes / threads + 1);
        let done: Vec<Result<Batch, String>> = std::thread::scope(|scope| {
            let running: Vec<_> = parts
                .into_iter()
                .map(|part| scope.spawn(move || self.encode_part(part, allow_special)))
                .collect();
            running
                .into_iter()
                .map(|t| {
                    t.join()
                        .unwrap_or_else(|_| Err("an encoding thread died".into()))
                })
                .collect()
        });
        let mut all: Batch = (
            Vec::with_capacity(bytes / 3),
            Vec::with_capacity(texts.len()),
        );
        for part in done {
            let (ids, ends) = part?;
            let start = all.0.len() as u64;
            all.0.extend_from_slice(&ids);
            all.1.extend(ends.iter().map(|end| start + end));
        }
        Ok(all)
    }

    fn encode_part(&self, texts: &[&str], allow_special: bool) -> Result<Batch, String> {
        let mut cache = self.take_cache();
        let (mut ids, mut ends) = (Vec::new(), Vec::with_capacity(texts.len()));
        for text in texts {
            if allow_special {
                self.encode_special(text, &mut cache, &mut ids)?;
            } else {
                self.encode_text(text, &mut cache, &mut ids)?;
            }
            ends.push(ids.len() as u64);
        }
        self.give_cache(cache);
        Ok((ids, ends))
    }

    fn encode_text(&self, text: &str, cache: &mut Cache, out: &mut Vec<u32>) -> Result<(), String> {
        self.pattern
            .for_each(text, |piece| self.encode_piece(piece, cache, out))
    }

    #[inline]
    fn encode_piece(&self, piece: &[u8], cache: &mut Cache, out: &mut Vec<u32>) {
        if let Some(&id) = self.whole.get(piece) {
            return out.push(id);
        }
        if let Some(ids) = cache.pieces.get(piece) {
            return out.extend_from_slice(ids);
        }
        let start = out.len();
        let bytes = piece.iter().map(|&byte| self.byte_ids[byte as usize]);
        merge(bytes, &self.ranks, &mut cache.scratch, out);
        if piece.len() <= CACHED_PIECE {
            cache.bytes += piece.len() + 4 * (out.len() - start) + 48;
            if cache.bytes > CACHE_BYTES {
                cache.pieces.clear();
                cache.bytes = 0;
            }
            cache.pieces.insert(piece.into(), out[start..].into());
        }
    }

    /// Special tokens stand for themselves, the longest at a place; what lies between is text.
    fn encode_special(
        &self,
        text: &str,
        cache: &mut Cache,
        out: &mut Vec<u32>,
    ) -> Result<(), String> {
        let mut done = 0;
        for (start, end, id) in self.find_specials(text) {
            self.encode_text(&text[done..start], cache, out)?;
            out.push(id);
            done = end;
        }
        self.encode_text(&text[done..], cache, out)
    }

    /// Places (start, end, id) where special tokens are written out in a text, from the left, without overlap.
    pub fn find_specials(&self, text: &str) -> Vec<(usize, usize, u32)> {
        let mut first = [false; 256];
        self.specials
            .iter()
            .filter_map(|s| s.0.first())
            .for_each(|&byte| first[byte as usize] = true);
        let (mut found, mut at) = (Vec::new(), 0);
        let bytes = text.as_bytes();
        while at < bytes.len() {
            let longest = if first[bytes[at] as usize] {
                self.special_at(&bytes[at..])
            } else {
                None
            };
            match longest {
                Some((len, id)) => {
                    found.push((at, at + len, id));
                    at += len;
                }
                None => at += 1,
            }
        }
        found
    }

    fn special_at(&self, text: &[u8]) -> Option<(usize, u32)> {
        let fits = self
            .specials
            .iter()
            .filter(|(special, _)| !special.is_empty() && text.starts_with(special));
        fits.map(|(special, id)| (special.len(), *id)).max()
    }

    /// The bytes of ids.
    pub fn decode(&self, ids: &[u32]) -> Result<Vec<u8>, String> {
        let mut out = Vec::with_capacity(ids.len() * 4);
        for &id in ids {
            let end = *self.ends.get(id as usize).ok_or_else(|| {
                format!(
                    "id {id} is outside the vocabulary of {} tokens",
                    self.ends.len()
                )
            })?;
            let start = if id == 0 {
                0
            } else {
                self.ends[id as usize - 1]
            };
            out.extend_from_slice(&self.bytes[start..end]);
        }
        Ok(out)
    }
}

fn ranks(
    tokens: &[Vec<u8>],
    ids: &FxHashMap<&[u8], u32>,
    merges: &[(u32, u32)],
) -> Result<Ranks, String> {
    let mut ranks = Ranks::default();
    for (rank, &(left, right)) in merges.iter().enumerate() {
        let part = |id: u32| {
            tokens
                .get(id as usize)
                .ok_or_else(|| format!("merge {rank} names id {id}, which is no token"))
        };
        let whole = [part(left)?.as_slice(), part(right)?.as_slice()].concat();
        let id = ids.get(whole.as_slice()).ok_or_else(|| {
            format!(
                "merge {rank} makes `{}`, which is no token",
                String::from_utf8_lossy(&whole)
            )
        })?;
        ranks
            .entry((left as u64) << 32 | right as u64)
            .or_insert((rank as u32, *id));
    }
    Ok(ranks)
}

/// Runs of texts of about `bytes` bytes each.
pub(crate) fn split_evenly<'a, 'b>(mut texts: &'a [&'b str], bytes: usize) -> Vec<&'a [&'b str]> {
    let mut parts = Vec::new();
    while !texts.is_empty() {
        let mut sum = 0;
        let end = texts.iter().position(|text| {
            sum += text.len();
            sum >= bytes
        });
        let (part, rest) = texts.split_at(end.map_or(texts.len(), |last| last + 1));
        parts.push(part);
        texts = rest;
    }
    parts
}
