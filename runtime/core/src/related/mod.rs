//! Related objects: those that a customize hook asks to see besides the parent's children. In the order of the data:
//!
//! - [`customize_cache`]: what the hook asked for, without asking it again
//! - [`rule`]: what one of its rules means
//! - [`selection`]: the objects that rules find
//! - [`related_index`]: the parents that a change of an object concerns
//! - [`deletion`]: which of the objects a hook may have deleted
//! - [`scopes`]: where they are looked for, and how long
//!
//! Rules are kept from both sides: by parent, so that a customize hook is asked again only when its request differs, and by name,
//! namespace and selector, so that an event finds its parents without asking each (a law compares the two). A reconcile
//! registers its rules before it looks at a cache: what changes after that wakes it. The fingerprint contains the objects and not
//! the rules, as rules have no other effect.

pub mod customize_cache;
pub mod deletion;
pub mod related_index;
pub mod rule;
pub mod scopes;
pub mod selection;
