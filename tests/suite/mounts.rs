//! Files of mounts: their sources, their changes, their bounds, and that none of them lies on a disk.

use std::fs;

use acceptance::api::{CONFIG_MAP, Kind, SECRET, SERVICE_ACCOUNT};
use acceptance::expected_messages as expected;
use acceptance::fixture::Fixture;
use acceptance::objects::{Hook, condition, config_map, has_condition, is_true, text};
use acceptance::rights::kubeconfig_of;
use anyhow::{Result, bail, ensure};
use k8s_openapi::ByteString;
use serde_json::{Value, json};

const RBAC: &str = "rbac.authorization.k8s.io";

/// Answers with what the file `who` in its first mount says: in a child, and in the parent's status.
fn tells() -> Result<Vec<u8>> {
    let child = config_map("child", json!({}), json!({ "said": "WHO" }));
    answers_with_file(&json!({ "children": [child], "status": { "said": "WHO" } }))
}

/// The file's content takes the place of two WHOs; it must be good inside of JSON.
pub(crate) fn answers_with_file(answer: &Value) -> Result<Vec<u8>> {
    let (answer, file) = (answer.to_string(), "who");
    let pieces: Vec<&str> = answer.split("WHO").collect();
    let [first, second, third] = pieces[..] else { bail!("not two WHOs in {answer}") };
    let escape = |text: &str| text.bytes().fold(String::new(), |all, byte| all + &format!("\\{byte:02x}"));
    let module = format!(
        r#"(module
             (import "wasi_snapshot_preview1" "path_open"
               (func $open (param i32 i32 i32 i32 i32 i64 i64 i32 i32) (result i32)))
             (import "wasi_snapshot_preview1" "fd_read" (func $read (param i32 i32 i32 i32) (result i32)))
             (import "wasi_snapshot_preview1" "fd_write" (func $write (param i32 i32 i32 i32) (result i32)))
             (memory (export "memory") 1)
             (data (i32.const 512) "{file}") (data (i32.const 1024) "{first}")
             (data (i32.const 2048) "{second}") (data (i32.const 3072) "{third}")
             (func $piece (param $start i32) (param $length i32)
               (i32.store (i32.const 0) (local.get $start))
               (i32.store (i32.const 4) (local.get $length)))
             (func $print (param $start i32) (param $length i32)
               (call $piece (local.get $start) (local.get $length))
               (if (call $write (i32.const 1) (i32.const 0) (i32.const 1) (i32.const 104)) (then unreachable)))
             (func (export "_start")
               (if (call $open (i32.const 3) (i32.const 0) (i32.const 512) (i32.const {file_length}) (i32.const 0)
                     (i64.const 2) (i64.const 0) (i32.const 0) (i32.const 96)) (then unreachable))
               (call $piece (i32.const 8192) (i32.const 4096))
               (if (call $read (i32.load (i32.const 96)) (i32.const 0) (i32.const 1) (i32.const 100)) (then unreachable))
               (call $print (i32.const 1024) (i32.const {first_length}))
               (call $print (i32.const 8192) (i32.load (i32.const 100)))
               (call $print (i32.const 2048) (i32.const {second_length}))
               (call $print (i32.const 8192) (i32.load (i32.const 100)))
               (call $print (i32.const 3072) (i32.const {third_length}))))"#,
        file_length = file.len(),
        first_length = first.len(),
        second_length = second.len(),
        third_length = third.len(),
        first = escape(first),
        second = escape(second),
        third = escape(third),
    );
    Ok(wat::parse_str(module)?)
}

fn greeting(who: &str) -> Value {
    config_map("greeting", json!({}), json!({ "who": who }))
}

fn secret(who: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": { "name": "greeting" },
        "data": { "who": ByteString(who.as_bytes().to_vec()) },
    })
}

fn mounting(test: &Fixture, kind: &str) -> Hook {
    test.hook("hook").mounting("/etc/greeting", kind, test.name(), "greeting")
}

/// A server, a controller with this hook, and a parent `a`.
async fn hosted(test: &mut Fixture, hook: Hook) -> Result<()> {
    test.define_kind().await?;
    test.store("hook", &tells()?).await?;
    test.serve()?;
    test.host(test.controller().making(&CONFIG_MAP, "InPlace").synced_by(hook)).await?;
    test.create(test.parent("a")).await?;
    Ok(())
}

