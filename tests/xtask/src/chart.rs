//! `cargo xtask chart`: builds Helm, then runs the acceptance tests of the chart.

use anyhow::Result;
use clap::Args;

use crate::test;

#[derive(Args)]
pub(crate) struct Options {
    /// Runs the tests so many times
    #[arg(long, value_name = "N", default_value_t = 1)]
    repeat: u32,
    /// Installs Debian packages that a node needs and that are missing (done without asking where CI=true)
    #[arg(long)]
    install: bool,
    /// Only tests with this in their name
    #[arg(default_value = "chart_")]
    filter: String,
}

/// Runs the tests of the chart, and returns whether all passed. Without Helm the tests would be skipped: here that is
/// an error.
pub(crate) fn run(options: &Options) -> Result<bool> {
    println!("{}", binaries::helm::find_or_build()?.display());
    Ok(test::run(&test::Options::acceptance(vec![options.filter.clone()], options.repeat, options.install)))
}
