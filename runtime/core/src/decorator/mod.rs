//! Objects that DecoratorControllers change: what is written to one, and conflicts between decorators.

pub mod conflicts;
pub mod object;
