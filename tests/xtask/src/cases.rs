//! `cargo xtask cases`: runs the acceptance tests of the field cases.

use clap::Args;

use crate::test;

#[derive(Args)]
pub(crate) struct Options {
    /// Runs the tests so many times
    #[arg(long, value_name = "N", default_value_t = 1)]
    repeat: u32,
    /// Only cases with this in their name, such as `c04_`
    #[arg(default_value = "cases_")]
    filter: String,
}

/// Whether all is well.
pub(crate) fn run(options: &Options) -> bool {
    test::run(&test::Options::acceptance(&options.filter, options.repeat, false))
}
