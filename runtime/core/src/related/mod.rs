//! Related objects, those that a customize hook asks to see besides the parent's children, in the order of the data:
//!
//! - [`remembered`]: what the hook asked for, without asking it again
//! - [`rule`]: what one of its rules means, of whichever kind
//! - [`selection`]: the objects that rules find
//! - [`interests`]: which parents a change of an object concerns
//! - [`deletion`]: which of them a hook may have deleted
//! - [`places`]: where they are looked for, and how long

pub mod customize_cache;
pub mod deletion;
pub mod related_index;
pub mod rule;
pub mod scopes;
pub mod selection;
