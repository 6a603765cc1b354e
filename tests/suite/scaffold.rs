//! `metahook new` as its README has it, outside of the repository and without a cluster: built, checked, tested.

use std::env;
use std::path::{Path, PathBuf};

use acceptance::fixture::Fixture;
use acceptance::paths;
use anyhow::{Context, Result, ensure};
use tokio::process::Command;

/// Runs a program in a folder; what it prints on stdout.
pub(crate) async fn runs(folder: &Path, target: Option<&Path>, line: &[&str]) -> Result<String> {
    let (program, arguments) = line.split_first().context("a program")?;
    let program = match *program {
        "metahook" => paths::server()?.into_os_string(),
        "cargo" => env::var_os("CARGO").unwrap_or_else(|| "cargo".into()),
        other => other.into(),
    };
    let mut command = Command::new(&program);
    if program == "make" {
        c_tools(&mut command)?;
    }
    command.args(arguments).current_dir(folder).kill_on_drop(true);
    // What the repository is built with is there; nothing is fetched.
    command.env("CARGO_NET_OFFLINE", "true").env_remove("CARGO_TARGET_DIR");
    if let Some(target) = target {
        command.env("CARGO_TARGET_DIR", target);
    }
    let output = command.output().await?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (out, say) = (text(&output.stdout), text(&output.stderr));
    ensure!(output.status.success(), "{line:?} failed:\n{out}\n{say}");
    Ok(out)
}

/// The compiler of C and its library for WASI, as Debian has them.
fn has_c() -> bool {
    ["/usr/bin/clang-19", "/usr/bin/make", "/usr/lib/wasm32-wasi/libc.a"]
        .iter()
        .all(|it| Path::new(it).exists())
}

/// Debian's clang with the linker that comes with Rust: Debian's is one more package.
fn c_tools(command: &mut Command) -> Result<()> {
    let asked = std::process::Command::new("rustc").args(["--print", "target-libdir"]).output()?;
    let libraries = PathBuf::from(String::from_utf8_lossy(&asked.stdout).trim());
    let folder = libraries.parent().context("rustc has no folder of libraries")?;
    let linker = folder.join("bin/gcc-ld/wasm-ld");
    command.env("CLANG", format!("clang-19 -fuse-ld={}", linker.display()));
    Ok(())
}

pub(crate) async fn a_new_hook_is_built_checked_and_tested_as_its_readme_has_it(
    test: &mut Fixture,
) -> Result<()> {
    let folder = test.plane().scratch().join("new");
    std::fs::create_dir(&folder)?;
    let demo = as_its_readme_has_it(&folder, "demo", &[], Some("cargo build")).await?;
    panics_are_told_with_their_place(&demo).await
}

pub(crate) async fn a_new_hook_in_each_language_is_built_checked_and_tested_as_its_readme_has_it(
    test: &mut Fixture,
) -> Result<()> {
    let folder = test.plane().scratch().join("languages");
    std::fs::create_dir(&folder)?;
    for (language, build) in [("python", None), ("javascript", None), ("go", Some("env GOOS=wasip1"))] {
        as_its_readme_has_it(&folder, language, &["--lang", language], build).await?;
    }
    let mut languages = vec!["python", "javascript", "go"];
    if has_c() {
        as_its_readme_has_it(&folder, "c", &["--lang", "c"], Some("make")).await?;
        languages.push("c");
    } else {
        eprintln!(
            "no hook in C: clang-19, wasi-libc or make is missing (Debian: apt-get install clang-19 wasi-libc make)"
        );
    }
    // The hooks of the other templates; a component's are those of a module.
    for language in languages {
        for template in ["decorator", "customize", "finalize"] {
            let name = format!("{language}-{template}");
            runs(&folder, None, &["metahook", "new", &name, "--lang", language, "--from", template]).await?;
            let own = folder.join(&name);
            if language == "go" {
                let build = ["env", "GOOS=wasip1", "GOARCH=wasm", "go", "build", "-o", "hook.wasm", "."];
                runs(&own, None, &build).await?;
            }
            if language == "c" {
                runs(&own, None, &["make"]).await?;
            }
            let tested = runs(&own, None, &["metahook", "test"]).await?;
            ensure!(tested.ends_with("2 passed, 0 failed\n"), "{name}: {tested}");
            let file = match language {
                "python" => "hook.py",
                "javascript" => "hook.js",
                _ => "hook.wasm",
            };
            runs(&own, None, &["metahook", "check", file, "-f", "."]).await?;
        }
    }
    Ok(())
}

