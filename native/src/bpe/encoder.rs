//! Text to ids and back, exactly as the merges say.
//!
//! Pieces are found some sixty at a time, then looked up in the cache of the thread; a new one is cut by `greedy`, or
//! merged where that can't be, and then remembered. Threads are scoped, and what they keep is got without waiting, so a
//! fork at any moment leaves nothing locked and nothing waited for.

use rustc_hash::FxHashMap;

use crate::bpe::batch::{Batch, join, split_evenly};
use crate::bpe::cache::{Asked, Sink};
use crate::bpe::greedy::Greedy;
use crate::bpe::memory::{Memories, Memory};
use crate::bpe::pages::advise;
use crate::bpe::pattern::Pattern;
use crate::bpe::piece::{Scratch, merge};
use crate::bpe::ranks::Ranks;

/// Bytes of text below which one thread encodes a batch.
const PARALLEL_BYTES: usize = 1 << 18;
/// Ids that `encode_each` hands out at once, or a few more.
const EACH_IDS: usize = 1 << 14;
/// Bytes of text that give at least one id, mostly.
const BYTES_AN_ID: usize = 3;

/// Most tokens whose ids fit the tables.
const MOST_TOKENS: usize = 1 << 21;

/// A tokenizer's tables.
pub struct Encoder {
    pattern: Pattern,
    bytes: Vec<u8>,
    ends: Vec<usize>,
    ranks: Ranks,
    greedy: Option<Greedy>,
    /// Which ids their own merges make
    is_whole: Vec<bool>,
    specials: Vec<(Vec<u8>, u32)>,
    memories: Memories,
}

type IdsByToken<'a> = FxHashMap<&'a [u8], u32>;

impl Encoder {
    /// `tokens` by id; `specials` are the ids of those that are not text; `merges` are pairs of ids in rank order.
    pub fn new(
        pattern: Pattern,
        tokens: &[Vec<u8>],
        specials: &[u32],
        merges: &[(u32, u32)],
    ) -> Result<Self, String> {
        let mut ids = IdsByToken::default();
        for (id, token) in tokens.iter().enumerate() {
            if !specials.contains(&(id as u32)) {
                ids.entry(token).or_insert(id as u32);
            }
        }
        if ids.len() > MOST_TOKENS {
            return Err(format!("at most {MOST_TOKENS} tokens are supported"));
        }
        let (byte_ids, merges) = (byte_ids(&ids)?, made(tokens, &ids, merges)?);
        let ranks = Ranks::new(byte_ids, &merges)?;
        let is_whole = whole(&ids, &ranks, tokens.len());
        let all_whole = merges.iter().all(|merge| is_whole[merge.2 as usize]);
        let greedy = all_whole.then(|| Greedy::new(&byte_ids, &merges)).flatten();
        let mut end = 0;
        let ends = tokens.iter().map(|token| {
            end += token.len();
            end
        });
        Ok(Self {
            pattern,
            bytes: tokens.concat(),
            ends: ends.collect(),
            greedy,
            is_whole,
            ranks,
            specials: specials
                .iter()
                .map(|&id| (tokens[id as usize].clone(), id))
                .collect(),
            memories: Memories::default(),
        })
    }