async fn until_said(test: &Fixture, what: &str) -> Result<()> {
    test.config_maps().until("child", what, |child| text(child, "/data/said") == what).await.map(drop)
}

pub(crate) async fn a_mounted_file_is_read_and_a_changed_one_is_read_again(test: &mut Fixture) -> Result<()> {
    let place = test.config_maps();
    test.make(&place, greeting("you")).await?;
    hosted(test, mounting(test, "configMap")).await?;
    until_said(test, "you").await?;
    place.merge("greeting", &greeting("all of you")).await?;
    until_said(test, "all of you").await?;
    test.until_controller("its module", |cc| is_true(cc, "ModulesLoaded")).await?;
    Ok(())
}

pub(crate) async fn a_missing_mount_is_reported_and_heals_and_a_lost_one_is_kept(
    test: &mut Fixture,
) -> Result<()> {
    hosted(test, mounting(test, "configMap")).await?;
    let named = format!("ConfigMap {}/greeting, which is mounted at /etc/greeting", test.name());
    let says = |cc: &Value| {
        has_condition(cc, "ModulesLoaded", "False", "MountNotFound")
            && condition(cc, "ModulesLoaded").is_some_and(|loaded| text(loaded, "/message").contains(&named))
    };
    let waits = |cc: &Value| says(cc) && has_condition(cc, "Ready", "False", "ModuleNotLoaded");
    test.until_controller("not ready: MountNotFound", waits).await?;
    let place = test.config_maps();
    ensure!(place.find("child").await?.is_none(), "a hook was called without its mount");
    test.make(&place, greeting("you")).await?;
    until_said(test, "you").await?;

    place.delete("greeting").await?;
    let goes_on = |cc: &Value| says(cc) && is_true(cc, "Ready");
    test.until_controller("ready, and MountNotFound", goes_on).await?;
    test.create(test.parent("b")).await?;
    test.parents().until("b", "its status", |parent| text(parent, "/status/said") == "you").await?;
    Ok(())
}

pub(crate) async fn a_secret_is_mounted_only_from_where_the_server_may(test: &mut Fixture) -> Result<()> {
    let place = test.within(&SECRET);
    test.make(&place, secret("the secret of this test")).await?;
    hosted(test, mounting(test, "secret")).await?;
    let refused = |cc: &Value| has_condition(cc, "Ready", "False", "InvalidSpec");
    let cc = test.until_controller("not ready: InvalidSpec", refused).await?;
    let why = condition(&cc, "Ready").map_or("", |ready| text(ready, "/message"));
    let names_it = "spec.hooks.sync.wasm.mounts[0].secret.namespace: this server mounts Secrets from nowhere (--mount-secret-namespaces)";
    ensure!(why.starts_with(names_it), "{why}");

    test.server().stop().await?;
    let allowed = format!("--mount-secret-namespaces={}", test.name());
    test.server().flag(&allowed);
    let temporary = test.plane().scratch().join(format!("{}-temporary", test.name()));
    fs::create_dir_all(&temporary)?;
    test.server().variable("TMPDIR", &temporary.to_string_lossy());
    test.server().start()?;
    until_said(test, "the secret of this test").await?;
    ensure!(fs::read_dir(&temporary)?.next().is_none(), "files in {}", temporary.display());
    let log = fs::read_to_string(test.server().log())?;
    ensure!(!log.contains("the secret of this test"), "the log tells a secret");
    let cc = test.controllers().get(test.name()).await?.to_string();
    ensure!(!cc.contains("the secret of this test"), "the controller tells a secret: {cc}");
    Ok(())
}

