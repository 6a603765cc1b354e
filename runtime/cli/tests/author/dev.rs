//! `metahook dev`: what is wrong with its files and its cluster is told before anything is written.

use crate::Folder;

pub(super) const CONTROLLER: &str = "
apiVersion: metacontroller.k8s.io/v1alpha1
kind: CompositeController
metadata: {name: c}
spec:
  parentResource: {apiVersion: example.com/v1, resource: things}
";

/// Nothing listens there.
pub(super) const KUBECONFIG: &str = "
apiVersion: v1
kind: Config
current-context: c
contexts: [{name: c, context: {cluster: c, user: u}}]
clusters: [{name: c, cluster: {server: 'http://127.0.0.1:1'}}]
users: [{name: u, user: {}}]
";

fn folder() -> Folder {
    Folder::new()
        .with("controller.yaml", CONTROLLER)
        .with("kubeconfig", KUBECONFIG)
        .answers("hook.wasm", "{}")
}

#[test]
fn what_is_wrong_with_files_is_told_with_what_to_do() {
    let folder = folder().with("other.yaml", "kind: ConfigMap").with("text.wasm", "text");
    let dev = |file: &str, module: &str, code, says: &str| {
        let flags = ["dev", "-f", file, "--module", module, "--kubeconfig=kubeconfig"];
        folder.metahook(&flags).is(code, says);
    };
    dev("none.yaml", "hook.wasm", 2, "-f: none.yaml cannot be read");
    dev(
        "other.yaml",
        "hook.wasm",
        2,
        "-f other.yaml: it holds no CompositeController and no DecoratorController",
    );
    dev(
        "controller.yaml",
        "none.wasm",
        2,
        "--module: none.wasm: build it first, for example with `cargo build",
    );
    dev("controller.yaml", "text.wasm", 2, "--module: text.wasm: this is not a WebAssembly module");
    folder
        .metahook(&["dev", "-f", "controller.yaml", "--module=hook.wasm", "--name=a b"])
        .is(2, "write the value of a label");
    folder
        .metahook(&["dev", "-f", "controller.yaml", "--module=hook.wasm", "--", "--leader-election"])
        .is(2, "--leader-election has no meaning for a session");
}

#[test]
fn what_is_wrong_with_the_cluster_is_told_with_what_to_do() {
    let folder = folder();
    let dev = |flags: &[&str], says: &str| {
        let all = ["dev", "-f", "controller.yaml", "--module=hook.wasm"].iter().chain(flags);
        let ended = folder.metahook(&all.copied().collect::<Vec<_>>());
        ended.is(1, says);
    };
    dev(&["--kubeconfig=none"], "no cluster: the kubeconfig cannot be used");
    dev(&["--kubeconfig=controller.yaml"], "no cluster: the kubeconfig cannot be used");
    dev(&["--kubeconfig=kubeconfig", "--context=other"], "no cluster: the kubeconfig cannot be used");
    dev(&["--kubeconfig=kubeconfig"], "no cluster: the API server does not answer");
}
