//! Figures of a hook's versions, out of the controller's status.

use std::collections::BTreeMap;

use metahook_core::api::hook::HookName;
use metahook_core::api::status::ControllerStatus;

use crate::controllers::plain;

/// Figures of a version, as the controller's status has them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct VersionFigures {
    /// Parents that fail, or failed when another version took its place.
    pub parents_failing: Option<i64>,
    /// The median of the instructions of a call.
    pub instructions: Option<i64>,
}

/// The figures of the versions that the status names, by digest. Of hooks with one module the first that knows them counts.
pub(crate) fn figures(status: &ControllerStatus, hooks: &[HookName]) -> BTreeMap<String, VersionFigures> {
    let mut all = BTreeMap::<String, VersionFigures>::new();
    let mut add = |digest: &str, parents_failing: Option<i64>, instructions: Option<i64>| {
        let known = all.entry(plain(digest)).or_default();
        known.parents_failing = known.parents_failing.or(parents_failing);
        known.instructions = known.instructions.or(instructions);
    };
    for hook in hooks.iter().filter_map(|hook| status.hooks.get(hook.as_str())) {
        if let Some(digest) = &hook.digest {
            add(digest, status.failing, hook.instructions_p50);
        }
        for version in &hook.earlier {
            add(&version.digest, version.parents_failing, version.instructions_p50);
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_figures_of_versions_are_those_of_the_status() {
        let status = serde_json::json!({ "failing": 2, "hooks": {
            "sync": { "digest": "sha256:cc1", "earlier": [
                { "digest": "sha256:bb1", "parentsFailing": 3, "instructionsP50": 500 }, { "digest": "sha256:aa1" },
            ] },
            "finalize": { "digest": "sha256:cc1", "instructionsP50": 70, "earlier": [
                { "digest": "sha256:bb1", "parentsFailing": 4, "instructionsP50": 60 },
            ] },
        } });
        let status: ControllerStatus = serde_json::from_value(status).unwrap();
        let all = figures(&status, &[HookName::Sync, HookName::Finalize]);
        let of = |digest: &str| (all[digest].parents_failing, all[digest].instructions);
        assert_eq!(of("cc1"), (Some(2), Some(70)));
        assert_eq!(of("bb1"), (Some(3), Some(500)));
        assert_eq!(of("aa1"), (None, None));
        assert!(figures(&status, &[HookName::Customize]).is_empty());
    }
}
