//! Field cases: what users of controllers like these have reported, each with its right behaviour. `C04` in a name is the
//! case's number in the table of tests/README.md.

pub(crate) mod cases_answers;
pub(crate) mod cases_children;
pub(crate) mod cases_decorators;
pub(crate) mod cases_hooks;
pub(crate) mod cases_languages;
pub(crate) mod cases_lifecycle;
pub(crate) mod cases_merging;
pub(crate) mod cases_unsettled;
pub(crate) mod cases_upgrades;
pub(crate) mod cases_values;
mod kit;
