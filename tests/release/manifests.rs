//! What a cluster is given: the manifests as a folder and in one file, the chart, and krew's manifest of the command.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use image::hex;
use serde::Deserialize;

use crate::{Places, Release, VERSION, packed_files, read};

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

pub(crate) fn add(release: &mut Release, workspace: &Path, places: &Places<'_>) -> Result<()> {
    let manifests = workspace.join("manifests");
    let kustomization: Kustomization = yaml(&manifests.join("kustomization.yaml"))?;
    let chart: Chart = yaml(&manifests.join("helm/Chart.yaml"))?;
    let statefulset = String::from_utf8(read(&manifests.join("statefulset.yaml"))?)?;
    check_versions(&kustomization, &chart, &statefulset)?;
    release
        .insert("install.yaml".to_owned(), in_one_file(&manifests, &kustomization.resources, places.image)?);
    release.insert("metahook-manifests.tar.gz".to_owned(), folder(&manifests, places.image)?);
    let name = format!("{}-{VERSION}.tgz", chart.name);
    release.insert(name, self::chart(&manifests.join("helm"), &chart.name, places.image)?);
    let plugin = String::from_utf8(read(&manifests.join("krew/metahook.yaml"))?)?;
    let plugin = krew(&plugin, release, places.repository)?;
    release.insert("metahook.yaml".to_owned(), plugin.into_bytes());
    Ok(())
}

/// Checks each field that repeats the version of Cargo.toml. The error names all fields that have another one.
fn check_versions(kustomization: &Kustomization, chart: &Chart, statefulset: &str) -> Result<()> {
    let repository = image::NAME.trim_end_matches(VERSION);
    let tags = kustomization.images.iter().map(|image| ("kustomization.yaml", "newTag", &*image.new_tag));
    let of_chart = [("version", &*chart.version), ("appVersion", &*chart.app_version)];
    let of_chart = of_chart.map(|(field, version)| ("helm/Chart.yaml", field, version));
    let images = statefulset.lines().filter_map(|line| line.trim().strip_prefix("image: "));
    let images = images.filter_map(|image| image.strip_prefix(repository));
    let images = images.map(|tag| ("statefulset.yaml", "image", tag));
    let others = tags.chain(of_chart).chain(images).filter(|(_, _, found)| *found != VERSION);
    let others: Vec<String> =
        others.map(|(file, field, found)| format!("manifests/{file}: {field} has {found}")).collect();
    ensure!(
        others.is_empty(),
        "Cargo.toml has version {VERSION}: write it into each of these fields\n{}",
        others.join("\n")
    );
    Ok(())
}

/// The resources of the kustomization, for `kubectl apply --server-side -f`.
fn in_one_file(manifests: &Path, resources: &[String], image: &str) -> Result<Vec<u8>> {
    let mut all = String::new();
    for resource in resources {
        let text = String::from_utf8(read(&manifests.join(resource))?)?;
        if !all.is_empty() && !text.starts_with("---") {
            all.push_str("---\n");
        }
        all.push_str(text.trim_end());
        all.push('\n');
    }
    replaced(&all, &format!("image: {}\n", image::NAME), &format!("image: {image}:{VERSION}\n"))
}

/// The folder, for `kubectl apply --server-side -k`.
fn folder(manifests: &Path, image: &str) -> Result<Vec<u8>> {
    packed_files(manifests, "metahook-manifests", |path, content| {
        if APART.iter().any(|apart| path.starts_with(apart)) {
            return Ok(None);
        }
        if path != Path::new("kustomization.yaml") {
            return Ok(Some(content));
        }
        let named = format!("\n  newName: {image}\n  newTag: ");
        replaced(&String::from_utf8(content)?, "\n  newTag: ", &named).map(Some)
    })
}

fn chart(folder: &Path, name: &str, image: &str) -> Result<Vec<u8>> {
    packed_files(folder, name, |path, content| {
        if path != Path::new("values.yaml") {
            return Ok(Some(content));
        }
        let named = format!("\n  repository: {image}\n");
        replaced(&String::from_utf8(content)?, "\n  repository: metahook/metahook\n", &named).map(Some)
    })
}

/// A text with another word in the place of one that it has to have once.
fn replaced(text: &str, word: &str, by: &str) -> Result<Vec<u8>> {
    ensure!(text.matches(word).count() == 1, "a manifest has not exactly one `{}`", word.trim());
    Ok(text.replace(word, by).into_bytes())
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_field_with_another_version_is_named() {
        let check = |version: &str| {
            let images = vec![KustomizedImage { new_tag: version.to_owned() }];
            let kustomization = Kustomization { resources: Vec::new(), images };
            let [name, chart, app] = ["metacontroller-helm", version, version].map(str::to_owned);
            let chart = Chart { name, version: chart, app_version: app };
            let statefulset = format!("containers:\n- name: a\n  image: metahook/metahook:{version}\n");
            check_versions(&kustomization, &chart, &statefulset)
        };
        check(VERSION).unwrap();
        let error = check("0.0.1").unwrap_err().to_string();
        let named: Vec<&str> = error.lines().skip(1).collect();
        assert_eq!(
            named,
            [
                "manifests/kustomization.yaml: newTag has 0.0.1",
                "manifests/helm/Chart.yaml: version has 0.0.1",
                "manifests/helm/Chart.yaml: appVersion has 0.0.1",
                "manifests/statefulset.yaml: image has 0.0.1",
            ]
        );
    }
}
