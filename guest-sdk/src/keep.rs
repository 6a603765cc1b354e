//! Values that are not freed: a request lives as long as its process, and code that frees it would only make modules larger.

use std::mem::{ManuallyDrop, replace};

/// Like an assignment, which frees what was there.
pub(crate) fn put<T>(place: &mut T, given: T) {
    let _kept = ManuallyDrop::new(replace(place, given));
}
