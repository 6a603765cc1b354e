//! How the program behaves among others of a shell: exit codes, and a reader that goes away.

use std::process::{Command, Stdio};

use crate::Folder;

/// As with Go's flags, whose exit code it is.
#[test]
fn a_wrong_flag_ends_the_program_with_2() {
    let folder = Folder::new();
    for (arguments, says) in [
        (&["serve", "--no-such-flag"][..], "--no-such-flag"),
        (&["serve", "--workers=x"], "--workers"),
        (&["no-such-command"], "no-such-command"),
        (&["rbac", "--no-such-flag", "file"], "--no-such-flag"),
    ] {
        let ended = folder.metahook(arguments);
        ended.is(2, says);
        ended.is(2, "--help");
    }
    for help in ["--help", "--version"] {
        folder.metahook(&[help]).is(0, "");
    }
}

/// As `metahook crds | head` has it: more is printed than a pipe holds.
#[test]
fn a_reader_that_goes_away_is_no_error() {
    let mut child = Command::new(env!("CARGO_BIN_EXE_metahook"))
        .arg("crds")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.is_empty(), "{}: {said}", output.status);
}

/// kubectl calls its plugins by the name of their file.
#[test]
fn as_a_plugin_it_says_how_kubectl_calls_it() {
    let folder = tempfile::tempdir().unwrap();
    let plugin = folder.path().join("kubectl-metahook");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_metahook"), &plugin).unwrap();
    let says = |program: &std::path::Path, arguments: &[&str]| {
        let output = Command::new(program).args(arguments).output().unwrap();
        String::from_utf8(output.stdout).unwrap() + &String::from_utf8(output.stderr).unwrap()
    };
    assert!(says(&plugin, &["--help"]).contains("Usage: kubectl metahook <COMMAND>"));
    assert!(says(&plugin, &["run", "--help"]).contains("Usage: kubectl metahook run "));
    assert!(says(&plugin, &["run"]).contains("Usage: kubectl metahook run "));
    let program = std::path::Path::new(env!("CARGO_BIN_EXE_metahook"));
    assert!(says(program, &["run"]).contains("Usage: metahook run "));
}
