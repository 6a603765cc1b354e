//! Modules as `metahook pack` stores them: compressed, and in several ConfigMaps where one is too small.

use std::fs;
use std::path::PathBuf;

use acceptance::api::{CONFIG_MAP, POD};
use acceptance::fixture::{Fixture, guest};
use acceptance::objects::{has_condition, is_true, module, text};
use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use crate::kept::{goes_on, kept, starts_anew};
use crate::modules;

/// The guest `hello` with so much noise at its end that it fits into no ConfigMap, whatever compresses it.
fn large(seed: u64) -> Result<Vec<u8>> {
    const NOISE: usize = (2 << 20) + (100 << 10);
    let mut state = seed;
    let noise = std::iter::repeat_with(|| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        state.to_be_bytes()[0]
    });
    let mut module = guest("hello")?;
    // A custom section: its id, its length in LEB128, the length of its name, its name, and anything.
    module.push(0);
    let mut length = NOISE + 2;
    while length > 0x7f {
        module.push(u8::try_from(length & 0x7f)? | 0x80);
        length >>= 7;
    }
    module.push(u8::try_from(length)?);
    module.extend([1, b'x']);
    module.extend(noise.take(NOISE));
    Ok(module)
}

fn file(test: &Fixture, name: &str, bytes: &[u8]) -> Result<PathBuf> {
    let path = test.plane().scratch().join(format!("{}-{name}", test.name()));
    fs::write(&path, bytes)?;
    Ok(path)
}

/// `metahook pack`, byte for byte: what it prints, and what it says besides.
async fn pack(test: &mut Fixture, module: &[u8], more: &[&str]) -> Result<(String, String)> {
    let path = file(test, "module.wasm", module)?.display().to_string();
    let namespace = test.name().to_owned();
    let args = ["pack", &path, "hook", "-n", &namespace, "--no-optimize"];
    test.server().run(&[&args[..], more].concat()).await
}

async fn apply(test: &mut Fixture, module: &[u8]) -> Result<String> {
    let kubeconfig = format!("--kubeconfig={}", test.plane().kubeconfig().display());
    Ok(pack(test, module, &["--apply", &kubeconfig]).await?.1)
}

/// The ConfigMaps of a module, in the order in which they are to be written.
async fn manifests(test: &mut Fixture, module: &[u8]) -> Result<Vec<Value>> {
    let (printed, _) = pack(test, module, &[]).await?;
    let list: Value = serde_json::from_str(&printed)?;
    list["items"].as_array().cloned().context("no list was printed")
}

/// Names of ConfigMaps that hold parts.
async fn parts(test: &Fixture) -> Result<Vec<String>> {
    let maps = test.config_maps().list().await?;
    let names = maps.iter().map(|map| text(map, "/metadata/name").to_owned());
    Ok(names.filter(|name| name.starts_with("hook-")).collect())
}

async fn host(test: &mut Fixture) -> Result<()> {
    test.define_kind().await?;
    test.serve()?;
    let hook = test.hook("hook");
    test.host(test.controller().making(&POD, "Recreate").synced_by(hook)).await?;
    test.create(test.parent("a")).await?;
    Ok(())
}

/// The digest that `pack` says.
fn digest(said: &str) -> Result<String> {
    let line = said.lines().find_map(|line| line.strip_prefix("sha256: "));
    line.map(|digest| format!("sha256:{digest}")).with_context(|| format!("no digest in {said}"))
}

async fn until_serves(test: &Fixture, digest: &str) -> Result<()> {
    let serves = |cc: &Value| {
        is_true(cc, "Ready")
            && is_true(cc, "ModulesLoaded")
            && text(cc, "/status/hooks/sync/digest") == digest
    };
    test.until_controller(&format!("{digest} is called"), serves).await.map(drop)
}

pub(crate) async fn a_module_of_several_parts_is_applied_served_and_replaced(
    test: &mut Fixture,
) -> Result<()> {
    let first = digest(&apply(test, &large(1)?).await?)?;
    let before = parts(test).await?;
    ensure!(before.len() == 3, "{before:?}");
    host(test).await?;
    until_serves(test, &first).await?;
    test.pods().until("a", "made", |_| true).await?;

    let said = apply(test, &large(2)?).await?;
    let second = digest(&said)?;
    ensure!(second != first, "both have the digest {first}");
    until_serves(test, &second).await?;
    let after = parts(test).await?;
    ensure!(
        after.len() == 3 && after.iter().all(|part| !before.contains(part)),
        "{after:?} after {before:?}"
    );
    let fields = format!("involvedObject.name={},reason=ModuleRefused", test.name());
    let refused = test.within(&acceptance::api::EVENT).list_where(&fields).await?;
    ensure!(refused.is_empty(), "something else was to be loaded on the way: {refused:?}");

    // One that fits leaves no part behind.
    let hello = digest(&apply(test, &guest("hello")?).await?)?;
    until_serves(test, &hello).await?;
    ensure!(parts(test).await?.is_empty(), "{:?}", parts(test).await?);
    Ok(())
}

