//! Packs what a release holds. The same parts make the same bytes at any time and on any machine.

mod manifests;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use binaries::architecture::Architecture;
use image::archive::{Archive, Effort, gzip};
use image::{ABOUT, ABOUT_RUNNERS, Image, Layout, RUNNERS, THIRD_PARTY, hex};

/// The version that all parts have: Cargo.toml names it.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Where a release is published.
#[derive(Debug)]
pub struct Places<'a> {
    /// `github.com/OWNER/NAME`, which has the downloads.
    pub repository: &'a str,
    /// The image without its tag.
    pub image: &'a str,
}

/// The files of a release by their names.
type Release = BTreeMap<String, Vec<u8>>;

/// Writes the folder anew, and returns the text of its `SHA256SUMS`.
///
/// `parts` has a folder with `metahook`, `runners` and the list of what the server is made of for each architecture, the book,
/// the SDK's package, the notes, and the licences of others.
///
/// # Errors
/// A part is missing, or a manifest has another version.
pub fn pack(workspace: &Path, parts: &Path, folder: &Path, places: &Places<'_>) -> Result<String> {
    let name = format!("{}:{VERSION}", places.image);
    let mut release = Release::new();
    let mut images = Vec::new();
    let licences = read(&parts.join(THIRD_PARTY))?;
    for architecture in Architecture::ALL {
        let built = parts.join(architecture.name());
        release.insert(archive_name(architecture), command(workspace, &built, &licences)?);
        let bill = format!("metahook-linux-{}.cdx.json", architecture.name());
        release.insert(bill, read(&built.join("metahook.cdx.json"))?);
        images.push(server_image(&built, architecture, &licences)?);
    }
    for image in &images {
        let file = format!("metahook-image-linux-{}.tar", image.architecture().name());
        release.insert(file, Layout::of_one(image, &name).tar()?);
    }
    release.insert("metahook-image.tar".to_owned(), Layout::of_all(&images, &name).tar()?);
    release.insert("metahook-book.tar.gz".to_owned(), packed_folder(&parts.join("book"), "metahook-book")?);
    for name in [format!("metahook-sdk-{VERSION}.crate"), "RELEASE_NOTES.md".to_owned()] {
        let content = read(&parts.join(&name))?;
        release.insert(name, content);
    }
    manifests::add(&mut release, workspace, places)?;
    let sums: Vec<String> =
        release.iter().map(|(name, content)| format!("{}  {name}\n", hex(content))).collect();
    let sums = sums.concat();
    release.insert("SHA256SUMS".to_owned(), sums.clone().into_bytes());
    write(&release, folder)?;
    Ok(sums)
}

/// The name of the archive with the command.
fn archive_name(architecture: Architecture) -> String {
    format!("metahook-linux-{}.tar.gz", architecture.name())
}

/// The program, and beside it the interpreters of scripts, where it looks for them.
fn command(workspace: &Path, built: &Path, licences: &[u8]) -> Result<Vec<u8>> {
    let program = read(&built.join("metahook"))?;
    ensure!(!needs_loader(&program), "{} is not static", built.join("metahook").display());
    let mut tar = Archive::new();
    tar.program("metahook", &program)?;
    tar.file("LICENSE", &read(&workspace.join("LICENSE"))?)?;
    tar.file(THIRD_PARTY, licences)?;
    // Else a folder has the rights that a user's umask gives it, and no server uses code of one that others may write.
    for folder in ["runners/", "licenses/", "licenses/javascript/", "licenses/python/"] {
        tar.folder(folder)?;
    }
    for (path, content) in image::runners(&built.join("runners"), "runners", "licenses")? {
        tar.file(&path, &content)?;
    }
    gzip(&tar.finish()?, Effort::Much)
}

/// Whether an ELF program names a loader: then it needs shared libraries.
fn needs_loader(program: &[u8]) -> bool {
    /// `PT_INTERP`.
    const LOADER: &[u8] = &[3, 0, 0, 0];
    let number = |at: usize, bytes: usize| {
        let bytes = program.get(at..at + bytes)?;
        Some(bytes.iter().rev().fold(0_usize, |all, byte| all << 8 | usize::from(*byte)))
    };
    let (Some(first), Some(size), Some(count)) = (number(32, 8), number(54, 2), number(56, 2)) else {
        return false;
    };
    program.starts_with(b"\x7fELF")
        && (0..count).any(|nth| program.get(first + nth * size..first + nth * size + 4) == Some(LOADER))
}

