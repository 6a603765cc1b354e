//! `metahook new`: the files of a scaffold, and what is refused.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use crate::{Folder, metahook};

#[test]
fn a_scaffold_has_all_files_and_no_placeholder_is_left() {
    let folder = Folder::new();
    let ended = folder.metahook(&["new", "my-hook"]);
    ended.is(0, "");
    assert!(
        ended.out.contains("cd my-hook && cargo build --target wasm32-wasip1 --release && metahook test"),
        "{}",
        ended.out
    );
    for (file, says) in [
        ("Cargo.toml", "name = \"my-hook\""),
        ("src/main.rs", "for each `MyHook` one ConfigMap"),
        ("controller.yaml", "resource: myhooks"),
        ("crd.yaml", "name: myhooks.example.com"),
        ("example.yaml", "kind: MyHook"),
        ("tests/first-sight/request.yaml", "kind: MyHook"),
        ("tests/without-a-name/response.yaml", "Hello, World!"),
        ("vendor/metahook-sdk/src/lib.rs", "SDK for hooks"),
        ("vendor/metahook-sdk/Cargo.toml", "name = \"metahook-sdk\""),
    ] {
        let text = std::fs::read_to_string(folder.path("my-hook").join(file)).unwrap();
        assert!(text.contains(says) && !text.contains("__"), "{file}: {text}");
    }
    let readme = std::fs::read_to_string(folder.path("my-hook/README.md")).unwrap();
    assert!(readme.lines().count() <= 30, "{readme}");
    let files =
        ["render", "-f", "controller.yaml", "-f", "crd.yaml", "-f", "example.yaml", "--module=hook.wasm"];
    let answer = r#"{"children": [], "status": {}}"#;
    let own = Folder::new().answers("hook.wasm", answer);
    own.metahook(&["new", "x", "--from=finalize"]).is(0, "");
    for file in ["controller.yaml", "crd.yaml", "example.yaml"] {
        std::fs::copy(own.path("x").join(file), own.path(file)).unwrap();
    }
    own.metahook(&files).is(0, "sync hook");
}

#[test]
fn a_decorator_is_one_by_either_flag() {
    let folder = Folder::new();
    folder.metahook(&["new", "a", "--decorator"]).is(0, "");
    folder.metahook(&["new", "b", "--from=decorator"]).is(0, "");
    for name in ["a", "b"] {
        let controller = std::fs::read_to_string(folder.path(name).join("controller.yaml")).unwrap();
        assert!(controller.contains("kind: DecoratorController"), "{controller}");
        assert!(!folder.path(name).join("crd.yaml").exists());
    }
    folder.metahook(&["new", "c", "--decorator", "--from=finalize"]).is(2, "cannot be used with");
}

#[test]
fn each_language_has_its_hook_and_its_commands() {
    for (language, hook, next) in [
        ("go", "main.go", "env GOOS=wasip1 GOARCH=wasm go build -o hook.wasm . && metahook test"),
        ("component", "src/main.rs", "cargo build --target wasm32-wasip2 --release && metahook test"),
        ("python", "hook.py", "cd x && metahook test"),
        ("javascript", "hook.js", "cd x && metahook test"),
        ("js", "metahook.d.ts", "cd x && metahook test"),
    ] {
        for template in ["composite", "decorator", "customize", "finalize"] {
            let folder = Folder::new();
            let ended = folder.metahook(&["new", "x", "--lang", language, "--from", template]);
            ended.is(0, "");
            assert!(ended.out.contains(next), "{}", ended.out);
            let text = std::fs::read_to_string(folder.path("x").join(hook)).unwrap();
            assert!(!text.contains("__NAME__") && !text.contains("__KIND__"), "{text}");
        }
    }
}

#[test]
fn what_is_there_stays_and_other_names_are_refused() {
    let folder = Folder::new().with("mine/file", "x");
    folder.metahook(&["new", "mine"]).is(2, "mine is there already: choose another name, or remove it");
    assert_eq!(std::fs::read_dir(folder.path("mine")).unwrap().count(), 1);
    folder
        .metahook(&["new", "other", "--lang=cobol"])
        .is(2, "possible values: rust, component, go, c, python");
    folder.metahook(&["new", "Other"]).is(2, "lower case letters, digits and dashes");
    folder.metahook(&["new", "../other"]).is(2, "lower case letters, digits and dashes");
}

#[test]
fn the_makefile_of_a_hook_in_c_takes_programs_with_versions() {
    let make = Path::new("/usr/bin/make");
    if !make.exists() {
        eprintln!("make is missing: nothing is tried");
        return;
    }
    let folder = Folder::new();
    folder.metahook(&["new", "my-hook", "--lang", "c"]).is(0, "");
    let command = |programs: &[&str]| {
        let path = tempfile::tempdir_in(folder.0.path()).unwrap();
        for program in programs {
            let file = path.path().join(program);
            // A clang that finds no linker of its own.
            std::fs::write(&file, "#!/bin/sh\necho wasm-ld\n").unwrap();
            std::fs::set_permissions(&file, Permissions::from_mode(0o755)).unwrap();
        }
        let mut make = Command::new(make);
        make.arg("-n").current_dir(folder.path("my-hook")).env_clear().env("PATH", path.path());
        let said = String::from_utf8(make.output().unwrap().stdout).unwrap();
        said.replace(&format!("{}/", path.path().display()), "")
    };
    let plain = command(&["clang", "clang-19"]);
    assert!(plain.starts_with("clang  --target=wasm32-wasi"), "{plain}");
    let versions = command(&["clang-18", "clang-19", "wasm-ld-18", "wasm-ld-19"]);
    assert!(versions.starts_with("clang-19 -fuse-ld=wasm-ld-19 --target=wasm32-wasi"), "{versions}");
}

#[test]
fn before_the_build_the_error_names_the_command_that_builds() {
    let folder = Folder::new();
    for (language, build) in
        [("go", "GOOS=wasip1 GOARCH=wasm go build"), ("c", "`make`"), ("rust", "cargo build")]
    {
        folder.metahook(&["new", language, "--lang", language]).is(0, "");
        let own = folder.path(language);
        for command in [&["check", "hook.wasm", "-f", "."][..], &["render", "-f", "."]] {
            metahook(&own, command, "").is(2, build);
        }
        let tested = metahook(&own, &["test"], "");
        assert!(tested.code == 1 && tested.out.contains(build), "{tested:#?}");
    }
}
