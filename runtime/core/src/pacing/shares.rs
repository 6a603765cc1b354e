//! Shares of the bytes that modules may take together while they are unpacked and loaded.

/// Bytes that all of them take together. The largest module of default flags takes all, and so goes alone.
const WHOLE: u64 = 64 << 20;

/// Bytes that are counted as one.
const UNIT: u64 = 1 << 10;

/// The units that there are.
#[expect(clippy::cast_possible_truncation, reason = "64 Ki fit")]
pub const ALL_SHARES: u32 = (WHOLE / UNIT) as u32;

/// The units of so many bytes: one at least; all for those that take more, which go alone.
pub fn shares_of(bytes: u64) -> u32 {
    u32::try_from(bytes.div_ceil(UNIT)).unwrap_or(ALL_SHARES).clamp(1, ALL_SHARES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_larger_than_the_whole_takes_all_of_it() {
        for (bytes, shares) in [
            (0, 1),
            (1, 1),
            (1 << 10, 1),
            ((1 << 10) + 1, 2),
            (WHOLE - UNIT, ALL_SHARES - 1),
            (WHOLE, ALL_SHARES),
            (WHOLE + 1, ALL_SHARES),
            (u64::MAX, ALL_SHARES),
        ] {
            assert_eq!(shares_of(bytes), shares, "{bytes}");
        }
    }
}