/// By itself: Cargo takes long beside all other tests.
pub(crate) async fn a_new_component_is_built_checked_and_tested_as_its_readme_has_it(
    test: &mut Fixture,
) -> Result<()> {
    let folder = test.plane().scratch().join("components");
    std::fs::create_dir(&folder)?;
    let flags = ["--lang", "component"];
    as_its_readme_has_it(&folder, "component", &flags, Some("cargo build")).await.map(drop)
}

/// Makes a hook and runs the commands of its README that need no cluster. `build`: how the first of them begins. Its folder.
async fn as_its_readme_has_it(
    folder: &Path,
    name: &str,
    flags: &[&str],
    build: Option<&str>,
) -> Result<PathBuf> {
    runs(folder, None, &[&["metahook", "new", name], flags].concat()).await?;
    let demo = folder.join(name);
    let readme = std::fs::read_to_string(demo.join("README.md"))?;
    let is_command =
        |line: &&str| ["cargo ", "env ", "make", "metahook "].iter().any(|it| line.starts_with(it));
    let lines: Vec<_> = readme.lines().filter(is_command).collect();
    let (mut passed, mut commands) = (String::new(), Vec::new());
    let needs_cluster = |line: &&&str| {
        ["metahook crds", "metahook dev", "metahook apply", "metahook delete"]
            .iter()
            .any(|it| line.starts_with(it))
    };
    ensure!(lines.iter().filter(needs_cluster).count() == 4, "{lines:?}");
    for line in lines.iter().filter(|line| !needs_cluster(line)) {
        let words: Vec<_> = line.split_whitespace().collect();
        passed += &runs(&demo, None, &words).await?;
        commands.push(words.iter().take(2).copied().collect::<Vec<_>>().join(" "));
    }
    let expected: Vec<_> =
        build.into_iter().chain(["metahook check", "metahook test", "metahook render"]).collect();
    ensure!(commands == expected, "{name}: {commands:?}");
    for says in ["ok   1,000 children are no problem", "2 passed, 0 failed", "greeting: \"Hello, Ann!\""] {
        ensure!(passed.contains(says), "not {says:?}: {passed}");
    }
    ensure!(!passed.contains("FAIL"), "{passed}");
    Ok(demo)
}

/// The author breaks the hook: the message says what the program said, and where.
async fn panics_are_told_with_their_place(demo: &Path) -> Result<()> {
    let source = demo.join("src/main.rs");
    let works = std::fs::read_to_string(&source)?;
    let (before, hook) = works.split_once("fn sync(").context("a sync hook")?;
    let (signature, body) = hook.split_once("{\n").context("its body")?;
    for (line, said) in [
        (r"std::hint::black_box(vec![1])[std::hint::black_box(7)];", "the len is 1 but the index is 7"),
        (r#"std::hint::black_box(None::<u8>).expect("no colour");"#, ": no colour"),
        (r#"panic!("such a {}", "pity");"#, ": such a pity"),
    ] {
        let broken = format!("{before}fn sync({signature}{{\n    {line}\n{body}");
        std::fs::write(&source, broken)?;
        runs(demo, None, &["cargo", "build", "--target", "wasm32-wasip1", "--release"]).await?;
        let module = "target/wasm32-wasip1/release/demo.wasm";
        let request = "tests/first-sight/request.yaml";
        let failed = runs(demo, None, &["metahook", "run", module, "--request", request]).await;
        let why = format!("{:#}", failed.err().context("the hook did not fail")?);
        for part in [said, "the hook trapped in demo::", "panicked at src/main.rs:"] {
            ensure!(why.contains(part), "not {part:?}: {why}");
        }
    }
    Ok(())
}

pub(crate) async fn each_template_makes_a_hook_that_passes_its_own_cases(test: &mut Fixture) -> Result<()> {
    let folder = test.plane().scratch().join("templates");
    std::fs::create_dir(&folder)?;
    let target = folder.join("target");
    for template in ["composite", "decorator", "customize", "finalize"] {
        let name = format!("my-{template}");
        runs(&folder, None, &["metahook", "new", &name, "--from", template]).await?;
        let own = folder.join(&name);
        runs(&own, Some(&target), &["cargo", "build", "--target", "wasm32-wasip1", "--release"]).await?;
        let module = target.join(format!("wasm32-wasip1/release/{name}.wasm")).display().to_string();
        let tested = runs(&own, None, &["metahook", "test", "--module", &module]).await?;
        ensure!(tested.ends_with("2 passed, 0 failed\n"), "{template}: {tested}");
        let mut check = vec!["metahook", "check", &module, "-f", "controller.yaml", "-f", "example.yaml"];
        if template != "decorator" {
            check.extend(["-f", "crd.yaml"]);
        }
        runs(&own, None, &check).await?;
    }
    Ok(())
}
