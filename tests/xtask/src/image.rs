//! `cargo xtask image`: the server as an OCI image, made without Docker and the same byte for byte each time.

use std::fs;
use std::io::Write;
use std::path::PathBuf;

use acceptance::paths;
use anyhow::{Context, Result};
use flate2::{Compression, GzBuilder};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tar::{EntryType, Header};

use crate::cargo::{cargo, run};

/// What the manifests call it.
pub(crate) const NAME: &str = concat!("metahook/metahook:", env!("CARGO_PKG_VERSION"));

/// Nobody in particular, and not root: the user Metacontroller's image runs as.
const USER: u64 = 65532;

/// Builds the server and writes `target/image`, an OCI image layout, and the same as one file beside it.
pub(crate) fn build() -> Result<PathBuf> {
    let folder = paths::target()?.join("image");
    let binary = fs::read(binary()?).context("the server that was just built cannot be read")?;
    let layout = Layout::of(&layer(&binary)?)?;
    if folder.exists() {
        fs::remove_dir_all(&folder).with_context(|| format!("{} cannot be made anew", folder.display()))?;
    }
    for (name, bytes) in &layout.0 {
        let path = folder.join(name);
        fs::create_dir_all(path.parent().unwrap_or(&folder))?;
        fs::write(&path, bytes).with_context(|| format!("{} cannot be written", path.display()))?;
    }
    let file = folder.with_extension("tar");
    fs::write(&file, layout.tar()?).with_context(|| format!("{} cannot be written", file.display()))?;
    Ok(folder)
}

/// Builds the image and says what it is.
pub(crate) fn run_command() -> Result<()> {
    let folder = build()?;
    let file = folder.with_extension("tar");
    let bytes = fs::read(&file)?;
    println!("{NAME}  {} bytes  sha256:{}", bytes.len(), hex(&bytes));
    println!("OCI layout: {}", folder.display());
    println!(
        "one file:   {} (docker load -i, ctr images import, skopeo copy oci-archive:)",
        file.display()
    );
    Ok(())
}

/// The server as one static binary. No path of this machine gets into it.
fn binary() -> Result<PathBuf> {
    let target = host()?;
    let home = std::env::var_os("CARGO_HOME")
        .map(PathBuf::from)
        .or_else(|| Some(std::env::home_dir()?.join(".cargo")));
    let mut flags = vec![
        "-Ctarget-feature=+crt-static".to_owned(),
        "-Clink-arg=-Wl,--build-id=none".to_owned(),
    ];
    for (path, name) in [(home, "/cargo"), (Some(paths::workspace()), "/metahook")] {
        flags.extend(path.map(|path| format!("--remap-path-prefix={}={name}", path.display())));
    }
    println!("building the server, optimized and static");
    run(cargo(&[
        "build",
        "--release",
        "--locked",
        "--package",
        "metahook",
        "--target",
        &target,
    ])
    .env("CARGO_ENCODED_RUSTFLAGS", flags.join("\x1f")))?;
    Ok(paths::target()?.join(target).join("release/metahook"))
}

/// The target that rustc builds for by itself.
fn host() -> Result<String> {
    let version = std::process::Command::new("rustc")
        .arg("-vV")
        .current_dir(paths::workspace())
        .output();
    let version = String::from_utf8(version.context("cannot run rustc")?.stdout)?;
    let line = version.lines().find_map(|line| line.strip_prefix("host: "));
    Ok(line.context("rustc does not say what it builds for")?.to_owned())
}

/// The root file system: the binary under both of its names, and who runs it.
fn layer(binary: &[u8]) -> Result<Vec<u8>> {
    let mut tar = tar::Builder::new(Vec::new());
    for folder in ["etc/", "usr/", "usr/bin/"] {
        append(&mut tar, EntryType::Directory, folder, 0o755, &[])?;
    }
    append(
        &mut tar,
        EntryType::Regular,
        "etc/group",
        0o644,
        format!("nonroot:x:{USER}:\n").as_bytes(),
    )?;
    let passwd = format!("nonroot:x:{USER}:{USER}::/:/sbin/nologin\n");
    append(
        &mut tar,
        EntryType::Regular,
        "etc/passwd",
        0o644,
        passwd.as_bytes(),
    )?;
    append(&mut tar, EntryType::Regular, "usr/bin/metahook", 0o755, binary)?;
    let mut link = header(EntryType::Symlink, 0o777, 0);
    tar.append_link(&mut link, "usr/bin/metacontroller", "metahook")?;
    Ok(tar.into_inner()?)
}

