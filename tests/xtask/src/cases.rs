//! `cargo xtask cases`: runs the tests of the field cases, which are those of the table in tests/README.md.

use clap::Args;

use crate::test;

#[derive(Args)]
pub(crate) struct Options {
    /// Runs the tests so many times
    #[arg(long, value_name = "N", default_value_t = 1)]
    repeat: u32,
    /// Only cases with this in their name, such as `c04_`; when absent all of the table
    filter: Option<String>,
}

const README: &str = include_str!("../../README.md");

/// Runs the tests of the cases, and returns whether all passed.
pub(crate) fn run(options: &Options) -> bool {
    let filters = match &options.filter {
        Some(filter) => vec![filter.clone()],
        None => table().into_iter().flat_map(|(_, tests)| tests).map(str::to_owned).collect(),
    };
    test::run(&test::Options::acceptance(filters, options.repeat, false))
}

/// Each case of the table, with the names of its tests.
fn table() -> Vec<(&'static str, Vec<&'static str>)> {
    let row = |line: &'static str| {
        let cells: Vec<_> = line.strip_prefix("| C")?.split(" | ").collect();
        let [number, _, tests, ..] = cells.as_slice() else { return None };
        let is_number = number.len() == 2 && number.bytes().all(|digit| digit.is_ascii_digit());
        is_number.then(|| (*number, tests.split('`').skip(1).step_by(2).collect()))
    };
    README.lines().filter_map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::table;

    #[test]
    fn each_of_45_cases_has_acceptance_tests() {
        // The lists of tests.
        let suite = concat!(
            include_str!("../../suite/lists/mod.rs"),
            include_str!("../../suite/lists/authors.rs"),
            include_str!("../../suite/lists/controllers.rs"),
            include_str!("../../suite/lists/hooks.rs"),
            include_str!("../../suite/accounts/mod.rs"),
            include_str!("../../suite/cases/mod.rs"),
            include_str!("../../suite/compat/mod.rs"),
        );
        let table = table();
        let numbers: Vec<_> = table.iter().map(|(number, _)| (*number).to_owned()).collect();
        assert_eq!(numbers, (1..=45).map(|number| format!("{number:02}")).collect::<Vec<_>>());
        for (number, tests) in table {
            assert!(!tests.is_empty(), "C{number} has no test");
            for test in tests {
                assert!(suite.contains(&format!(" {test},\n")), "C{number}: the suite has no {test}");
            }
        }
    }
}
