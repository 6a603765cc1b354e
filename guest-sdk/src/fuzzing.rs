//! Entry for the fuzz target of the SDK's JSON in `tests/fuzz`.

use serde::Deserialize;

/// The value in `text`, or one line that says what is wrong, and where.
///
/// # Errors
/// The text is no JSON of this type.
pub fn decode<'a, T: Deserialize<'a>>(text: &'a [u8]) -> Result<T, String> {
    crate::decode::decode("value", text)
}