fn append(
    tar: &mut tar::Builder<Vec<u8>>,
    kind: EntryType,
    path: &str,
    mode: u32,
    content: &[u8],
) -> Result<()> {
    let mut header = header(kind, mode, content.len() as u64);
    Ok(tar.append_data(&mut header, path, content)?)
}

/// Nothing in it depends on when and by whom it is made.
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

/// Files of an OCI image layout by name.
struct Layout(Vec<(String, Vec<u8>)>);

impl Layout {
    fn of(layer: &[u8]) -> Result<Self> {
        let mut gzip = GzBuilder::new().mtime(0).write(Vec::new(), Compression::best());
        gzip.write_all(layer)?;
        let packed = gzip.finish()?;
        let config = json!({
            "architecture": match std::env::consts::ARCH { "x86_64" => "amd64", "aarch64" => "arm64", other => other },
            "os": "linux",
            "created": "1970-01-01T00:00:00Z",
            "config": {
                "User": format!("{USER}:{USER}"),
                "Entrypoint": ["/usr/bin/metahook"],
                "Cmd": ["serve", "--health-probe-bind-address=:8081"],
                "WorkingDir": "/",
            },
            "rootfs": {"type": "layers", "diff_ids": [format!("sha256:{}", hex(layer))]},
        });
        let config = config.to_string().into_bytes();
        let manifest = json!({
            "schemaVersion": 2,
            "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "config": descriptor("application/vnd.oci.image.config.v1+json", &config),
            "layers": [descriptor("application/vnd.oci.image.layer.v1.tar+gzip", &packed)],
        });
        let manifest = manifest.to_string().into_bytes();
        let mut named = descriptor("application/vnd.oci.image.manifest.v1+json", &manifest);
        named["annotations"] = json!({"org.opencontainers.image.ref.name": NAME, "io.containerd.image.name": format!("docker.io/{NAME}")});
        let index = json!({
            "schemaVersion": 2,
            "mediaType": "application/vnd.oci.image.index.v1+json",
            "manifests": [named],
        });
        let blob = |bytes: Vec<u8>| (format!("blobs/sha256/{}", hex(&bytes)), bytes);
        Ok(Self(vec![
            (
                "oci-layout".to_owned(),
                br#"{"imageLayoutVersion":"1.0.0"}"#.to_vec(),
            ),
            ("index.json".to_owned(), index.to_string().into_bytes()),
            blob(manifest),
            blob(config),
            blob(packed),
        ]))
    }

    fn tar(&self) -> Result<Vec<u8>> {
        let mut tar = tar::Builder::new(Vec::new());
        for folder in ["blobs/", "blobs/sha256/"] {
            append(&mut tar, EntryType::Directory, folder, 0o755, &[])?;
        }
        for (name, bytes) in &self.0 {
            append(&mut tar, EntryType::Regular, name, 0o644, bytes)?;
        }
        Ok(tar.into_inner()?)
    }
}

fn descriptor(kind: &str, bytes: &[u8]) -> Value {
    json!({"mediaType": kind, "digest": format!("sha256:{}", hex(bytes)), "size": bytes.len()})
}

fn hex(bytes: &[u8]) -> String {
    Sha256::digest(bytes)
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect::<Vec<_>>()
        .concat()
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;
    use std::path::Path;

    use super::*;

    #[test]
    fn the_same_binary_makes_the_same_image() {
        let image = |binary: &[u8]| Layout::of(&layer(binary).unwrap()).unwrap().tar().unwrap();
        assert_eq!(image(b"one"), image(b"one"));
        assert_ne!(image(b"one"), image(b"two"));
    }

    #[test]
    fn both_names_lead_to_one_file_that_everybody_may_run() {
        let layer = layer(b"binary").unwrap();
        let mut archive = tar::Archive::new(layer.as_slice());
        let entries: Vec<_> = archive
            .entries()
            .unwrap()
            .map(|entry| {
                let entry = entry.unwrap();
                let (path, link) = (
                    entry.path().unwrap().into_owned(),
                    entry.link_name().unwrap().map(Cow::into_owned),
                );
                (path, entry.header().mode().unwrap(), link)
            })
            .collect();
        assert!(entries.contains(&(Path::new("usr/bin/metahook").into(), 0o755, None)));
        assert!(entries.iter().any(|(path, _, link)| {
            path == Path::new("usr/bin/metacontroller") && link.as_deref() == Some(Path::new("metahook"))
        }));
    }

    #[test]
    fn each_blob_is_named_after_its_bytes() {
        let layout = Layout::of(b"layer").unwrap();
        for (name, bytes) in layout.0.iter().filter(|(name, _)| name.starts_with("blobs")) {
            assert_eq!(name.strip_prefix("blobs/sha256/"), Some(hex(bytes).as_str()));
        }
    }
}
