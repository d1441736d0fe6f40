//! Digests of what is served: XXH3-128 a row, BLAKE3 a step. They prove against accident, not against forgery.

use xxhash_rust::xxh3::Xxh3;

/// What a row's digest covers.
pub struct Row<'a> {
    /// Token ids as served, little-endian.
    pub ids: &'a [u8],
    /// Offsets at which another document begins.
    pub edges: &'a [u32],
    pub domain: &'a str,
    pub loss_weight: f32,
}

/// XXH3-128, big-endian, over: the id bytes, the edges (u32 LE), the number of edges (u32 LE), the domain name, its
/// length (u32 LE), the loss weight (f32 LE). Each part of changing length is followed by its length, and the length
/// of the ids is fixed by the step, so that no two rows share an encoding.
pub fn row_digest(row: &Row<'_>) -> [u8; 16] {
    let mut hasher = Xxh3::new();
    hasher.update(row.ids);
    row.edges
        .iter()
        .for_each(|edge| hasher.update(&edge.to_le_bytes()));
    hasher.update(&(row.edges.len() as u32).to_le_bytes());
    hasher.update(row.domain.as_bytes());
    hasher.update(&(row.domain.len() as u32).to_le_bytes());
    hasher.update(&row.loss_weight.to_le_bytes());
    hasher.digest128().to_be_bytes()
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
}
