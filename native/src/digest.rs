//! Digests of what is served: XXH3-128 a row, BLAKE3 a step. They prove against accident, not against forgery.
//!
//! twox-hash chooses AVX2 when it runs, which takes half the time that the code for every x86-64 takes.

use twox_hash::XxHash3_128;

/// What a row's digest covers.
pub struct Row<'a> {
    /// Token ids as served, little-endian.
    pub ids: &'a [u8],
    /// Offsets at which another document begins.
    pub edges: &'a [u32],
    pub domain: &'a str,
    pub loss_weight: f32,
    /// Masked offsets as pairs [begin, end); those ids are served as padding.
    pub masks: &'a [u32],
}

/// Ends the encoding of a row with masks. As a loss weight it would be no number, so no other row ends with it.
const MASKED: u32 = u32::MAX;

/// XXH3-128, big-endian, over: the id bytes, the edges (u32 LE), the number of edges (u32 LE), the domain name, its
/// length (u32 LE), the loss weight (f32 LE). Each part of changing length is followed by its length, and the length
/// of the ids is fixed by the step, so that no two rows share an encoding. A row with masks goes on with them (u32 LE),
/// their number (u32 LE) and a word that ends no other row.
pub fn row_digest(row: &Row<'_>) -> [u8; 16] {
    let mut hasher = XxHash3_128::new();
    hasher.write(row.ids);
    row.edges
        .iter()
        .for_each(|edge| hasher.write(&edge.to_le_bytes()));
    hasher.write(&(row.edges.len() as u32).to_le_bytes());
    hasher.write(row.domain.as_bytes());
    hasher.write(&(row.domain.len() as u32).to_le_bytes());
    hasher.write(&row.loss_weight.to_le_bytes());
    if !row.masks.is_empty() {
        row.masks
            .iter()
            .chain([&(row.masks.len() as u32), &MASKED])
            .for_each(|word| hasher.write(&word.to_le_bytes()));
    }
    hasher.finish_128().to_be_bytes()
}

/// BLAKE3 over the row digests of a step in slot order: it does not depend on ranks.
pub fn step_digest(row_digests: &[u8]) -> [u8; 32] {
    *blake3::hash(row_digests).as_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn digest(ids: &[u8], edges: &[u32], domain: &str, loss_weight: f32) -> [u8; 16] {
        row_digest(&Row {
            ids,
            edges,
            domain,
            loss_weight,
            masks: &[],
        })
    }

    #[test]
    fn every_part_counts() {
        let base = digest(&[1, 0, 2, 0], &[1], "a", 1.0);
        assert_eq!(base, digest(&[1, 0, 2, 0], &[1], "a", 1.0));
        for other in [
            digest(&[1, 0, 3, 0], &[1], "a", 1.0),
            digest(&[1, 0, 2, 0], &[2], "a", 1.0),
            digest(&[1, 0, 2, 0], &[], "a", 1.0),
            digest(&[1, 0, 2, 0], &[1], "b", 1.0),
            digest(&[1, 0, 2, 0], &[1], "a", 0.5),
        ] {
            assert_ne!(base, other);
        }
    }

    #[test]
    fn masks_count() {
        let masked = |masks: &[u32]| {
            row_digest(&Row {
                ids: &[1, 0, 2, 0],
                edges: &[1],
                domain: "a",
                loss_weight: 1.0,
                masks,
            })
        };
        assert_eq!(masked(&[]), digest(&[1, 0, 2, 0], &[1], "a", 1.0));
        assert_ne!(masked(&[0, 1]), masked(&[]));
        assert_ne!(masked(&[0, 1]), masked(&[0, 2]));
    }
}
