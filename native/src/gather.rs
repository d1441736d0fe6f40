//! The one copy between a token store and the wire: rows of ids out of shards, with the document edges in them.
//!
//! Each row is read from the kernel's page cache straight into its place in the answer; rows are filled in parallel.

use std::ops::Range;

use rayon::prelude::*;

use crate::reader::Reader;
use crate::shard::ShardRef;
use crate::store_error::StoreError;
use crate::stream::{Piece, Stream};

type Result<T> = std::result::Result<T, StoreError>;

/// Token ids and document edges of rows.
#[derive(Debug, Default)]
pub struct Edges {
    /// Edges of row r are `edges[ends[r - 1]..ends[r]]`.
    pub ends: Vec<u32>,
    pub edges: Vec<u32>,
}

/// The stream of parts that are padding: tokens that are masked, and are not read.
pub const PADDING: u32 = u32::MAX;

/// Rows of this many bytes are read in one go: all reads of a shard within see one state of its file.
const GROUP_BYTES: usize = 128 << 10;

/// Up to this many bytes other threads cost more than they save.
const ALONE_BYTES: usize = 256 << 10;

/// What to put into rows: row r is made of parts `ends[r - 1]..ends[r]`, then padding.
#[derive(Clone, Copy, Debug)]
pub struct Parts<'a> {
    /// Whether each part lies within one document, so that edges are where parts meet.
    pub whole: bool,
    pub ends: &'a [u32],
    pub streams: &'a [u32],
    pub starts: &'a [u64],
    pub lengths: &'a [u32],
}

/// The tokens around parts of one stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Span {
    stream: u32,
    start: u64,
    end: u64,
}

impl Span {
    /// Bytes that are read in the time that one more read takes.
    const READ_BYTES: u64 = 4096;
    const LEAST_PARTS: usize = 16;

    /// The span of whole documents that are many and close together; None when they are better read one by one.
    fn of(parts: &Parts<'_>, range: Range<usize>, id_bytes: usize) -> Option<Self> {
        if !parts.whole || range.len() < Self::LEAST_PARTS {
            return None;
        }
        let streams = &parts.streams[range.clone()];
        let stream = streams[0];
        if stream == PADDING || streams.iter().any(|&other| other != stream) {
            return None;
        }
        let ends = range
            .clone()
            .map(|part| parts.starts[part].checked_add(u64::from(parts.lengths[part])));
        let start = *parts.starts[range.clone()].iter().min()?;
        let end = ends.collect::<Option<Vec<u64>>>()?.into_iter().max()?;
        let bytes = (end - start).checked_mul(id_bytes as u64)?;
        (bytes <= Self::READ_BYTES * range.len() as u64).then_some(Self { stream, start, end })
    }
}

/// The shards of a corpus, opened read-only.
#[derive(Debug)]
pub struct Store {
    id_bytes: usize,
    pad_id: u32,
    streams: Vec<Stream>,
}

impl Store {
    /// Opens every shard of every stream; the first that does not fit the manifest is the error.
    pub fn open(id_bytes: usize, pad_id: u32, streams: Vec<Vec<ShardRef>>) -> Result<Self> {
        let streams = streams
            .into_iter()
            .map(|shards| Stream::open(shards, id_bytes))
            .collect::<Result<_>>()?;
        Ok(Self {
            id_bytes,
            pad_id,
            streams,
        })
    }

    pub fn id_bytes(&self) -> usize {
        self.id_bytes
    }

    pub fn stream(&self, number: u32) -> Result<&Stream> {
        self.streams.get(number as usize).ok_or_else(|| {
            StoreError::Range(format!(
                "stream {number} is asked for, there are {}",
                self.streams.len()
            ))
        })
    }

    /// Fills `out` (rows of `row_ids` ids, little-endian) and returns the edges within.
    pub fn gather(&self, parts: Parts<'_>, row_ids: usize, out: &mut [u8]) -> Result<Edges> {
        let row_bytes = row_ids * self.id_bytes;
        if out.len() != row_bytes * parts.ends.len() {
            return Err(StoreError::Range("the buffer does not fit the rows".into()));
        }
        let rows = (GROUP_BYTES / row_bytes.max(1)).clamp(1, 64);
        let size = row_bytes.max(1) * rows;
        let found: Vec<Vec<Vec<u32>>> = if out.len() <= ALONE_BYTES {
            let mut reader = Reader::default();
            let numbered = out.chunks_mut(size).enumerate();
            numbered
                .map(|(number, out)| {
                    self.fill_rows(parts, number * rows, row_bytes, out, &mut reader)
                })
                .collect::<Result<_>>()?
        } else {
            out.par_chunks_mut(size)
                .enumerate()
                .map_init(Reader::default, |reader, (number, out)| {
                    self.fill_rows(parts, number * rows, row_bytes, out, reader)
                })
                .collect::<Result<_>>()?
        };
        let mut all = Edges::default();
        for edges in found.into_iter().flatten() {
            all.edges.extend(edges);
            all.ends.push(all.edges.len() as u32);
        }
        Ok(all)
    }