fn server_image(built: &Path, architecture: Architecture, licences: &[u8]) -> Result<Image> {
    let mut files = image::runners(&built.join("runners"), RUNNERS, ABOUT_RUNNERS)?;
    files.push((format!("{ABOUT}/{THIRD_PARTY}"), licences.to_vec()));
    Image::of_server(&built.join("metahook"), files, architecture, Effort::Much)
}

/// All files of a folder, in the order of their paths, under a folder of another name.
fn packed_folder(folder: &Path, name: &str) -> Result<Vec<u8>> {
    packed_files(folder, name, |_, content| Ok(Some(content)))
}

/// Each file as `change` makes it; without those for which it answers `None`.
fn packed_files(
    folder: &Path,
    name: &str,
    change: impl Fn(&Path, Vec<u8>) -> Result<Option<Vec<u8>>>,
) -> Result<Vec<u8>> {
    let mut tar = Archive::new();
    for path in files(folder)? {
        let inner = path.strip_prefix(folder)?;
        if let Some(content) = change(inner, read(&path)?)? {
            let inner = inner.to_str().context("a path is no UTF-8")?;
            tar.file(&format!("{name}/{inner}"), &content)?;
        }
    }
    gzip(&tar.finish()?, Effort::Much)
}

/// The files below a folder, sorted by their paths.
fn files(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        for entry in fs::read_dir(&next).with_context(|| format!("{} cannot be read", next.display()))? {
            let path = entry?.path();
            if path.is_dir() { folders.push(path) } else { found.push(path) }
        }
    }
    found.sort();
    Ok(found)
}

fn read(path: &Path) -> Result<Vec<u8>> {
    fs::read(path).with_context(|| format!("{} cannot be read", path.display()))
}

