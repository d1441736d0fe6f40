//! Where a training run stands, as bytes: what a run that was stopped needs to go on, with the same result.
//!
//! The words as they are cut now, the merges that cut them, and the memory of who was served. Pairs and queues are not
//! kept: they follow from the words. All numbers are little-endian; a vector is its length, then its items.

use crate::bpe::cells::Cells;

const MAGIC: &[u8; 8] = b"HRBPE\0\0\x01";

/// The state of a run.
#[derive(Clone)]
pub struct State {
    pub cells: Cells,
    pub merges: Vec<(u32, u32)>,
    /// Tokens of each column, now and at the start
    pub totals: Vec<u64>,
    pub initial: Vec<u64>,
    pub exhausted: Vec<Option<usize>>,
    pub recent: Vec<u32>,
    /// Whether words may be joined by now
    pub crossing: bool,
}

impl State {
    /// The bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = MAGIC.to_vec();
        put(&mut out, &self.cells.cells, |&cell| cell.to_le_bytes());
        put(&mut out, &self.cells.ends, |&end| {
            (end as u64).to_le_bytes()
        });
        put(&mut out, &self.cells.counts, |&(column, _)| {
            column.to_le_bytes()
        });
        put(&mut out, &self.cells.counts, |&(_, count)| {
            count.to_le_bytes()
        });
        put(&mut out, &self.cells.long, |&header| header.to_le_bytes());
        put(&mut out, &self.merges, |&(left, right)| {
            ((left as u64) << 32 | right as u64).to_le_bytes()
        });
        put(&mut out, &self.totals, |&total| total.to_le_bytes());
        put(&mut out, &self.initial, |&total| total.to_le_bytes());
        put(&mut out, &self.exhausted, |at| {
            at.map_or(u64::MAX, |at| at as u64).to_le_bytes()
        });
        put(&mut out, &self.recent, |&language| language.to_le_bytes());
        put(&mut out, &[self.crossing], |&crossing| [u8::from(crossing)]);
        out
    }

    /// The state that these bytes are.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, String> {
        let mut rest = bytes
            .strip_prefix(MAGIC.as_slice())
            .ok_or("this is no state of a training run, or one of another version")?;
        let cells = take(&mut rest, u32::from_le_bytes)?;
        let ends = take(&mut rest, |b| u64::from_le_bytes(b) as usize)?;
        let columns = take(&mut rest, u16::from_le_bytes)?;
        let counts = take(&mut rest, u64::from_le_bytes)?;
        let long = take(&mut rest, u32::from_le_bytes)?;
        let split = |b| {
            let both = u64::from_le_bytes(b);
            ((both >> 32) as u32, both as u32)
        };
        let state = Self {
            merges: take(&mut rest, split)?,
            totals: take(&mut rest, u64::from_le_bytes)?,
            initial: take(&mut rest, u64::from_le_bytes)?,
            exhausted: take(&mut rest, |b| {
                Some(u64::from_le_bytes(b) as usize).filter(|&at| at != usize::MAX)
            })?,
            recent: take(&mut rest, u32::from_le_bytes)?,
            crossing: take(&mut rest, |[crossing]: [u8; 1]| crossing != 0)? == [true],
            cells: Cells {
                cells,
                ends,
                counts: columns.iter().copied().zip(counts).collect(),
                long,
            },
        };
        let fits = |&(column, _): &(u16, u64)| (column as usize) < state.totals.len();
        let is_whole = rest.is_empty() && state.initial.len() == state.totals.len();
        if is_whole && state.cells.counts.iter().all(fits) {
            Ok(state)
        } else {
            Err("the state of the training run is damaged".into())
        }
    }
}

fn put<T, const N: usize>(out: &mut Vec<u8>, items: &[T], bytes: impl Fn(&T) -> [u8; N]) {
    out.extend((items.len() as u64).to_le_bytes());
    out.reserve(items.len() * N);
    items.iter().for_each(|item| out.extend(bytes(item)));
}

fn take<T, const N: usize>(
    rest: &mut &[u8],
    item: impl Fn([u8; N]) -> T,
) -> Result<Vec<T>, String> {
    let cut = || "the state of the training run is cut off".to_string();
    let (head, tail) = rest.split_first_chunk::<8>().ok_or_else(cut)?;
    let size = usize::try_from(u64::from_le_bytes(*head))
        .ok()
        .and_then(|n| n.checked_mul(N));
    let (items, tail) = size
        .and_then(|size| tail.split_at_checked(size))
        .ok_or_else(cut)?;
    *rest = tail;
    Ok(items
        .as_chunks::<N>()
        .0
        .iter()
        .map(|&bytes| item(bytes))
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comes_back_and_damage_is_seen() {
        let state = State {
            cells: Cells {
                cells: vec![1 << 31, 5, 1 << 31],
                ends: vec![1],
                counts: vec![(1, 7)],
                long: vec![],
            },
            merges: vec![(3, 4)],
            totals: vec![1, 2],
            initial: vec![3, 4],
            exhausted: vec![None, Some(9)],
            recent: vec![1],
            crossing: true,
        };
        let bytes = state.to_bytes();
        let again = State::from_bytes(&bytes).unwrap();
        assert_eq!(again.to_bytes(), bytes);
        assert_eq!(again.exhausted, [None, Some(9)]);
        for end in 0..bytes.len() {
            assert!(State::from_bytes(&bytes[..end]).is_err());
        }
    }
}
