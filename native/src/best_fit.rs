//! `best_fit`: whole documents packed into windows, inside closed groups, so that any window is found by packing one group.
//!
//! Within a group, documents longer than a window are cut into full windows from their start. What is left, and all
//! shorter documents, longest first (ties: the earlier document), each go to the open window with the least room that
//! holds them (ties: the one opened first), or open a new one. Windows are numbered: cut ones in the order of their
//! documents, then the others as they were opened; the documents of a window lie in it in their own order.
//! Best-fit decreasing needs at most 11/9 of the fewest windows possible (Johnson 1973); on texts it is within a percent.

use std::collections::BTreeMap;

/// Tokens [begin, begin + length) of a document that go into one window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    pub document: u32,
    pub begin: u64,
    /// `seq_len + 1` where the document goes on: the last token is a label only.
    pub length: u32,
}

/// The windows of a group of documents of these lengths; windows take `seq_len` input tokens.
pub fn pack(lengths: &[u64], seq_len: u32) -> Vec<Vec<Part>> {
    let room = u64::from(seq_len);
    let mut windows = Vec::new();
    let mut rest: Vec<Part> = Vec::with_capacity(lengths.len());
    for (document, &length) in lengths.iter().enumerate() {
        let document = document as u32;
        let cuts = length.saturating_sub(1) / room;
        for cut in 0..cuts {
            windows.push(vec![Part {
                document,
                begin: cut * room,
                length: seq_len + 1,
            }]);
        }
        if length > 0 {
            let length = (length - cuts * room) as u32;
            rest.push(Part {
                document,
                begin: cuts * room,
                length,
            });
        }
    }
    rest.sort_by_key(|part| (std::cmp::Reverse(part.length), part.document));
    fit(&mut windows, &rest, seq_len);
    windows
}

/// Puts parts, longest first, into the fullest window that still holds them.
fn fit(windows: &mut Vec<Vec<Part>>, parts: &[Part], seq_len: u32) {
    let first = windows.len();
    // Windows by (room left, number); each has a place of its own, so the smallest that fits is one look-up away.
    let mut open: BTreeMap<(u32, usize), ()> = BTreeMap::new();
    for &part in parts {
        let found = open.range((part.length, 0)..).next().map(|(&key, ())| key);
        let (left, number) = match found {
            Some((left, number)) => {
                open.remove(&(left, number));
                windows[number].push(part);
                (left - part.length, number)
            }
            None => {
                windows.push(vec![part]);
                (seq_len - part.length, windows.len() - 1)
            }
        };
        if left > 0 {
            open.insert((left, number), ());
        }
    }
    for window in &mut windows[first..] {
        window.sort_by_key(|part| part.document);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn long_documents_are_cut_and_short_ones_fill_the_gaps() {
        let part = |document, begin, length| Part {
            document,
            begin,
            length,
        };
        assert_eq!(
            pack(&[10, 3, 25, 7, 5], 10),
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
            for window in pack(&lengths, seq_len) {
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
    }
}