fn write(release: &Release, folder: &Path) -> Result<()> {
    if folder.exists() {
        fs::remove_dir_all(folder).with_context(|| format!("{} cannot be made anew", folder.display()))?;
    }
    fs::create_dir_all(folder)?;
    for (name, content) in release {
        let path = folder.join(name);
        fs::write(&path, content).with_context(|| format!("{} cannot be written", path.display()))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Parts of a release, each as small as it can be, with another program for each architecture.
    fn parts() -> tempfile::TempDir {
        let parts = tempfile::tempdir().unwrap();
        let put = |name: &str, content: &[u8]| {
            let path = parts.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, content).unwrap();
        };
        for name in ["amd64", "arm64"] {
            put(&format!("{name}/metahook"), format!("#!/bin/{name}").as_bytes());
            put(&format!("{name}/runners/python.wasm"), b"interpreter");
            put(&format!("{name}/metahook.cdx.json"), format!("{{\"of\": \"{name}\"}}").as_bytes());
        }
        put("book/index.html", b"<p>book</p>");
        put("book/a/b.css", b"p {}");
        put(&format!("metahook-sdk-{VERSION}.crate"), b"crate");
        put("RELEASE_NOTES.md", b"# metahook");
        put(THIRD_PARTY, b"licences of others");
        parts
    }

    fn packed(parts: &Path) -> (tempfile::TempDir, String) {
        let folder = tempfile::tempdir().unwrap();
        let workspace = binaries::paths::workspace();
        let places = Places { repository: "git.example.com/metahook", image: "images.example.com/metahook" };
        let sums = pack(&workspace, parts, folder.path(), &places).unwrap();
        (folder, sums)
    }

    #[test]
    fn the_same_parts_make_the_same_bytes_and_each_file_has_its_sum() {
        let parts = parts();
        let (folder, sums) = packed(parts.path());
        assert_eq!(packed(parts.path()).1, sums);
        let names: Vec<_> = sums.lines().map(|line| line.split_once("  ").unwrap()).collect();
        for (sum, name) in &names {
            assert_eq!(*sum, hex(&fs::read(folder.path().join(name)).unwrap()), "{name}");
        }
        let mut there: Vec<_> =
            files(folder.path()).unwrap().iter().map(|path| path.file_name().unwrap().to_owned()).collect();
        there.retain(|name| name != "SHA256SUMS");
        assert_eq!(there, names.iter().map(|(_, name)| *name).collect::<Vec<_>>());
    }

    #[test]
    fn archives_and_images_have_the_licences_of_others() {
        let parts = parts();
        let (folder, _) = packed(parts.path());
        let output = |script: &str| {
            let mut shell = std::process::Command::new("sh");
            let output = shell.args(["-ec", script]).current_dir(folder.path()).output().unwrap();
            String::from_utf8(output.stdout).unwrap()
        };
        for name in ["amd64", "arm64"] {
            let of_archive = output(&format!("tar -xzOf metahook-linux-{name}.tar.gz {THIRD_PARTY}"));
            assert_eq!(of_archive, "licences of others");
            let of_image = output(&format!(
                "tar -xf metahook-image-linux-{name}.tar
                 for blob in blobs/sha256/*; do tar -xzOf $blob {ABOUT}/{THIRD_PARTY} 2> /dev/null || true; done
                 rm -r blobs"
            ));
            assert_eq!(of_image, "licences of others");
            let bill =
                fs::read_to_string(folder.path().join(format!("metahook-linux-{name}.cdx.json"))).unwrap();
            assert_eq!(bill, format!("{{\"of\": \"{name}\"}}"));
        }
    }

    #[test]
    fn krew_finds_each_archive_by_its_digest() {
        let parts = parts();
        let (folder, sums) = packed(parts.path());
        let plugin = fs::read_to_string(folder.path().join("metahook.yaml")).unwrap();
        for architecture in Architecture::ALL {
            let name = archive_name(architecture);
            let (sum, _) = sums.lines().find_map(|line| line.split_once(&format!("  {name}"))).unwrap();
            let download = format!(
                "uri: https://git.example.com/metahook/releases/download/v{VERSION}/{name}\n    sha256: \"{sum}\""
            );
            assert!(plugin.contains(&download), "{download}\nis not in\n{plugin}");
        }
        assert!(!plugin.contains("REPOSITORY") && !plugin.contains("VERSION"), "{plugin}");
    }

    #[test]
    fn the_manifests_name_the_image_that_is_published() {
        let parts = parts();
        let (folder, _) = packed(parts.path());
        let install = fs::read_to_string(folder.path().join("install.yaml")).unwrap();
        assert!(install.contains(&format!("image: images.example.com/metahook:{VERSION}\n")), "{install}");
        for (archive, file, line) in [
            ("metahook-manifests.tar.gz", "kustomization.yaml", "\n  newName: images.example.com/metahook\n"),
            (
                &format!("metacontroller-helm-{VERSION}.tgz"),
                "values.yaml",
                "\n  repository: images.example.com/metahook\n",
            ),
        ] {
            let output = std::process::Command::new("tar")
                .args(["--wildcards", "-xzOf"])
                .arg(folder.path().join(archive))
                .arg(format!("*/{file}"))
                .output()
                .unwrap();
            let text = String::from_utf8(output.stdout).unwrap();
            assert!(text.contains(line), "{file}:\n{text}");
        }
    }

    #[test]
    fn a_program_with_a_loader_is_refused() {
        assert!(needs_loader(&fs::read(std::env::current_exe().unwrap()).unwrap()));
        assert!(!needs_loader(b"\x7fELF"));
        assert!(!needs_loader(b"#!/bin/sh"));
    }

    /// `Cargo.toml` has the version; these texts repeat it, each behind such words.
    #[test]
    fn texts_name_the_version_of_the_workspace() {
        const BEFORE: [&str; 7] =
            ["metahook:", "download/v", "tags/v", "-helm-", "-sdk-", "image.tag=", "version is "];
        let root = binaries::paths::workspace();
        let mut texts = vec![root.join("README.md"), root.join("runtime/Dockerfile")];
        let pages = fs::read_dir(root.join("runtime/docs/src")).unwrap();
        texts.extend(pages.map(|page| page.unwrap().path()).filter(|path| path.is_file()));
        let (mut found, mut others) = (0, Vec::new());
        for path in texts {
            let text = fs::read_to_string(&path).unwrap();
            let behind = |before| text.split(before).skip(1).map(move |rest| (before, rest));
            for (before, rest) in BEFORE.into_iter().flat_map(behind) {
                let version = rest.split(|it: char| !it.is_ascii_digit() && it != '.').next();
                let version = version.unwrap_or_default().trim_matches('.');
                if !version.is_empty() {
                    found += 1;
                    if version != VERSION {
                        others.push(format!("{}: {version} behind {before}", path.display()));
                    }
                }
            }
        }
        assert!(others.is_empty(), "the version is {VERSION}:\n{}", others.join("\n"));
        assert!(found >= 15, "{found}");
    }

    #[test]
    fn a_part_that_is_missing_is_named_and_nothing_is_written() {
        let parts = parts();
        fs::remove_file(parts.path().join("arm64/metahook.cdx.json")).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("release");
        let places = Places { repository: "x", image: "x" };
        let error = pack(&binaries::paths::workspace(), parts.path(), &target, &places).unwrap_err();
        assert!(format!("{error:#}").contains("metahook.cdx.json cannot be read"), "{error:#}");
        assert!(!target.exists());
    }
}
