//! `metahook apply` and `metahook delete`: what is wrong with their files, modules and cluster is told before anything is written.

use crate::Folder;
use crate::dev::{CONTROLLER, KUBECONFIG};

const HOOKS: &str = "  hooks: {sync: {wasm: {configMap: {namespace: n, name: hook}}}}\n";

fn folder() -> Folder {
    let controller = format!("{CONTROLLER}{HOOKS}");
    Folder::new().with("c/controller.yaml", controller).with("kubeconfig", KUBECONFIG)
}

#[test]
fn what_is_wrong_with_files_is_told_with_what_to_do() {
    let folder = folder()
        .with("empty/README.md", "x")
        .with("nothing.yaml", "# nothing")
        .with("unnamed.yaml", "apiVersion: v1\nkind: ConfigMap\n")
        .with("twice.yaml", CONTROLLER.repeat(2).replace("\napi", "\n---\napi"));
    for command in ["apply", "delete"] {
        let told = |file: &str, code, says: &str| {
            folder.metahook(&[command, "-f", file, "--kubeconfig=kubeconfig"]).is(code, says);
        };
        told("none", 2, "-f: none cannot be read");
        told("empty", 2, "-f: empty: it has no files that end in .yaml, .yml or .json");
        told("nothing.yaml", 2, "-f: the files hold no objects");
        told("unnamed.yaml", 2, "it has no metadata.name: each object needs");
        told("twice.yaml", 2, "the same CompositeController c comes twice");
        told("c", 1, "no cluster: the API server does not answer");
        folder
            .metahook(&[command, "-f", "c", "--kubeconfig=none"])
            .is(1, "no cluster: the kubeconfig cannot");
        folder.metahook(&[command, "-f", "c", "--timeout=soon"]).is(2, "write a duration like 30s");
        folder.metahook(&[command]).is(2, "--file");
    }
}

#[test]
fn a_module_that_no_controller_names_is_refused() {
    let folder = folder();
    let apply = |flag: &str, says: &str| {
        folder.metahook(&["apply", "-f", "c", "--kubeconfig=kubeconfig", "--module", flag]).is(2, says);
    };
    apply("other=x.wasm", "no controller of the files names a ConfigMap other");
    apply("hook=", "write NAME=PATH");
}
