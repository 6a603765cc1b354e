//! Ctrl-C: each command ends at once, whatever it waits for.

use std::fs::OpenOptions;
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};

use crate::Folder;
use crate::dev::{CONTROLLER, KUBECONFIG};
use crate::render::{CRD, PARENT, composite, module};

fn start(folder: &Folder, arguments: &[&str]) -> Child {
    Command::new(env!("CARGO_BIN_EXE_metahook"))
        .args(arguments)
        .current_dir(folder.path("."))
        .env_clear()
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Ends by Ctrl-C, and by that alone.
#[track_caller]
fn ends(mut child: Child, arguments: &[&str]) {
    assert!(child.try_wait().unwrap().is_none(), "{arguments:?} ended by itself");
    let sent = Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(sent.success());
    let ended = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&ended.stderr);
    // What it waited for is no reason any more.
    assert!(!ended.status.success() && !said.contains("answer"), "{arguments:?}: {}: {said}", ended.status);
}

#[test]
fn a_command_that_waits_for_a_file_ends() {
    let folder = Folder::new()
        .answers("hook.wasm", r#"{"children": []}"#)
        .with("tests/one/parent.yaml", PARENT)
        .with("tests/one/response.yaml", "children: []");
    let pipe = folder.path("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    for arguments in [
        &["run", "hook.wasm", "--request=pipe"][..],
        &["render", "-f=pipe"],
        &["check", "hook.wasm", "-f=pipe"],
        &["schema", "parent", "-f=pipe"],
        &["test", "-f=pipe"],
        &["apply", "-f=pipe"],
        &["rbac", "pipe"],
        &["pack", "pipe", "hook", "-n=n"],
    ] {
        let child = start(&folder, arguments);
        // Opens when the command does.
        let held = OpenOptions::new().write(true).open(&pipe).unwrap();
        ends(child, arguments);
        drop(held);
    }
}

#[test]
fn a_command_that_waits_for_a_cluster_ends() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let hooks = "  hooks: {sync: {wasm: {configMap: {namespace: hooks, name: hook}}}}\n";
    let folder = Folder::new()
        .with("controller.yaml", format!("{CONTROLLER}{hooks}"))
        .with("kubeconfig", KUBECONFIG.replace("127.0.0.1:1", &format!("127.0.0.1:{port}")))
        .answers("hook.wasm", r#"{"children": []}"#);
    for arguments in [
        &["dev", "-f", "controller.yaml", "--module=hook.wasm"][..],
        &["apply", "-f", "controller.yaml"],
        &["delete", "-f", "controller.yaml"],
        &["render", "-f", "controller.yaml"],
        &["check", "hook.wasm", "-f", "controller.yaml"],
        &["crds", "--apply"],
        &["pack", "hook.wasm", "hook", "-n=n", "--apply"],
    ] {
        let child = start(&folder, &[arguments, &["--kubeconfig=kubeconfig"]].concat());
        // It asks, and nobody answers.
        let (held, _) = listener.accept().unwrap();
        ends(child, arguments);
        drop(held);
    }
}

#[test]
fn a_command_that_watches_files_ends() {
    let folder = Folder::new()
        .answers("hook.wasm", r#"{"children": []}"#)
        .with("controller.yaml", composite(&module(), "InPlace"))
        .with("crd.yaml", CRD)
        .with("tests/one/parent.yaml", PARENT)
        .with("tests/one/response.yaml", "children: []");
    let out = OpenOptions::new().write(true).create(true).truncate(true).open(folder.path("out")).unwrap();
    let arguments = ["test", "--module=hook.wasm", "-f=controller.yaml", "-f=crd.yaml", "--watch"];
    let child = Command::new(env!("CARGO_BIN_EXE_metahook"))
        .args(arguments)
        .current_dir(folder.path("."))
        .env_clear()
        .stdin(Stdio::null())
        .stdout(out.try_clone().unwrap())
        .stderr(out)
        .spawn()
        .unwrap();
    while !std::fs::read_to_string(folder.path("out")).unwrap().contains("passed") {
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    ends(child, &arguments);
}