    /// Fills rows from number `first` on, as one state of the shards' files has them.
    fn fill_rows<'a>(
        &'a self,
        parts: Parts<'_>,
        first: usize,
        row_bytes: usize,
        out: &mut [u8],
        reader: &mut Reader<'a>,
    ) -> Result<Vec<Vec<u32>>> {
        reader.settled(|reader| {
            out.chunks_mut(row_bytes.max(1))
                .enumerate()
                .map(|(row, out)| self.fill(parts, first + row, out, reader))
                .collect()
        })
    }

    fn fill<'a>(
        &'a self,
        parts: Parts<'_>,
        row: usize,
        out: &mut [u8],
        reader: &mut Reader<'a>,
    ) -> Result<Vec<u32>> {
        let first = if row == 0 {
            0
        } else {
            parts.ends[row - 1] as usize
        };
        let range = first..parts.ends[row] as usize;
        if let Some(span) = Span::of(&parts, range.clone(), self.id_bytes) {
            return self.fill_from(span, parts, range, out, reader);
        }
        let mut edges: Vec<u32> = Vec::new();
        let mut done = 0;
        for part in range {
            let length = parts.lengths[part] as usize * self.id_bytes;
            let base = (done / self.id_bytes) as u32;
            let Some(target) = out.get_mut(done..done + length) else {
                let what = format!("row {row} holds more ids than it has room for");
                return Err(StoreError::Range(what));
            };
            done += length;
            if base > 0 && length > 0 {
                edges.push(base);
            }
            if parts.streams[part] == PADDING {
                self.pad(target);
                continue;
            }
            let (stream, start) = (self.stream(parts.streams[part])?, parts.starts[part]);
            stream.copy(start, target, self.id_bytes, reader)?;
            if !parts.whole {
                stream.edges(start, u64::from(parts.lengths[part]), reader, |offset| {
                    if offset > 0 {
                        edges.push(base + offset as u32);
                    }
                })?;
            }
        }
        self.pad(&mut out[done..]);
        Ok(edges)
    }

    /// A row of many small parts that lie close together: read once as a whole.
    fn fill_from<'a>(
        &'a self,
        span: Span,
        parts: Parts<'_>,
        range: Range<usize>,
        out: &mut [u8],
        reader: &mut Reader<'a>,
    ) -> Result<Vec<u32>> {
        let mut held = std::mem::take(&mut reader.span);
        held.resize((span.end - span.start) as usize * self.id_bytes, 0);
        let read = self
            .stream(span.stream)
            .and_then(|stream| stream.copy(span.start, &mut held, self.id_bytes, reader));
        let mut edges: Vec<u32> = Vec::with_capacity(range.len());
        let mut done = 0;
        for part in range.clone() {
            let from = (parts.starts[part] - span.start) as usize * self.id_bytes;
            let length = parts.lengths[part] as usize * self.id_bytes;
            let Some(target) = out.get_mut(done..done + length) else {
                let what = "a row holds more ids than it has room for".to_owned();
                return Err(StoreError::Range(what));
            };
            target.copy_from_slice(&held[from..from + length]);
            if done > 0 && length > 0 {
                edges.push((done / self.id_bytes) as u32);
            }
            done += length;
        }
        self.pad(&mut out[done..]);
        reader.span = held;
        read.map(|()| edges)
    }

    fn pad(&self, out: &mut [u8]) {
        let pad = self.pad_id.to_le_bytes();
        for id in out.chunks_exact_mut(self.id_bytes) {
            id.copy_from_slice(&pad[..self.id_bytes]);
        }
    }

    /// Documents that hold tokens [start, start + length) of a stream.
    pub fn pieces(&self, stream: u32, start: u64, length: u64) -> Result<Vec<Piece>> {
        let stream = self.stream(stream)?;
        Reader::default().settled(|reader| stream.pieces(start, length, reader))
    }
}
