//! What is new in a version: its section of the changelog.

use anyhow::{Context, Result};

/// The section `## [V]` or `## V`, whatever follows the version. Before its release, which `is_released` is not, it may be
/// `## Unreleased`.
pub(super) fn of(changelog: &str, version: &str, is_released: bool) -> Result<String> {
    let unreleased = || section(changelog, "Unreleased").filter(|_| !is_released);
    let text = section(changelog, version).or_else(unreleased).with_context(|| {
        if is_released {
            format!(
                "runtime/CHANGELOG.md has no section for {version}: rename `## Unreleased` to `## {version}`, and commit it"
            )
        } else {
            format!("runtime/CHANGELOG.md has a section for neither {version} nor Unreleased")
        }
    })?;
    Ok(format!("# metahook {version}\n\n{text}\n"))
}

fn section<'a>(changelog: &'a str, title: &str) -> Option<&'a str> {
    let mut sections = changelog.split("\n## ").skip(1);
    sections.find_map(|section| {
        let (heading, text) = section.split_once('\n')?;
        let name = heading.split_whitespace().next()?.trim_matches(['[', ']']);
        (name == title).then(|| text.trim())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHANGELOG: &str = "# Changelog\n\n## Unreleased\n\n- later\n\n## [0.2.0] - 2026-12-01\n\n### Added\n\n- two\n\n## 0.1.0\n\n- one\n";

    #[test]
    fn a_version_has_its_section_alone() {
        for is_released in [false, true] {
            let notes = |version| of(CHANGELOG, version, is_released).unwrap();
            assert_eq!(notes("0.2.0"), "# metahook 0.2.0\n\n### Added\n\n- two\n");
            assert_eq!(notes("0.1.0"), "# metahook 0.1.0\n\n- one\n");
        }
    }

    #[test]
    fn what_is_not_released_has_its_section_until_it_is() {
        assert_eq!(of(CHANGELOG, "0.3.0", false).unwrap(), "# metahook 0.3.0\n\n- later\n");
        assert!(of("# Changelog\n", "0.3.0", false).is_err());
        let error = of(CHANGELOG, "0.3.0", true).unwrap_err();
        assert!(error.to_string().contains("rename `## Unreleased` to `## 0.3.0`"), "{error}");
    }
}
