//! Classes of 64 bytes as words of a bit a byte: ASCII letters, digits, white space and two characters by themselves.
//!
//! On x86-64 sixteen bytes are looked at by one instruction of SSE2, which every such processor has; elsewhere eight
//! by the arithmetic of a word. Both are here, and a test holds them together.

use crate::bpe::packed::word;

/// Classes of the bytes of a block, the first byte in the lowest bit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ascii {
    pub letter: u64,
    pub number: u64,
    pub space: u64,
    pub blank: u64,
    pub quote: u64,
    /// First bytes of characters that are not ASCII
    pub lead: u64,
}

impl Ascii {
    #[inline(always)]
    pub fn of(bytes: &[u8; 64]) -> Self {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: SSE2 belongs to every x86-64 processor.
        return unsafe { by_sse2(bytes) };
        #[cfg(not(target_arch = "x86_64"))]
        return by_words(bytes);
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "sse2")]
#[inline]
fn by_sse2(bytes: &[u8; 64]) -> Ascii {
    use std::arch::x86_64::*;
    let mut found = Ascii::default();
    for (place, chunk) in bytes.chunks_exact(16).enumerate() {
        let halves = [word(&chunk[..8]), word(&chunk[8..])];
        let x = _mm_set_epi64x(halves[1] as i64, halves[0] as i64);
        let all = |byte: u8| _mm_set1_epi8(byte as i8);
        let bits = |mask| (_mm_movemask_epi8(mask) as u32 as u64) << (16 * place);
        // Less the first and then at most the width, without sign: one range of bytes.
        let between = |x, first: u8, last: u8| {
            let less = _mm_sub_epi8(x, all(first));
            _mm_cmpeq_epi8(_mm_min_epu8(less, all(last - first)), less)
        };
        let blank = _mm_cmpeq_epi8(x, all(b' '));
        found.letter |= bits(between(_mm_or_si128(x, all(0x20)), b'a', b'z'));
        found.number |= bits(between(x, b'0', b'9'));
        found.space |= bits(_mm_or_si128(blank, between(x, b'\t', b'\r')));
        found.blank |= bits(blank);
        found.quote |= bits(_mm_cmpeq_epi8(x, all(b'\'')));
        found.lead |= bits(between(x, 0xc0, 0xff));
    }
    found
}

#[cfg(any(test, not(target_arch = "x86_64")))]
fn by_words(bytes: &[u8; 64]) -> Ascii {
    const ONES: u64 = 0x0101_0101_0101_0101;
    const HIGH: u64 = 0x80 * ONES;
    // The highest bit of each byte as eight bits.
    let gather = |word: u64| (word >> 7).wrapping_mul(0x0102_0408_1020_4080) >> 56;
    let mut found = Ascii::default();
    for (place, chunk) in bytes.chunks_exact(8).enumerate() {
        let w = word(chunk);
        let (low, ascii) = (w & !HIGH, !w & HIGH);
        let between = |x: u64, first: u8, last: u8| {
            (x + (0x80 - first as u64) * ONES) & !(x + (0x7f - last as u64) * ONES) & ascii
        };
        let is = |byte: u8| !((low ^ (byte as u64 * ONES)) + 0x7f * ONES) & ascii;
        let bits = |mask: u64| gather(mask) << (8 * place);
        found.letter |= bits(between(low | (0x20 * ONES), b'a', b'z'));
        found.number |= bits(between(low, b'0', b'9'));
        found.space |= bits(is(b' ') | between(low, b'\t', b'\r'));
        found.blank |= bits(is(b' '));
        found.quote |= bits(is(b'\''));
        found.lead |= bits(w & (w << 1) & HIGH);
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_has_its_classes_in_every_place() {
        for byte in 0..=255u8 {
            for place in 0..64 {
                let mut bytes = [b'.'; 64];
                bytes[place] = byte;
                let found = Ascii::of(&bytes);
                let bit = |is: bool| u64::from(is) << place;
                let expected = Ascii {
                    letter: bit(byte.is_ascii_alphabetic()),
                    number: bit(byte.is_ascii_digit()),
                    space: bit(byte == b' ' || (b'\t'..=b'\r').contains(&byte)),
                    blank: bit(byte == b' '),
                    quote: bit(byte == b'\''),
                    lead: bit(byte >= 0xc0),
                };
                assert_eq!(found, expected, "{byte} at {place}");
                assert_eq!(by_words(&bytes), expected, "{byte} at {place}");
            }
        }
    }
}
