//! SHA-1 (FIPS 180-4): names of revisions are made with it. Nothing rests on its strength.

const START: [u32; 5] = [0x6745_2301, 0xefcd_ab89, 0x98ba_dcfe, 0x1032_5476, 0xc3d2_e1f0];

/// The digest in lower case hexadecimal.
pub(super) fn hex(message: &[u8]) -> String {
    let mut padded = message.to_vec();
    padded.push(0x80);
    // Whole blocks of 64 bytes, the last 8 of which are the length in bits.
    padded.resize((padded.len() + 8).next_multiple_of(64) - 8, 0);
    padded.extend((message.len() as u64 * 8).to_be_bytes());
    let (blocks, _none) = padded.as_chunks::<64>();
    blocks.iter().fold(START, next).map(|word| format!("{word:08x}")).concat()
}

fn next(state: [u32; 5], block: &[u8; 64]) -> [u32; 5] {
    let (words, _none) = block.as_chunks::<4>();
    // Sixteen words at a time of a schedule of eighty.
    let mut window = [0; 16];
    for (word, bytes) in window.iter_mut().zip(words) {
        *word = u32::from_be_bytes(*bytes);
    }
    let mut sums = state;
    for round in 0..80 {
        let [first, x, y, z, last] = sums;
        let (mixed, constant) = match round {
            0..20 => ((x & y) | (!x & z), 0x5a82_7999),
            20..40 => (x ^ y ^ z, 0x6ed9_eba1),
            40..60 => ((x & y) | (x & z) | (y & z), 0x8f1b_bcdc),
            _ => (x ^ y ^ z, 0xca62_c1d6_u32),
        };
        let parts = [mixed, last, constant, window[0]];
        let sum = parts.into_iter().fold(first.rotate_left(5), u32::wrapping_add);
        sums = [sum, first, x.rotate_left(30), y, z];
        let later = (window[13] ^ window[8] ^ window[2] ^ window[0]).rotate_left(1);
        window.rotate_left(1);
        window[15] = later;
    }
    for (sum, before) in sums.iter_mut().zip(state) {
        *sum = sum.wrapping_add(before);
    }
    sums
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_published_digests_come_out() {
        for (message, digest) in [
            (String::new(), "da39a3ee5e6b4b0d3255bfef95601890afd80709"),
            ("abc".to_owned(), "a9993e364706816aba3e25717850c26c9cd0d89d"),
            (
                "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq".to_owned(),
                "84983e441c3bd26ebaae4aa1f95129e5e54670f1",
            ),
            ("a".repeat(1_000_000), "34aa973cd4c4daa4f61eeb2bdbad27316534016f"),
        ] {
            assert_eq!(hex(message.as_bytes()), digest);
        }
    }

    #[test]
    fn a_length_that_does_not_fit_into_the_last_block_takes_another() {
        for (length, digest) in [
            (55, "cef734ba81a024479e09eb5a75b6ddae62e6abf1"),
            (56, "901305367c259952f4e7af8323f480d59f81335b"),
            (63, "0ddc4e0cccd9a12850deb5abb0853a4425559fec"),
            (64, "bb2fa3ee7afb9f54c6dfb5d021f14b1ffe40c163"),
        ] {
            assert_eq!(hex(&vec![b'x'; length]), digest);
        }
    }
}
