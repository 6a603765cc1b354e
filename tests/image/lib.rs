//! OCI image of the server: the same binary makes the same bytes at any time and on any machine.
#![allow(clippy::indexing_slicing, reason = "only JSON is indexed: what is not there is null")]

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use flate2::{Compression, GzBuilder};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tar::{Builder, EntryType, Header};

/// Name of the image in the manifests.
pub const NAME: &str = concat!("metahook/metahook:", env!("CARGO_PKG_VERSION"));

/// The user that Metacontroller's image runs as; not root.
const USER: u64 = 65532;

const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";

/// An image layout, file by file.
#[derive(Debug)]
pub struct Layout(Vec<(String, Vec<u8>)>);

/// How long packing may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effort {
    /// For a test that uses it once.
    Little,
    /// For an image that is pulled.
    Much,
}

impl Layout {
    /// The image of the server, with the shared libraries that it needs, if it needs any.
    pub fn of_server(binary: &Path, effort: Effort) -> Result<Self> {
        Self::with_files(binary, Vec::new(), effort)
    }

    /// An image with other files besides, by their paths without the first slash.
    pub fn with_files(binary: &Path, mut files: Vec<(String, Vec<u8>)>, effort: Effort) -> Result<Self> {
        for library in libraries(binary)? {
            let content = fs::read(&library).with_context(|| format!("{library} cannot be read"))?;
            files.push((library.trim_start_matches('/').to_owned(), content));
        }
        let content = fs::read(binary).with_context(|| format!("{} cannot be read", binary.display()))?;
        files.push(("usr/bin/metahook".to_owned(), content));
        Self::of_layer(&layer(&files)?, effort)
    }

    fn of_layer(layer: &[u8], effort: Effort) -> Result<Self> {
        let level = match effort {
            Effort::Little => Compression::fast(),
            Effort::Much => Compression::best(),
        };
        let mut gzip = GzBuilder::new().mtime(0).write(Vec::new(), level);
        gzip.write_all(layer)?;
        let packed = gzip.finish()?;
        let config = json!({
            "architecture": match std::env::consts::ARCH { "x86_64" => "amd64", "aarch64" => "arm64", other => other },
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
        let mut named = descriptor(MANIFEST, &manifest);
        named["annotations"] = json!({
            "org.opencontainers.image.ref.name": NAME,
            "io.containerd.image.name": format!("docker.io/{NAME}"),
        });
        let index = json!({
            "schemaVersion": 2,
            "mediaType": "application/vnd.oci.image.index.v1+json",
            "manifests": [named],
        });
        let blob = |bytes: Vec<u8>| (format!("blobs/sha256/{}", hex(&bytes)), bytes);
        Ok(Self(vec![
            ("oci-layout".to_owned(), br#"{"imageLayoutVersion":"1.0.0"}"#.to_vec()),
            ("index.json".to_owned(), index.to_string().into_bytes()),
            blob(manifest),
            blob(config),
            blob(packed),
        ]))
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
        let mut tar = Builder::new(Vec::new());
        for folder in ["blobs/", "blobs/sha256/"] {
            append(&mut tar, EntryType::Directory, folder, 0o755, &[])?;
        }
        for (name, bytes) in &self.0 {
            append(&mut tar, EntryType::Regular, name, 0o644, bytes)?;
        }
        Ok(tar.into_inner()?)
    }
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
    let mut tar = Builder::new(Vec::new());
    let group = format!("nonroot:x:{USER}:\n");
    let passwd = format!("nonroot:x:{USER}:{USER}::/:/sbin/nologin\n");
    append(&mut tar, EntryType::Regular, "etc/group", 0o644, group.as_bytes())?;
    append(&mut tar, EntryType::Regular, "etc/passwd", 0o644, passwd.as_bytes())?;
    for (path, content) in files {
        append(&mut tar, EntryType::Regular, path, 0o755, content)?;
    }
    tar.append_link(&mut header(EntryType::Symlink, 0o777, 0), "usr/bin/metacontroller", "metahook")?;
    Ok(tar.into_inner()?)
}

fn append(tar: &mut Builder<Vec<u8>>, kind: EntryType, path: &str, mode: u32, content: &[u8]) -> Result<()> {
    let mut header = header(kind, mode, content.len() as u64);
    Ok(tar.append_data(&mut header, path, content)?)
}

/// It holds no time and no user of the machine that makes it.
fn header(kind: EntryType, mode: u32, size: u64) -> Header {
    let mut header = Header::new_ustar();
    header.set_entry_type(kind);
    header.set_mode(mode);
    header.set_size(size);
    header.set_mtime(0);
    header.set_uid(0);
    header.set_gid(0);
    header
}

fn descriptor(kind: &str, bytes: &[u8]) -> Value {
    json!({"mediaType": kind, "digest": format!("sha256:{}", hex(bytes)), "size": bytes.len()})
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;

    use super::*;

    fn image(binary: &[u8]) -> Vec<u8> {
        let files = [("usr/bin/metahook".to_owned(), binary.to_vec())];
        let layout = Layout::of_layer(&layer(&files).unwrap(), Effort::Much).unwrap();
        layout.tar().unwrap()
    }

    #[test]
    fn the_same_binary_makes_the_same_image() {
        assert_eq!(image(b"one"), image(b"one"));
        assert_ne!(image(b"one"), image(b"two"));
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
        let layout = Layout::of_layer(b"layer", Effort::Little).unwrap();
        for (name, bytes) in layout.0.iter().filter(|(name, _)| name.starts_with("blobs")) {
            assert_eq!(name.strip_prefix("blobs/sha256/"), Some(hex(bytes).as_str()));
        }
    }

    #[test]
    fn the_libraries_of_a_program_come_with_it() {
        let needed = libraries(&std::env::current_exe().unwrap()).unwrap();
        assert!(needed.iter().any(|path| path.contains("libc.so")), "{needed:?}");
    }
}
