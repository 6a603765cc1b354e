//! The program as a plugin of kubectl.

use std::ffi::OsStr;
use std::path::Path;

/// kubectl runs `kubectl-metahook` as `kubectl metahook`.
pub(super) fn is_plugin(program: &OsStr) -> bool {
    Path::new(program).file_stem().is_some_and(|name| name == "kubectl-metahook")
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use metahook_author::documents;

    #[test]
    fn only_the_name_for_kubectl_is_that_of_a_plugin() {
        let is = |name: &str| is_plugin(OsStr::new(name));
        assert!(is("kubectl-metahook") && is("/usr/bin/kubectl-metahook"));
        assert!(!is("metahook") && !is("kubectl") && !is(""));
    }

    #[test]
    fn the_manifest_is_one_of_krew() {
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../manifests/krew/metahook.yaml");
        let documents = documents::of_text("krew", &std::fs::read_to_string(file).unwrap()).unwrap();
        let manifest = &documents[0].value;
        assert_eq!(
            (&manifest["kind"], &manifest["metadata"]["name"]),
            (&json!("Plugin"), &json!("metahook"))
        );
        let platforms = manifest["spec"]["platforms"].as_array().unwrap();
        let arch = |one: &Value| one["selector"]["matchLabels"]["arch"].as_str().unwrap().to_owned();
        assert_eq!(platforms.iter().map(arch).collect::<Vec<_>>(), ["amd64", "arm64"]);
        for platform in platforms {
            assert_eq!(platform["sha256"].as_str().unwrap().len(), 64);
            let archive = format!("linux-{}.tar.gz", arch(platform));
            assert!(platform["uri"].as_str().unwrap().ends_with(&archive) && platform["bin"] == "metahook");
        }
    }
}
