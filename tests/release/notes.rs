//! What is new in a version: its section of the changelog.

use anyhow::{Context, Result};

/// The section `## [V]` or `## V`, whatever follows the version; before its release, `## Unreleased`.
pub(crate) fn of(changelog: &str, version: &str) -> Result<String> {
    section(changelog, version)
        .or_else(|| section(changelog, "Unreleased"))
        .map(|text| format!("# metahook {version}\n\n{text}\n"))
        .with_context(|| format!("runtime/CHANGELOG.md has a section for neither {version} nor Unreleased"))
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
        assert_eq!(of(CHANGELOG, "0.2.0").unwrap(), "# metahook 0.2.0\n\n### Added\n\n- two\n");
        assert_eq!(of(CHANGELOG, "0.1.0").unwrap(), "# metahook 0.1.0\n\n- one\n");
        assert_eq!(of(CHANGELOG, "0.3.0").unwrap(), "# metahook 0.3.0\n\n- later\n");
        assert!(of("# Changelog\n", "0.3.0").is_err());
    }
}
