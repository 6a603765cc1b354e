//! OCI images of the server: the same binaries make the same bytes at any time and on any machine.
#![allow(clippy::indexing_slicing, reason = "only JSON is indexed: what is not there is null")]

pub mod archive;
mod third_party;

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use binaries::architecture::Architecture;
use binaries::paths;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

pub use archive::Effort;
use archive::{Archive, gzip};
pub use third_party::{THIRD_PARTY, third_party};

/// Name of the image in the manifests.
pub const NAME: &str = concat!("metahook/metahook:", env!("CARGO_PKG_VERSION"));

/// Where an image has the interpreters of scripts: beside the server, which looks for them there.
pub const RUNNERS: &str = "usr/bin/runners";

/// Where an image has licences.
pub const ABOUT: &str = "usr/share/metahook";

/// Where an image has those of the interpreters.
pub const ABOUT_RUNNERS: &str = "usr/share/metahook/runners";

/// The user that Metacontroller's image runs as; not root.
const USER: u64 = 65532;

const INDEX: &str = "application/vnd.oci.image.index.v1+json";
const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";

/// Files by their paths.
pub type Files = Vec<(String, Vec<u8>)>;

/// The image of the server for one architecture.
#[derive(Debug)]
pub struct Image {
    architecture: Architecture,
    /// The descriptor of its manifest.
    manifest: Value,
    blobs: Files,
}

impl Image {
    /// The server, with the shared libraries that it needs, if it needs any, and files by their paths without the first slash.
    pub fn of_server(
        binary: &Path,
        mut files: Files,
        architecture: Architecture,
        effort: Effort,
    ) -> Result<Self> {
        for library in libraries(binary)? {
            let content = fs::read(&library).with_context(|| format!("{library} cannot be read"))?;
            files.push((library.trim_start_matches('/').to_owned(), content));
        }
        let content = fs::read(binary).with_context(|| format!("{} cannot be read", binary.display()))?;
        files.push(("usr/bin/metahook".to_owned(), content));
        let license = fs::read(paths::workspace().join("LICENSE")).context("LICENSE cannot be read")?;
        files.push((format!("{ABOUT}/LICENSE"), license));
        Self::of_layer(&layer(&files)?, architecture, effort)
    }

    pub fn architecture(&self) -> Architecture {
        self.architecture
    }

    fn of_layer(layer: &[u8], architecture: Architecture, effort: Effort) -> Result<Self> {
        let packed = gzip(layer, effort)?;
        let config = json!({
            "architecture": architecture.name(),
            "os": "linux",
            "created": "1970-01-01T00:00:00Z",
            "config": {
                "User": format!("{USER}:{USER}"),
                // Else the C library keeps freed memory: see the book's page on limits.
                "Env": ["MALLOC_ARENA_MAX=2", "MALLOC_MMAP_THRESHOLD_=131072"],
                "Entrypoint": ["/usr/bin/metahook"],
                "Cmd": ["serve", "--health-probe-bind-address=:8081"],
                "WorkingDir": "/",
            },
            "rootfs": {"type": "layers", "diff_ids": [format!("sha256:{}", hex(layer))]},
        });
        let config = config.to_string().into_bytes();
        let manifest = json!({
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "config": descriptor("application/vnd.oci.image.config.v1+json", &config),
            "layers": [descriptor("application/vnd.oci.image.layer.v1.tar+gzip", &packed)],
        });
        let manifest = manifest.to_string().into_bytes();
        let named = descriptor(MANIFEST, &manifest);
        Ok(Self { architecture, manifest: named, blobs: vec![blob(manifest), blob(config), blob(packed)] })
    }
}

/// An image layout, file by file.
#[derive(Debug)]
pub struct Layout(Files);

impl Layout {
    /// The image of a server of this machine, without interpreters of scripts.
    pub fn of_server(binary: &Path, effort: Effort) -> Result<Self> {
        let image = Image::of_server(binary, Vec::new(), Architecture::of_host()?, effort)?;
        Ok(Self::of_one(&image, NAME))
    }

    /// The image of one architecture, which is called `name` with its tag.
    pub fn of_one(image: &Image, name: &str) -> Self {
        let mut layout = Self::named(image.manifest.clone(), image.blobs.clone(), name);
        if let [_, (config, _), (packed, _)] = image.blobs.as_slice() {
            // Docker without containerd's store reads this.
            let docker = json!([{"Config": config, "RepoTags": [name], "Layers": [packed]}]);
            layout.0.push(("manifest.json".to_owned(), docker.to_string().into_bytes()));
        }
        layout
    }

