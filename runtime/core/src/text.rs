//! Texts of any origin, cut to a length that people read.

/// At most `max` bytes, cut between characters and marked where it was cut.
pub fn shorten(text: &str, max: usize) -> String {
    const MARK: &str = "…";
    if text.len() <= max {
        return text.to_owned();
    }
    let room = max.saturating_sub(MARK.len());
    let end = (0..=room).rev().find(|i| text.is_char_boundary(*i)).unwrap_or_default();
    format!("{}{MARK}", text.get(..end).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_text_is_cut_between_characters() {
        let text = shorten(&"ü".repeat(2000), 1024);
        assert!(text.len() <= 1024 && text.len() > 1018 && text.ends_with('…'));
        assert_eq!(shorten("short", 5), "short");
        assert_eq!(shorten("longer", 5), "lo…");
    }
}