    /// Ids of the tokens that no text can give: their own merges end in something else.
    pub fn unreachable(&self) -> Vec<u32> {
        let is_special = |id: u32| self.specials.iter().any(|special| special.1 == id);
        let lost = |id: &u32| !self.is_whole[*id as usize] && !is_special(*id);
        (0..self.ends.len() as u32).filter(lost).collect()
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
            return self.encode_part(0, texts, allow_special, bytes);
        }
        let parts = split_evenly(texts, bytes / threads + 1);
        let done: Vec<Result<Batch, String>> = std::thread::scope(|scope| {
            let first = parts[0];
            let start = |(number, part)| {
                scope.spawn(move || self.encode_part(number, part, allow_special, 0))
            };
            let running: Vec<_> = parts.into_iter().enumerate().skip(1).map(start).collect();
            let first = self.encode_part(0, first, allow_special, bytes);
            let died = |_| Err("an encoding thread died".into());
            let others = running
                .into_iter()
                .map(|thread| thread.join().unwrap_or_else(died));
            std::iter::once(first).chain(others).collect()
        });
        join(done)
    }

    /// Ids of a part of a batch, with room for those of at least `room` bytes of text.
    fn encode_part(
        &self,
        number: usize,
        texts: &[&str],
        allow_special: bool,
        room: usize,
    ) -> Result<Batch, String> {
        let mut memory = self.memories.take(number);
        let bytes: usize = texts.iter().map(|text| text.len()).sum();
        // A guess that is mostly enough; the vector grows by itself where it is not.
        let mut ids = Vec::with_capacity(bytes.max(room) / BYTES_AN_ID);
        advise(&mut ids);
        let mut ends = Vec::with_capacity(texts.len());
        for text in texts {
            if allow_special {
                self.encode_special(text, &mut memory, &mut ids)?;
            } else {
                self.encode_text(text, &mut memory, &mut ids)?;
            }
            ends.push(ids.len() as u64);
        }
        self.memories.give(number, memory);
        Ok((ids, ends))
    }

    fn encode_text(
        &self,
        text: &str,
        memory: &mut Memory,
        out: &mut Vec<u32>,
    ) -> Result<(), String> {
        if !self.pattern.is_scanned() {
            let mut sink = Sink::new(out);
            return self
                .pattern
                .for_each(text, |piece| {
                    sink.reserve(1);
                    let asked = memory.cache.ask(piece, 0, piece.len());
                    self.encode_piece(piece, &asked, 1, memory, &mut sink);
                })
                .map(|()| sink.finish());
        }
        let mut sink = Sink::new(out);
        let (mut start, mut at) = (0, 0);
        while at < text.len() {
            memory.ends.clear();
            at = self.pattern.fill(text, at, &mut memory.ends);
            start = self.encode_some(text.as_bytes(), start, memory, &mut sink);
        }
        sink.finish();
        Ok(())
    }

    /// The ids of a text of any length, some at a time: they take no memory that grows with it.
    pub fn encode_each(
        &self,
        text: &str,
        each: &mut dyn FnMut(&[u32]) -> Result<(), String>,
    ) -> Result<(), String> {
        let (mut memory, mut ids) = (self.memories.take(0), Vec::new());
        let (mut start, mut at) = (0, 0);
        if !self.pattern.is_scanned() {
            self.encode_text(text, &mut memory, &mut ids)?;
            at = text.len();
        }
        while at < text.len() {
            memory.ends.clear();
            at = self.pattern.fill(text, at, &mut memory.ends);
            let mut sink = Sink::new(&mut ids);
            start = self.encode_some(text.as_bytes(), start, &mut memory, &mut sink);
            sink.finish();
            if ids.len() >= EACH_IDS {
                each(&ids)?;
                ids.clear();
            }
        }
        each(&ids)?;
        self.memories.give(0, memory);
        Ok(())
    }

    /// Encode the pieces, whose ends are in the memory, from `start` on; where the last one ends.
    fn encode_some(
        &self,
        text: &[u8],
        mut start: usize,
        memory: &mut Memory,
        sink: &mut Sink,
    ) -> usize {
        let mut asked = std::mem::take(&mut memory.asked);
        asked.clear();
        let (mut begin, cache) = (start, &memory.cache);
        asked.extend(memory.ends.as_slice().iter().map(|&end| {
            let asked = cache.ask(text, begin, end);
            begin = end;
            asked
        }));
        sink.reserve(asked.len());
        for (done, one) in asked.iter().enumerate() {
            self.encode_piece(&text[start..one.end], one, asked.len() - done, memory, sink);
            start = one.end;
        }
        memory.asked = asked;
        start
    }

    #[inline(always)]
    fn encode_piece(
        &self,
        piece: &[u8],
        asked: &Asked,
        groups: usize,
        memory: &mut Memory,
        sink: &mut Sink,
    ) {
        if !memory.cache.get(piece, asked, groups, sink) {
            self.encode_new(piece, groups, memory, sink);
        }
    }

    #[cold]
    #[inline(never)]
    fn encode_new(&self, piece: &[u8], groups: usize, memory: &mut Memory, sink: &mut Sink) {
        let mut ids = std::mem::take(&mut memory.ids);
        ids.clear();
        let greedy = self.greedy.as_ref();
        if !greedy.is_some_and(|greedy| greedy.encode(piece, &mut memory.trail, &mut ids)) {
            merge(piece, &self.ranks, &mut memory.scratch, &mut ids);
        }
        memory.cache.put(piece, &ids);
        sink.append(groups, &ids);
        memory.ids = ids;
    }

    /// Special tokens stand for themselves, the longest at a place; what lies between is text.
    fn encode_special(
        &self,
        text: &str,
        memory: &mut Memory,
        out: &mut Vec<u32>,
    ) -> Result<(), String> {
        let mut done = 0;
        for (start, end, id) in self.find_specials(text) {
            self.encode_text(&text[done..start], memory, out)?;
            out.push(id);
            done = end;
        }
        self.encode_text(&text[done..], memory, out)
    }

    /// Places (start, end, id) where special tokens are written out in a text, from the left, without overlap.
    pub fn find_specials(&self, text: &str) -> Vec<(usize, usize, u32)> {
        let mut first = [false; 256];
        let beginnings = self.specials.iter().filter_map(|special| special.0.first());
        beginnings.for_each(|&byte| first[byte as usize] = true);
        let (mut found, mut at) = (Vec::new(), 0);
        let bytes = text.as_bytes();
        while at < bytes.len() {
            let may_begin = first[bytes[at] as usize];
            match may_begin.then(|| self.special_at(&bytes[at..])).flatten() {
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
        let written = |special: &[u8]| !special.is_empty() && text.starts_with(special);
        let fits = self.specials.iter().filter(|(special, _)| written(special));
        fits.map(|(special, id)| (special.len(), *id)).max()
    }

    /// The bytes of ids.
    pub fn decode(&self, ids: &[u32]) -> Result<Vec<u8>, String> {
        let mut out = Vec::with_capacity(ids.len() * 4);
        for &id in ids {
            let Some(&end) = self.ends.get(id as usize) else {
                let size = self.ends.len();
                return Err(format!(
                    "id {id} is outside the vocabulary of {size} tokens"
                ));
            };
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

/// The id of each byte.
fn byte_ids(ids: &IdsByToken) -> Result<[u32; 256], String> {
    let mut found = [0; 256];
    for byte in 0..=255u8 {
        let id = ids.get(&[byte][..]);
        let missing = || format!("the vocabulary lacks the byte {byte:#04x}");
        found[byte as usize] = *id.ok_or_else(missing)?;
    }
    Ok(found)
}

/// Each merge as (left, right, made).
fn made(
    tokens: &[Vec<u8>],
    ids: &IdsByToken,
    merges: &[(u32, u32)],
) -> Result<Vec<(u32, u32, u32)>, String> {
    let mut made = Vec::with_capacity(merges.len());
    for (rank, &(left, right)) in merges.iter().enumerate() {
        let [Some(one), Some(other)] = [left, right].map(|id| tokens.get(id as usize)) else {
            return Err(format!(
                "merge {rank} names ids {left} and {right}, not both tokens"
            ));
        };
        let string = [one.as_slice(), other].concat();
        let Some(&id) = ids.get(string.as_slice()) else {
            let string = String::from_utf8_lossy(&string);
            return Err(format!("merge {rank} makes `{string}`, which is no token"));
        };
        made.push((left, right, id));
    }
    Ok(made)
}

/// Which ids the merges of their own bytes make.
fn whole(ids: &IdsByToken, ranks: &Ranks, size: usize) -> Vec<bool> {
    let mut is_whole = vec![false; size];
    let (mut scratch, mut out) = (Scratch::default(), Vec::new());
    for (&token, &id) in ids {
        out.clear();
        merge(token, ranks, &mut scratch, &mut out);
        is_whole[id as usize] = out == [id];
    }
    is_whole
}