/// A server that starts finds the next version without one of its parts.
pub(crate) async fn a_module_of_several_parts_is_kept_whole(test: &mut Fixture) -> Result<()> {
    let first = large(1)?;
    let digest = digest(&apply(test, &first).await?)?;
    host(test).await?;
    until_serves(test, &digest).await?;
    let controller = test.controllers().get(test.name()).await?;
    let three = |all: &[Value]| kept(all, &controller) == vec![modules::digest(&first); 3];
    test.within_default(&CONFIG_MAP).until_all("three parts are kept", three).await?;
    test.server().stop().await?;
    apply(test, &large(2)?).await?;
    let stored = parts(test).await?;
    test.config_maps().delete(stored.last().context("no part is stored")?).await?;
    starts_anew(test).await?;
    let runs = |cc: &Value| {
        goes_on(cc)
            && has_condition(cc, "ModulesLoaded", "False", "PartNotFound")
            && text(cc, "/status/hooks/sync/digest") == digest
    };
    test.until_controller("the kept version runs", runs).await?;
    test.create(test.parent("b")).await?;
    test.pods().until("b", "made", |_| true).await.map(drop)
}

pub(crate) async fn parts_are_waited_for_and_two_versions_are_never_mixed(test: &mut Fixture) -> Result<()> {
    let (wanted, other) = (manifests(test, &large(1)?).await?, manifests(test, &large(2)?).await?);
    let place = test.config_maps();
    let [first, second, third, index] = &wanted[..] else { anyhow::bail!("{} manifests", wanted.len()) };
    for map in [index, third, first] {
        test.make(&place, map.clone()).await?;
    }
    host(test).await?;
    let waits = |cc: &Value| has_condition(cc, "ModulesLoaded", "False", "PartNotFound");
    test.until_controller("PartNotFound", waits).await?;

    // Another version's part under the name of the one that is missing.
    let mut wrong = other[1].clone();
    wrong["metadata"] = second["metadata"].clone();
    test.make(&place, wrong).await?;
    let refuses = |cc: &Value| {
        has_condition(cc, "ModulesLoaded", "False", "ModuleInvalid")
            || has_condition(cc, "ModulesLoaded", "False", "DigestMismatch")
    };
    test.until_controller("the mixture is refused", refuses).await?;
    let name = text(second, "/metadata/name").to_owned();
    place.delete(&name).await?;
    test.make(&place, second.clone()).await?;
    test.pods().until("a", "made", |_| true).await?;
    test.until_controller("its module", |cc| is_true(cc, "ModulesLoaded")).await?;
    Ok(())
}

pub(crate) async fn kubectl_applies_what_pack_prints(test: &mut Fixture) -> Result<()> {
    let (printed, said) = pack(test, &large(1)?, &[]).await?;
    let manifests = file(test, "manifests.json", printed.as_bytes())?.display().to_string();
    test.plane().kubectl().run(&["apply", "--server-side", "-f", &manifests]).await?;
    host(test).await?;
    until_serves(test, &digest(&said)?).await
}

pub(crate) async fn a_module_with_index_and_bytes_under_its_key_is_refused(test: &mut Fixture) -> Result<()> {
    test.store("hook", &guest("hello")?).await?;
    host(test).await?;
    test.pods().until("a", "made", |_| true).await?;
    let index = json!({ "data": { "hook.wasm.json": "{}" } });
    test.config_maps().merge("hook", &index).await?;
    let refuses =
        |cc: &Value| has_condition(cc, "ModulesLoaded", "False", "KeysConflict") && is_true(cc, "Ready");
    test.until_controller("KeysConflict", refuses).await?;
    Ok(())
}

/// Stored under the default key with these first bytes, and served.
async fn serves(test: &mut Fixture, stored: &[u8], first: &[u8]) -> Result<()> {
    ensure!(stored.starts_with(first), "it begins with {:?}", stored.get(..4));
    let place = test.config_maps();
    test.make(&place, module("hook", stored)).await?;
    host(test).await?;
    test.pods().until("a", "made", |_| true).await?;
    let cc = test.until_controller("its module", |cc| is_true(cc, "ModulesLoaded")).await?;
    ensure!(cc["status"]["hooks"]["sync"]["size"] == guest("hello")?.len(), "{}", cc["status"]);
    Ok(())
}

pub(crate) async fn a_module_in_gzip_is_served(test: &mut Fixture) -> Result<()> {
    use std::io::Write;
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    encoder.write_all(&guest("hello")?)?;
    serves(test, &encoder.finish()?, &[0x1f, 0x8b]).await
}

pub(crate) async fn a_module_in_zstd_is_served(test: &mut Fixture) -> Result<()> {
    let one = manifests(test, &guest("hello")?).await?;
    let stored: k8s_openapi::ByteString = serde_json::from_value(one[0]["binaryData"]["hook.wasm"].clone())?;
    ensure!(one.len() == 1 && stored.0.len() < guest("hello")?.len() / 2, "{} bytes", stored.0.len());
    serves(test, &stored.0, &[0x28, 0xb5, 0x2f, 0xfd]).await
}