pub(crate) async fn mounts_above_their_memory_are_refused_and_the_last_good_one_stays(
    test: &mut Fixture,
) -> Result<()> {
    test.server().flag("--mount-memory-max=1Ki");
    let place = test.config_maps();
    test.make(&place, greeting("you")).await?;
    hosted(test, mounting(test, "configMap")).await?;
    until_said(test, "you").await?;

    place.merge("greeting", &greeting(&"x".repeat(1024))).await?;
    // 128 bytes are counted for each file, and its name.
    let refused = expected::mount_memory(&format!("{}/greeting", test.name()), 1024 + 128 + 3, "1Ki");
    let says = |cc: &Value| {
        has_condition(cc, "ModulesLoaded", "False", "MountMemoryExceeded")
            && is_true(cc, "Ready")
            && condition(cc, "ModulesLoaded")
                .is_some_and(|loaded| text(loaded, "/message").starts_with(&refused))
    };
    test.until_controller("ready, and MountMemoryExceeded", says).await?;
    test.create(test.parent("b")).await?;
    test.parents().until("b", "its status", |parent| text(parent, "/status/said") == "you").await?;

    place.merge("greeting", &greeting("all of you")).await?;
    until_said(test, "all of you").await?;
    test.until_controller("its module", |cc| is_true(cc, "ModulesLoaded")).await?;
    Ok(())
}

/// An account that may read one ConfigMap and one Secret by their names, and what else a server needs.
async fn limited(test: &mut Fixture) -> Result<()> {
    let (group, name) = (test.kind().group.clone(), test.name().to_owned());
    let account = json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": { "name": "limited" } });
    test.make(&test.within(&SERVICE_ACCOUNT), account).await?;
    let reads = json!(["get", "list", "watch"]);
    let named = |resource: &str, name: &str| json!({ "apiGroups": [""], "resources": [resource], "resourceNames": [name], "verbs": reads });
    let everywhere = json!([
        { "apiGroups": ["apiextensions.k8s.io"], "resources": ["customresourcedefinitions"], "verbs": reads },
        { "apiGroups": ["metacontroller.k8s.io", group], "resources": ["*"], "verbs": ["get", "list", "watch", "update"] },
        { "apiGroups": [""], "resources": ["events"], "verbs": ["create", "patch"] },
    ]);
    let within = json!([named("configmaps", "hook"), named("secrets", "greeting")]);
    for (role, rules) in [("ClusterRole", everywhere), ("Role", within)] {
        let binding = format!("{role}Binding");
        let object = |kind: &str| json!({ "apiVersion": format!("{RBAC}/v1"), "kind": kind, "metadata": { "name": name } });
        let (mut granted, mut bound) = (object(role), object(&binding));
        granted["rules"] = rules;
        bound["roleRef"] = json!({ "apiGroup": RBAC, "kind": role, "name": name });
        bound["subjects"] = json!([{ "kind": "ServiceAccount", "namespace": name, "name": "limited" }]);
        for (kind, object) in [(role, granted), (&binding, bound)] {
            let kind = Kind::new(RBAC, "v1", kind, &format!("{}s", kind.to_lowercase()));
            let place = if role == "Role" { test.within(&kind) } else { test.everywhere(&kind) };
            test.make(&place, object).await?;
        }
    }
    Ok(())
}

/// The server reaches the API server as a `ServiceAccount` of the test's namespace.
pub(crate) async fn reach_as(test: &mut Fixture, account: &str) -> Result<()> {
    let file = kubeconfig_of(test.plane(), test.name(), account).await?;
    test.server().reach_by(&file);
    Ok(())
}

pub(crate) async fn rights_to_the_named_objects_alone_suffice(test: &mut Fixture) -> Result<()> {
    limited(test).await?;
    reach_as(test, "limited").await?;
    let allowed = format!("--mount-secret-namespaces={}", test.name());
    test.server().flag(&allowed);

    let place = test.within(&SECRET);
    test.make(&place, secret("you")).await?;
    test.define_kind().await?;
    let answer = json!({ "children": [], "status": { "said": "WHO", "again": "WHO" } });
    test.store("hook", &answers_with_file(&answer)?).await?;
    test.serve()?;
    let hook = mounting(test, "secret");
    test.host(test.controller().synced_by(hook)).await?;
    test.create(test.parent("a")).await?;
    let said = |what: &'static str| move |parent: &Value| text(parent, "/status/said") == what;
    test.parents().until("a", "its status", said("you")).await?;
    place.merge("greeting", &secret("all of you")).await?;
    test.parents().until("a", "its next status", said("all of you")).await?;
    Ok(())
}
