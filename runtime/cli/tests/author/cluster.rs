//! `metahook check` and `render` with a cluster that cannot be asked. An acceptance test asks one.

use crate::Folder;
use crate::dev::KUBECONFIG;
use crate::render::{CRD, PARENT, composite, module};

#[test]
fn a_cluster_that_cannot_be_asked_is_told_with_what_to_do() {
    let folder = Folder::new()
        .with("all.yaml", format!("{}\n---\n{CRD}\n---\n{PARENT}", composite(&module(), "InPlace")))
        .with("kubeconfig", KUBECONFIG)
        .answers("hook.wasm", r#"{"children": []}"#);
    let commands = [
        ["render", "-f", "all.yaml", "--module=hook.wasm"].as_slice(),
        &["check", "hook.wasm", "-f", "all.yaml"],
    ];
    for command in commands {
        let asks = |flags: &[&str], says: &str| folder.metahook(&[command, flags].concat()).is(1, says);
        asks(&["--kubeconfig=none"], "no cluster: the kubeconfig cannot be used");
        asks(&["--kubeconfig=kubeconfig", "--context=other"], "no cluster: the kubeconfig cannot be used");
        asks(&["--kubeconfig=kubeconfig"], "the API server does not answer");
    }
    // There is nothing to ask it about.
    folder.metahook(&["check", "hook.wasm", "--context=c"]).is(2, "--file <FILE>");
}
