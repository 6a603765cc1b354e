//! What a cluster is given: the manifests as a folder and in one file, the chart, and krew's manifest of the command.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use image::archive::{Archive, Effort, gzip};
use image::hex;
use serde::Deserialize;

use crate::{Release, VERSION, files, packed_folder, read};

/// Files of `manifests` that are parts of a release of their own.
const APART: [&str; 2] = ["helm", "krew"];

#[derive(Deserialize)]
struct Kustomization {
    resources: Vec<String>,
    images: Vec<KustomizedImage>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct KustomizedImage {
    new_tag: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Chart {
    name: String,
    version: String,
    app_version: String,
}

pub(crate) fn add(release: &mut Release, workspace: &Path, repository: &str) -> Result<()> {
    let manifests = workspace.join("manifests");
    let kustomization: Kustomization = yaml(&manifests.join("kustomization.yaml"))?;
    for image in &kustomization.images {
        has_version("manifests/kustomization.yaml", "newTag", &image.new_tag)?;
    }
    release.insert("install.yaml".to_owned(), in_one_file(&manifests, &kustomization.resources)?);
    release.insert("metahook-manifests.tar.gz".to_owned(), folder(&manifests)?);
    let chart: Chart = yaml(&manifests.join("helm/Chart.yaml"))?;
    has_version("manifests/helm/Chart.yaml", "version", &chart.version)?;
    has_version("manifests/helm/Chart.yaml", "appVersion", &chart.app_version)?;
    let packed = packed_folder(&manifests.join("helm"), &chart.name)?;
    release.insert(format!("{}-{VERSION}.tgz", chart.name), packed);
    let plugin = String::from_utf8(read(&manifests.join("krew/metahook.yaml"))?)?;
    let plugin = krew(&plugin, release, repository)?;
    release.insert("metahook.yaml".to_owned(), plugin.into_bytes());
    Ok(())
}

fn has_version(file: &str, field: &str, found: &str) -> Result<()> {
    ensure!(
        found == VERSION,
        "{file} has {field} {found}, and Cargo.toml has version {VERSION}: write {VERSION} into {field}"
    );
    Ok(())
}

/// The resources of the kustomization, for `kubectl apply --server-side -f`.
fn in_one_file(manifests: &Path, resources: &[String]) -> Result<Vec<u8>> {
    let mut all = String::new();
    for resource in resources {
        let text = String::from_utf8(read(&manifests.join(resource))?)?;
        if !all.is_empty() && !text.starts_with("---") {
            all.push_str("---\n");
        }
        all.push_str(text.trim_end());
        all.push('\n');
    }
    let image = format!("image: {}\n", image::NAME);
    ensure!(all.contains(&image), "manifests/statefulset.yaml has no `{}`", image.trim_end());
    Ok(all.into_bytes())
}

/// The folder, for `kubectl apply --server-side -k`.
fn folder(manifests: &Path) -> Result<Vec<u8>> {
    let mut tar = Archive::new();
    for path in files(manifests)? {
        let inner = path.strip_prefix(manifests)?;
        if !APART.iter().any(|apart| inner.starts_with(apart)) {
            let inner = inner.to_str().context("a path is no UTF-8")?;
            tar.file(&format!("metahook-manifests/{inner}"), &read(&path)?)?;
        }
    }
    gzip(&tar.finish()?, Effort::Much)
}

/// Puts the digest of each archive in the place of the zeros below its address.
fn krew(plugin: &str, release: &Release, repository: &str) -> Result<String> {
    let mut lines = Vec::new();
    let mut archive = None;
    for line in plugin.lines().skip_while(|line| line.starts_with('#')) {
        let line = line.replace("REPOSITORY", repository).replace("VERSION", VERSION);
        if let Some((_, address)) = line.split_once("uri: ") {
            archive = address.rsplit('/').next().map(str::to_owned);
        }
        let Some((indent, _)) = line.split_once("sha256: ") else {
            lines.push(line);
            continue;
        };
        let name = archive.take().context("krew's manifest has a digest without an address before it")?;
        match release.get(&name) {
            Some(content) => lines.push(format!("{indent}sha256: \"{}\"", hex(content))),
            None => anyhow::bail!("krew's manifest names {name}, which this release does not have"),
        }
    }
    Ok(lines.join("\n") + "\n")
}

fn yaml<T: for<'de> Deserialize<'de>>(path: &Path) -> Result<T> {
    let text = String::from_utf8(read(path)?)?;
    serde_saphyr::from_str(&text).with_context(|| format!("{} cannot be read", path.display()))
}
