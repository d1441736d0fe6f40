//! What one merge gathers about its neighbours: a slot for each token that stands beside the merged pair on one side.

/// Most places whose memory a slot keeps for the next merge.
const KEPT_PLACES: usize = 1 << 14;

/// Neighbours on one side, each with its counts by column and its places.
#[derive(Default)]
pub struct Slots {
    /// Slot + 1 of a token id, 0 where it has none
    of: Vec<u32>,
    ids: Vec<u32>,
    pub counts: Vec<u64>,
    pub places: Vec<Vec<u32>>,
}

impl Slots {
    /// Slots for ids up to `tokens`.
    pub fn new(tokens: usize) -> Self {
        Self {
            of: vec![0; tokens + 1],
            ..Self::default()
        }
    }

    #[inline]
    fn slot(&mut self, id: u32, columns: usize) -> usize {
        let slot = self.of[id as usize];
        if slot > 0 {
            return slot as usize - 1;
        }
        self.ids.push(id);
        self.of[id as usize] = self.ids.len() as u32;
        self.counts.resize(self.ids.len() * columns, 0);
        if self.places.len() < self.ids.len() {
            self.places.push(Vec::new());
        }
        self.ids.len() - 1
    }

    /// Note that a neighbour stands at a place; where its counts begin.
    #[inline]
    pub fn add(&mut self, id: u32, place: u32, columns: usize) -> usize {
        let slot = self.slot(id, columns);
        self.places[slot].push(place);
        slot * columns
    }

    /// The counts of one neighbour.
    pub fn row(&self, id: u32, columns: usize) -> Option<&[u64]> {
        let slot = self.of[id as usize].checked_sub(1)? as usize;
        Some(&self.counts[slot * columns..(slot + 1) * columns])
    }

    /// Each neighbour with its counts, in slot order.
    pub fn rows(&self, columns: usize) -> impl Iterator<Item = (u32, &[u64])> {
        self.ids
            .iter()
            .copied()
            .zip(self.counts.chunks_exact(columns))
    }

    /// Take counts off a neighbour's.
    pub fn subtract(&mut self, id: u32, taken: &[u64], columns: usize) {
        let slot = self.slot(id, columns);
        let row = &mut self.counts[slot * columns..(slot + 1) * columns];
        row.iter_mut()
            .zip(taken)
            .for_each(|(count, taken)| *count -= taken);
    }

    /// Empty all slots for the next merge.
    pub fn clear(&mut self) {
        for (slot, id) in self.ids.drain(..).enumerate() {
            self.of[id as usize] = 0;
            self.places[slot].clear();
            self.places[slot].shrink_to(KEPT_PLACES);
        }
        self.counts.clear();
    }
}
