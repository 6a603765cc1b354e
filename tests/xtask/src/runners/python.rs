//! The runner for Python: `CPython` as a component, with the runner's own program in it, as componentize-py makes it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use binaries::paths;

use super::{Language, call, folder};

/// Why it cannot be built here.
pub(super) fn missing() -> Option<String> {
    if !cfg!(all(target_os = "linux", target_arch = "x86_64")) {
        return Some("its packages are pinned for Linux on x86_64".to_owned());
    }
    let pip = Command::new("python3")
        .args(["-m", "pip", "--version"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    let found = pip.is_ok_and(|status| status.success());
    (!found).then(|| "python3 with pip is missing (Debian: apt-get install python3-pip)".to_owned())
}

/// Builds `python.wasm` in a folder, with the same bytes each time: some ten seconds, with the packages' download.
pub(super) fn build(work: &Path) -> Result<()> {
    let (source, packages, app) = (folder(Language::Python), work.join("packages"), work.join("app"));
    let mut pip = Command::new("python3");
    pip.args(["-m", "pip", "install", "-q", "--disable-pip-version-check", "--root-user-action=ignore"])
        .args(["--no-deps", "--require-hashes", "--only-binary=:all:"])
        // The pinned files, whichever Python this machine has.
        .args(["--platform=manylinux_2_28_x86_64", "--platform=manylinux2014_x86_64"])
        .args(["--python-version=3.11", "--implementation=cp", "--abi=cp311", "--abi=abi3"])
        .arg("--target")
        .arg(&packages)
        .arg("-r")
        .arg(source.join("requirements.txt"));
    call(&mut pip)?;
    have_kept_licences(&packages, &source.join("licenses"))?;
    let yaml = app.join("yaml");
    fs::create_dir_all(&yaml)?;
    for entry in fs::read_dir(packages.join("yaml")).context("the package yaml")? {
        let path = entry?.path();
        if let Some(name) = path.file_name().filter(|_| path.extension().is_some_and(|ending| ending == "py"))
        {
            fs::copy(&path, yaml.join(name))?;
        }
    }
    fs::copy(source.join("runner.py"), app.join("runner.py"))?;
    let mut componentize = Command::new("python3");
    componentize
        .env("LD_PRELOAD", reproducible(work)?)
        .env("PYTHONPATH", &packages)
        // An environment without packages: else the runner sees those of the Python of this machine.
        .env("VIRTUAL_ENV", work.join("none"))
        .args(["-c", "import componentize_py; componentize_py.script()", "-d"])
        .arg(source.join("runner.wit"))
        .args(["-w", "runner", "componentize", "-p"])
        .arg(&app)
        .args(["runner", "-o"])
        .arg(work.join("python.wasm"));
    call(&mut componentize)
}

/// The library by which each build makes the same bytes.
fn reproducible(work: &Path) -> Result<PathBuf> {
    let library = work.join("reproducible.so");
    let mut compile = Command::new("cc");
    compile.args(["-shared", "-fPIC", "-O1", "-Wall", "-o"]).arg(&library);
    call(compile.arg(paths::workspace().join("tests/xtask/src/runners/reproducible.c")))?;
    Ok(library)
}

/// A release has the licences that the repository keeps: they are those of the packages.
fn have_kept_licences(packages: &Path, kept: &Path) -> Result<()> {
    for (package, file) in [("componentize_py-", "componentize-py.txt"), ("pyyaml-", "pyyaml.txt")] {
        let mut folders = fs::read_dir(packages)?.filter_map(|entry| Some(entry.ok()?.path()));
        let is_it = |path: &Path| {
            let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
            name.starts_with(package) && name.ends_with(".dist-info")
        };
        let folder =
            folders.find(|path| is_it(path)).with_context(|| format!("{package} says nothing of itself"))?;
        let text = folder.join("licenses/LICENSE");
        let read = |path: &Path| fs::read(path).with_context(|| format!("{} cannot be read", path.display()));
        let kept = kept.join(file);
        ensure!(
            read(&text)? == read(&kept)?,
            "another licence than that in {}: copy {} there, and look at the others of this folder and at tests/image/third_party, too",
            kept.display(),
            text.display()
        );
    }
    Ok(())
}
