//! The 256 byte characters of GPT-2, of which byte-level merge files are made, and their order.
//!
//! Printable Latin-1 bytes stand for themselves, the others for U+0100 onwards. Ties between pairs are decided by
//! these characters' code points, so the order is kept here as a rank of each byte.

/// Whether GPT-2 writes this byte as itself.
const fn is_printable(byte: u8) -> bool {
    matches!(byte, 33..=126 | 161..=172 | 174..=255)
}

/// The code point that stands for each byte.
pub const CHARS: [u16; 256] = {
    let mut chars = [0u16; 256];
    let (mut byte, mut next) = (0usize, 256u16);
    while byte < 256 {
        if is_printable(byte as u8) {
            chars[byte] = byte as u16;
        } else {
            chars[byte] = next;
            next += 1;
        }
        byte += 1;
    }
    chars
};

/// The position of each byte's character among all 256, in code point order.
pub const RANKS: [u8; 256] = {
    let mut ranks = [0u8; 256];
    let mut byte = 0usize;
    while byte < 256 {
        let (mut other, mut below) = (0usize, 0u16);
        while other < 256 {
            if CHARS[other] < CHARS[byte] {
                below += 1;
            }
            other += 1;
        }
        ranks[byte] = below as u8;
        byte += 1;
    }
    ranks
};

/// The byte of each rank.
pub const BYTES: [u8; 256] = {
    let mut bytes = [0u8; 256];
    let mut byte = 0usize;
    while byte < 256 {
        bytes[RANKS[byte] as usize] = byte as u8;
        byte += 1;
    }
    bytes
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn characters_are_distinct_and_ranked() {
        let mut order: Vec<usize> = (0..256).collect();
        order.sort_by_key(|&byte| RANKS[byte]);
        assert!(order.windows(2).all(|w| CHARS[w[0]] < CHARS[w[1]]));
        assert_eq!(
            (CHARS[b' ' as usize], CHARS[b'\n' as usize], CHARS[0]),
            (0x120, 0x10a, 0x100)
        );
    }
}
