//! Randomness as a pure function: a key says what for, a counter says which one.
//!
//! Threefry-2x64-20 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011) keyed by BLAKE3 over an
//! unambiguous encoding of (seed, purpose, number, name). Domains are keyed by name, so that adding or reordering one
//! never reseeds another. No state, no platform or library version in it.

/// A key of the generator.
pub type Key = [u64; 2];

const ROTATIONS: [u32; 8] = [16, 42, 12, 31, 16, 32, 24, 21];
const PARITY: u64 = 0x1BD1_1BDA_A9FC_1A22;
const ROUNDS: u64 = 20;
const CONTEXT: &str = "headrace 2026 plan key v1";

/// The key for one use. Fields are length-prefixed, so that no two different uses share an encoding.
pub fn key(seed: u64, purpose: &str, number: u64, name: &str) -> Key {
    let mut hasher = blake3::Hasher::new_derive_key(CONTEXT);
    hasher.update(&seed.to_le_bytes());
    hasher.update(&(purpose.len() as u64).to_le_bytes());
    hasher.update(purpose.as_bytes());
    hasher.update(&number.to_le_bytes());
    hasher.update(&(name.len() as u64).to_le_bytes());
    hasher.update(name.as_bytes());
    let digest = hasher.finalize();
    let bytes = digest.as_bytes();
    [word(&bytes[..8]), word(&bytes[8..16])]
}

fn word(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .rev()
        .fold(0, |sum, &byte| sum << 8 | u64::from(byte))
}

/// Threefry-2x64 with 20 rounds.
pub fn threefry(key: Key, counter: [u64; 2]) -> [u64; 2] {
    let schedule = [key[0], key[1], PARITY ^ key[0] ^ key[1]];
    let mut x = [
        counter[0].wrapping_add(schedule[0]),
        counter[1].wrapping_add(schedule[1]),
    ];
    for round in 0..ROUNDS {
        x[0] = x[0].wrapping_add(x[1]);
        x[1] = x[1].rotate_left(ROTATIONS[(round % 8) as usize]) ^ x[0];
        if round % 4 == 3 {
            let turn = round / 4 + 1;
            x[0] = x[0].wrapping_add(schedule[(turn % 3) as usize]);
            x[1] = x[1]
                .wrapping_add(schedule[((turn + 1) % 3) as usize])
                .wrapping_add(turn);
        }
    }
    x
}

/// The `counter`-th 64 random bits of `key`.
pub fn random_u64(key: Key, counter: u64) -> u64 {
    threefry(key, [counter, 0])[0]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threefry_gives_the_published_vectors() {
        assert_eq!(
            threefry([0, 0], [0, 0]),
            [0xc2b6_e3a8_c2c6_9865, 0x6f81_ed42_f350_084d]
        );
        assert_eq!(
            threefry([u64::MAX; 2], [u64::MAX; 2]),
            [0xe02c_b7c4_d95d_277a, 0xd066_33d0_893b_8b68]
        );
        assert_eq!(
            threefry(
                [0xa409_3822_299f_31d0, 0x082e_fa98_ec4e_6c89],
                [0x243f_6a88_85a3_08d3, 0x1319_8a2e_0370_7344]
            ),
            [0x263c_7d30_bb0f_0af1, 0x56be_8361_d331_1526]
        );
    }

    #[test]
    fn keys_differ_in_every_field() {
        let base = key(1, "pass", 0, "ab");
        for other in [
            key(2, "pass", 0, "ab"),
            key(1, "pas", 0, "sab"),
            key(1, "pass", 1, "ab"),
            key(1, "pass", 0, "b"),
        ] {
            assert_ne!(base, other);
        }
    }
}