    /// The image of several architectures: who pulls it gets its own.
    pub fn of_all(images: &[Image], name: &str) -> Self {
        let manifests: Vec<Value> = images
            .iter()
            .map(|image| {
                let mut manifest = image.manifest.clone();
                manifest["platform"] = json!({"architecture": image.architecture.name(), "os": "linux"});
                manifest
            })
            .collect();
        let index = json!({"schemaVersion": 2, "mediaType": INDEX, "manifests": manifests});
        let index = index.to_string().into_bytes();
        let named = descriptor(INDEX, &index);
        let blobs = images.iter().flat_map(|image| image.blobs.clone());
        Self::named(named, [blob(index)].into_iter().chain(blobs).collect(), name)
    }

    fn named(mut top: Value, blobs: Files, name: &str) -> Self {
        let has_registry = name.split_once('/').is_some_and(|(first, _)| first.contains(['.', ':']));
        let whole = if has_registry { name.to_owned() } else { format!("docker.io/{name}") };
        top["annotations"] = json!({
            "org.opencontainers.image.ref.name": name,
            "io.containerd.image.name": whole,
        });
        let index = json!({"schemaVersion": 2, "mediaType": INDEX, "manifests": [top]});
        let mut files = vec![
            ("oci-layout".to_owned(), br#"{"imageLayoutVersion":"1.0.0"}"#.to_vec()),
            ("index.json".to_owned(), index.to_string().into_bytes()),
        ];
        files.extend(blobs);
        Self(files)
    }

    /// As a folder, made anew.
    pub fn write(&self, folder: &Path) -> Result<()> {
        if folder.exists() {
            fs::remove_dir_all(folder)
                .with_context(|| format!("{} cannot be made anew", folder.display()))?;
        }
        for (name, bytes) in &self.0 {
            let path = folder.join(name);
            fs::create_dir_all(path.parent().unwrap_or(folder))?;
            fs::write(&path, bytes).with_context(|| format!("{} cannot be written", path.display()))?;
        }
        Ok(())
    }

    /// As one file.
    pub fn tar(&self) -> Result<Vec<u8>> {
        let mut tar = Archive::new();
        for folder in ["blobs/", "blobs/sha256/"] {
            tar.folder(folder)?;
        }
        for (name, bytes) in &self.0 {
            tar.file(name, bytes)?;
        }
        tar.finish()
    }
}

/// The interpreters of scripts that a folder has, with their licences and what they are made of, under another folder each.
/// What is missing is missing in the answer, too.
pub fn runners(built: &Path, programs: &str, about: &str) -> Result<Files> {
    let mut files = Vec::new();
    for name in ["javascript", "python"] {
        for part in ["wasm", "code"] {
            let file = built.join(format!("{name}.{part}"));
            if file.is_file() {
                let content =
                    fs::read(&file).with_context(|| format!("{} cannot be read", file.display()))?;
                files.push((format!("{programs}/{name}.{part}"), content));
            }
        }
        let source = paths::workspace().join("runtime/runners").join(name);
        for part in ["LICENSES.md", "sbom.json"] {
            let content = fs::read(source.join(part)).with_context(|| format!("{part} of {name}"))?;
            files.push((format!("{about}/{name}/{part}"), content));
        }
    }
    Ok(files)
}

/// SHA-256 in hexadecimal.
pub fn hex(bytes: &[u8]) -> String {
    let digits = Sha256::digest(bytes);
    digits.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().concat()
}

/// Shared libraries and the loader of a program; none where it is static.
pub fn libraries(binary: &Path) -> Result<Vec<String>> {
    let output = Command::new("ldd").arg(binary).output().context("cannot run ldd")?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    if !output.status.success() || text.contains("statically linked") {
        let printed = text + &String::from_utf8_lossy(&output.stderr);
        ensure!(
            printed.contains("statically linked") || printed.contains("not a dynamic executable"),
            "ldd: {printed}"
        );
        return Ok(Vec::new());
    }
    let path = |line: &str| line.split_whitespace().find(|word| word.starts_with('/')).map(str::to_owned);
    Ok(text.lines().filter_map(path).collect())
}

/// The root file system: the server under both of its names, its libraries, and its user.
fn layer(files: &[(String, Vec<u8>)]) -> Result<Vec<u8>> {
    let mut tar = Archive::new();
    tar.file("etc/group", format!("nonroot:x:{USER}:\n").as_bytes())?;
    tar.file("etc/passwd", format!("nonroot:x:{USER}:{USER}::/:/sbin/nologin\n").as_bytes())?;
    for (path, content) in files {
        tar.program(path, content)?;
    }
    tar.link("usr/bin/metacontroller", "metahook")?;
    tar.finish()
}

fn blob(bytes: Vec<u8>) -> (String, Vec<u8>) {
    (format!("blobs/sha256/{}", hex(&bytes)), bytes)
}

fn descriptor(kind: &str, bytes: &[u8]) -> Value {
    json!({"mediaType": kind, "digest": format!("sha256:{}", hex(bytes)), "size": bytes.len()})
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;

    use super::*;

    fn image(binary: &[u8], architecture: Architecture) -> Image {
        let files = [("usr/bin/metahook".to_owned(), binary.to_vec())];
        Image::of_layer(&layer(&files).unwrap(), architecture, Effort::Much).unwrap()
    }

    fn tar(binary: &[u8]) -> Vec<u8> {
        Layout::of_one(&image(binary, Architecture::Amd64), NAME).tar().unwrap()
    }

    #[test]
    fn the_same_binary_makes_the_same_image() {
        assert_eq!(tar(b"one"), tar(b"one"));
        assert_ne!(tar(b"one"), tar(b"two"));
    }

    #[test]
    fn both_names_lead_to_one_file_that_everybody_may_run() {
        let layer = layer(&[("usr/bin/metahook".to_owned(), b"binary".to_vec())]).unwrap();
        let mut archive = tar::Archive::new(layer.as_slice());
        let entries: Vec<_> = archive
            .entries()
            .unwrap()
            .map(|entry| {
                let entry = entry.unwrap();
                let link = entry.link_name().unwrap().map(Cow::into_owned);
                (entry.path().unwrap().into_owned(), entry.header().mode().unwrap(), link)
            })
            .collect();
        assert!(entries.contains(&(Path::new("usr/bin/metahook").into(), 0o755, None)));
        assert!(entries.iter().any(|(path, _, link)| {
            path == Path::new("usr/bin/metacontroller") && link.as_deref() == Some(Path::new("metahook"))
        }));
    }

    #[test]
    fn each_blob_is_named_after_its_bytes() {
        let layout =
            Layout::of_all(&[image(b"one", Architecture::Amd64), image(b"two", Architecture::Arm64)], NAME);
        for (name, bytes) in layout.0.iter().filter(|(name, _)| name.starts_with("blobs")) {
            assert_eq!(name.strip_prefix("blobs/sha256/"), Some(hex(bytes).as_str()));
        }
    }

    #[test]
    fn an_image_of_two_architectures_leads_to_each_by_its_platform() {
        let layout =
            Layout::of_all(&[image(b"one", Architecture::Amd64), image(b"two", Architecture::Arm64)], NAME);
        let read = |name: &str| -> Value {
            let (_, bytes) = layout.0.iter().find(|(file, _)| file == name).unwrap();
            serde_json::from_slice(bytes).unwrap()
        };
        let follow = |descriptor: &Value| {
            let digest = descriptor["digest"].as_str().unwrap().strip_prefix("sha256:").unwrap();
            read(&format!("blobs/sha256/{digest}"))
        };
        let all = follow(&read("index.json")["manifests"][0]);
        let architectures: Vec<Value> = all["manifests"]
            .as_array()
            .unwrap()
            .iter()
            .map(|manifest| {
                let config = follow(&follow(manifest)["config"]);
                assert_eq!(manifest["platform"]["architecture"], config["architecture"]);
                config["architecture"].clone()
            })
            .collect();
        assert_eq!(architectures, ["amd64", "arm64"]);
    }

    #[test]
    fn the_libraries_of_a_program_come_with_it() {
        let needed = libraries(&std::env::current_exe().unwrap()).unwrap();
        assert!(needed.iter().any(|path| path.contains("libc.so")), "{needed:?}");
    }
}
