//! `best_fit`: whole documents packed into windows, inside closed groups, so that any window is found by packing one group.
//!
//! Within a group, documents longer than a window are cut into full windows from their start. What is left, and all
//! shorter documents, longest first (ties: the earlier document), each go to the open window with the least room that
//! holds them (ties: the one opened first), or open a new one. Windows are numbered: cut ones in the order of their
//! documents, then the others as they were opened; the documents of a window lie in it in their own order.
//! Best-fit decreasing needs at most 11/9 of the fewest windows possible (Johnson 1973); on texts it is within a percent.

/// Tokens [begin, begin + length) of a document that go into one window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    pub document: u32,
    pub begin: u64,
    /// `seq_len + 1` where the document goes on: the last token is a label only.
    pub length: u32,
}

/// A packed group: which window each part goes to.
#[derive(Debug, Default)]
pub struct Packed {
    /// Windows that are cut from long documents, one part each.
    cuts: Vec<Part>,
    /// The other parts in the order of their documents, and the windows they go to, from 0.
    rest: Vec<Part>,
    window_of: Vec<u32>,
    /// Windows of those.
    windows: u32,
}

impl Packed {
    /// Number of windows.
    pub fn windows(&self) -> usize {
        self.cuts.len() + self.windows as usize
    }

    /// The parts of a window in order, None when there is no such window.
    pub fn window(&self, number: usize) -> Option<Vec<Part>> {
        if let Some(&cut) = self.cuts.get(number) {
            return Some(vec![cut]);
        }
        let wanted = (number - self.cuts.len()) as u32;
        let mine = self.window_of.iter().zip(&self.rest);
        (wanted < self.windows).then(|| {
            mine.filter(|&(&window, _)| window == wanted)
                .map(|(_, &part)| part)
                .collect()
        })
    }
}

/// The windows of a group of documents of these lengths; windows take `seq_len` input tokens.
pub fn pack(lengths: &[u64], seq_len: u32) -> Packed {
    let room = u64::from(seq_len);
    let mut cuts = Vec::new();
    let mut rest: Vec<Part> = Vec::with_capacity(lengths.len());
    for (document, &length) in lengths.iter().enumerate() {
        let document = document as u32;
        let full = length.saturating_sub(1) / room;
        cuts.extend((0..full).map(|cut| Part {
            document,
            begin: cut * room,
            length: seq_len + 1,
        }));
        if length > 0 {
            rest.push(Part {
                document,
                begin: full * room,
                length: (length - full * room) as u32,
            });
        }
    }
    let (window_of, windows) = fit(&rest, seq_len);
    Packed {
        cuts,
        rest,
        window_of,
        windows,
    }
}

/// The window of each part, longest parts first into the fullest window that still holds them; and their number.
fn fit(parts: &[Part], seq_len: u32) -> (Vec<u32>, u32) {
    // One number a part, that sorts by falling length and then by place.
    let key = |(at, part): (usize, &Part)| u64::from(seq_len - part.length) << 32 | at as u64;
    let mut order: Vec<u64> = parts.iter().enumerate().map(key).collect();
    order.sort_unstable();
    let mut window_of = vec![0; parts.len()];
    let mut windows = 0u32;
    // Windows as (room left, number), sorted. All before the one that is found have less room than the part, so it stays
    // in its place as long as it could hold another such part, and that part then needs no search. Else it moves to the
    // left past those with less room than it has, and they are few.
    let mut open: Vec<u64> = Vec::new();
    let mut again = None;
    for at in order.into_iter().map(|key| key as u32 as usize) {
        let length = u64::from(parts[at].length);
        let found = match again {
            Some((place, same)) if same == length => place,
            _ => open.partition_point(|&window| window < length << 32),
        };
        if found == open.len() {
            open.push(u64::from(seq_len) << 32 | u64::from(windows));
            windows += 1;
        }
        let window = open[found] - (length << 32);
        window_of[at] = window as u32;
        if window >> 32 >= length {
            open[found] = window;
            again = Some((found, length));
        } else {
            let place = open[..found].partition_point(|&other| other < window);
            open.copy_within(place..found, place + 1);
            open[place] = window;
            again = None;
        }
    }
    (window_of, windows)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn all(packed: &Packed) -> Vec<Vec<Part>> {
        (0..packed.windows())
            .map(|number| packed.window(number).unwrap())
            .collect()
    }

    /// The rule as it is written: each part looks at all windows.
    fn slowly(parts: &[Part], seq_len: u32) -> (Vec<u32>, u32) {
        let mut order: Vec<usize> = (0..parts.len()).collect();
        order.sort_by_key(|&at| (std::cmp::Reverse(parts[at].length), at));
        let (mut window_of, mut left) = (vec![0; parts.len()], Vec::<u32>::new());
        for at in order {
            let holds = |&window: &usize| left[window] >= parts[at].length;
            let best = (0..left.len())
                .filter(holds)
                .min_by_key(|&window| (left[window], window));
            let window = best.unwrap_or_else(|| {
                left.push(seq_len);
                left.len() - 1
            });
            left[window] -= parts[at].length;
            window_of[at] = window as u32;
        }
        (window_of, left.len() as u32)
    }

    #[test]
    fn long_documents_are_cut_and_short_ones_fill_the_gaps() {
        let part = |document, begin, length| Part {
            document,
            begin,
            length,
        };
        assert_eq!(
            all(&pack(&[10, 3, 25, 7, 5], 10)),
            vec![
                vec![part(2, 0, 11)],
                vec![part(2, 10, 11)],
                vec![part(0, 0, 10)],
                vec![part(1, 0, 3), part(3, 0, 7)],
                vec![part(2, 20, 5), part(4, 0, 5)],
            ]
        );
    }

    proptest! {
        #[test]
        fn every_token_is_an_input_once(lengths in prop::collection::vec(0u64..300, 0..80), seq_len in 1u32..64) {
            let mut seen: Vec<Vec<u32>> = lengths.iter().map(|&length| vec![0; length as usize]).collect();
            for window in all(&pack(&lengths, seq_len)) {
                let inputs: u32 = window.iter().map(|part| part.length.min(seq_len)).sum();
                prop_assert!(inputs >= 1 && inputs <= seq_len);
                for part in window {
                    let begin = part.begin as usize;
                    for count in &mut seen[part.document as usize][begin..][..part.length.min(seq_len) as usize] {
                        *count += 1;
                    }
                }
            }
            prop_assert!(seen.iter().flatten().all(|&count| count == 1));
        }

        #[test]
        fn the_quick_way_is_the_rule(lengths in prop::collection::vec(0u64..40, 0..200), seq_len in 1u32..64) {
            let packed = pack(&lengths, seq_len);
            prop_assert_eq!(fit(&packed.rest, seq_len), slowly(&packed.rest, seq_len));
        }
    }
}
