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
