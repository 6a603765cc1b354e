//! Cases of values in several spellings: numbers, bytes, times.

use acceptance::api::{CONFIG_MAP, DEPLOYMENT, Kind, SERVICE};
use acceptance::fixture::Fixture;
use acceptance::objects::{Composite, Hook, text};
use acceptance::webhook::Webhook;
use anyhow::{Result, ensure};
use serde_json::{Value, json};

use super::cases_lifecycle::is_counted;
use super::cases_values::says;
use super::kit::{DYNAMIC, EACH_WAY, World, config, in_each, worlds};

/// C15: whole numbers as floats, and a number where a text is needed.
pub(crate) async fn c15_whole_floats_settle_and_a_number_for_a_text_fails(test: &mut Fixture) -> Result<()> {
    let worlds = worlds(test, &EACH_WAY, &[&DEPLOYMENT, &SERVICE, &CONFIG_MAP]).await?;
    // As text: a JSON value of Rust's would write them anew.
    let numbers = r#"{
        "status": {"n": 2.0, "f": 1e21, "neg": -0.0},
        "children": [
            {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "x"}, "spec": {
                "replicas": 3.0, "selector": {"matchLabels": {"app": "x"}},
                "template": {"metadata": {"labels": {"app": "x"}}, "spec": {"containers": [
                    {"name": "web", "image": "web", "ports": [{"name": "http", "containerPort": 8080.0}]}
                ]}}
            }},
            {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "x"}, "spec": {
                "selector": {"app": "x"}, "ports": [{"port": 8080.0, "targetPort": "http"}]
            }}
        ]
    }"#;
    for world in &worlds {
        world.answers_text(test, numbers).await?;
    }
    in_each(test, &worlds, &DEPLOYMENT, "x", |it| it["spec"]["replicas"] == 3 && is_counted(it)).await?;
    in_each(test, &worlds, &SERVICE, "x", |it| it["spec"]["ports"][0]["port"] == 8080).await?;
    for world in &worlds {
        world.is_quiet(test, &[&DEPLOYMENT, &SERVICE]).await?;
        let bad = config("bad", &json!({ "n": 5 }));
        world.answers(test, json!([bad, config("good", &json!({ "n": "5" }))])).await?;
        world.objects(test, &CONFIG_MAP).until("good", "made", |_| true).await?;
        world.is_bounded(test, |event| says(event, &["ConfigMap", "/bad: ", "string"])).await?;
    }
    Ok(())
}
/// C24: bytes and texts that a hook copies from a related object.
pub(crate) async fn c24_bytes_that_a_hook_copies_arrive_as_they_were(test: &mut Fixture) -> Result<()> {
    let worlds = worlds(test, &EACH_WAY, &[&CONFIG_MAP]).await?;
    let copies = Webhook::serve(|asked| {
        if asked.path == "/customize" {
            return json!({ "relatedResources": [{ "apiVersion": "v1", "resource": "configmaps", "names": ["src"] }] }).into();
        }
        let related = asked.body["related"]["ConfigMap.v1"].as_object().into_iter().flatten().next();
        let Some((_, source)) = related else { return json!({ "status": {}, "children": [] }).into() };
        let mut copy = config("copy", &source["data"]);
        copy["binaryData"] = source["binaryData"].clone();
        json!({ "status": {}, "children": [copy] }).into()
    })
    .await?;
    let bytes = serde_json::to_value(k8s_openapi::ByteString((0..=u8::MAX).collect()))?;
    let hazards = "\u{1f980} a\u{2028}b <&> \u{0} \u{7f}";
    for world in &worlds {
        let mut source = config("src", &json!({ "words": hazards }));
        source["binaryData"] = json!({ "bytes": bytes });
        test.make(&world.objects(test, &CONFIG_MAP), source).await?;
        customizes(test, world, &copies).await?;
        world.answers(test, json!([])).await?;
    }
    let is_same = |it: &Value| it["binaryData"]["bytes"] == bytes && it["data"]["words"] == hazards;
    in_each(test, &worlds, &CONFIG_MAP, "copy", is_same).await?;
    for world in &worlds {
        world.is_quiet(test, &[&CONFIG_MAP]).await?;
        let copy = world.objects(test, &CONFIG_MAP).get("copy").await?;
        let record = "/metadata/annotations/metacontroller.k8s.io~1last-applied-configuration";
        if world.way.1 == DYNAMIC {
            let record = text(&copy, record);
            ensure!(record.contains(r"a\u2028b \u003c\u0026\u003e"), "not as Go writes it: {record}");
            let record: Value = serde_json::from_str(record)?;
            ensure!(is_same(&record), "{record}");
        }
    }
    Ok(())
}

/// From now on a webhook answers in place of the echo, and says what the world's parents see besides their children.
async fn customizes(test: &mut Fixture, world: &World, webhook: &Webhook) -> Result<()> {
    let hook = |path| Hook::webhook(&webhook.url(path)).version("v2");
    let asked = Composite::named("any").customized_by(hook("/customize")).json();
    let hooks = json!({ "spec": { "hooks": asked["spec"]["hooks"] } });
    test.controllers().merge(&world.controller, &hooks).await?;
    world.is_synced_by(test, hook("/sync")).await
}

/// C13: times as other languages spell them.
pub(crate) async fn c13_a_time_in_another_spelling_is_refused_or_settles(test: &mut Fixture) -> Result<()> {
    let lease = Kind::new("coordination.k8s.io", "v1", "Lease", "leases");
    let worlds = worlds(test, &EACH_WAY, &[&lease, &CONFIG_MAP]).await?;
    let children = |time: &str| {
        let spec = json!({ "renewTime": time });
        json!([
            { "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": { "name": "lease" }, "spec": spec },
            config("beside", &json!({ "time": time })),
        ])
    };
    for world in &worlds {
        let time = "1970-01-01T00:00:00.000Z"; // `new Date(0).toISOString()`
        world.answers(test, children(time)).await?;
        world.objects(test, &CONFIG_MAP).until("beside", "made", |_| true).await?;
        world.is_bounded(test, |event| says(event, &["/lease: ", "parsing time", time])).await?;
    }
    for time in ["1970-01-01T00:00:01.000000Z", "1970-01-01T00:00:02.000000+00:00"] {
        for world in &worlds {
            world.answers(test, children(time)).await?;
        }
        let stored = time.replace("+00:00", "Z");
        in_each(test, &worlds, &lease, "lease", |it| it["spec"]["renewTime"] == stored).await?;
        for world in &worlds {
            world.is_quiet(test, &[&lease, &CONFIG_MAP]).await?;
        }
    }
    Ok(())
}
