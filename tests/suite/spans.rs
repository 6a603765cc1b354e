//! Spans for an OpenTelemetry collector: what it gets, who else names the trace, and what a collector that is gone costs.

use std::collections::BTreeMap;

use acceptance::api::CONFIG_MAP;
use acceptance::fixture::Fixture;
use acceptance::objects::{Hook, text};
use acceptance::wait::{PATIENCE, until};
use acceptance::webhook::{Answer, Asked, Webhook};
use anyhow::{Context, Result, ensure};
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value as AnyValue;
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message as _;
use serde_json::{Value, json};

use crate::pages::symptoms;

/// The environment of servers that send their spans soon.
pub(crate) fn send_to(test: &mut Fixture, collector: &str) {
    let server = test.server();
    server.variable("OTEL_EXPORTER_OTLP_ENDPOINT", collector);
    server.variable("OTEL_BSP_SCHEDULE_DELAY", "100");
}

async fn hook() -> Result<Webhook> {
    let answer = |asked: &Asked| match text(&asked.body, "/parent/metadata/name") {
        "bad" => Answer::text("out of order").with_status(500),
        name => json!({ "status": {}, "children": [
            { "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": name } },
        ] })
        .into(),
    };
    Webhook::serve(answer).await
}

async fn host(test: &mut Fixture, hook: &Webhook) -> Result<()> {
    test.serve()?;
    let controller = test.controller().making(&CONFIG_MAP, "InPlace");
    test.host(controller.synced_by(Hook::webhook(&hook.url("/")))).await?;
    Ok(())
}

/// The spans that the collector has, and the resource of each.
fn spans(collector: &Webhook) -> Result<Vec<(Span, BTreeMap<String, String>)>> {
    let mut all = Vec::new();
    for asked in collector.asked() {
        ensure!(asked.path == "/v1/traces", "asked for {}", asked.path);
        ensure!(asked.headers.get("content-type").is_some_and(|is| is == "application/x-protobuf"));
        let request = ExportTraceServiceRequest::decode(asked.bytes)?;
        for of_resource in request.resource_spans {
            let resource = attributes(&of_resource.resource.context("no resource")?.attributes);
            let spans = of_resource.scope_spans.into_iter().flat_map(|of_scope| of_scope.spans);
            all.extend(spans.map(|span| (span, resource.clone())));
        }
    }
    Ok(all)
}

fn attributes(all: &[opentelemetry_proto::tonic::common::v1::KeyValue]) -> BTreeMap<String, String> {
    let text = |value: &Option<AnyValue>| match value {
        Some(AnyValue::StringValue(text)) => text.clone(),
        other => format!("{other:?}"),
    };
    all.iter()
        .map(|one| (one.key.clone(), text(&one.value.as_ref().and_then(|value| value.value.clone()))))
        .collect()
}

fn hex(id: &[u8]) -> String {
    id.iter().fold(String::new(), |hex, byte| hex + &format!("{byte:02x}"))
}

/// Waits for the span of a reconcile of the trace; gives it with the spans below it.
async fn until_sent(collector: &Webhook, trace: &str) -> Result<(Span, Vec<Span>)> {
    until(&format!("the collector has the trace {trace}"), PATIENCE, || async {
        let all = spans(collector)?;
        let count = all.len();
        let of_trace = all.into_iter().map(|(span, _)| span).filter(|span| hex(&span.trace_id) == trace);
        let (root, steps): (Vec<_>, Vec<_>) = of_trace.partition(|span| span.parent_span_id.is_empty());
        Ok(root.into_iter().next().map(|root| (root, steps)).ok_or_else(|| format!("{count} spans")))
    })
    .await
}

pub(crate) async fn a_collector_gets_a_span_for_each_reconcile_and_step(test: &mut Fixture) -> Result<()> {
    test.define_kind().await?;
    let (hook, folder) = (hook().await?, tempfile::tempdir()?);
    let authority = folder.path().join("authority.pem");
    let collector = Webhook::serve_tls(&authority, |_| Answer::text("")).await?;
    send_to(test, &collector.url(""));
    test.server().variable("OTEL_EXPORTER_OTLP_CERTIFICATE", &authority.to_string_lossy());
    host(test, &hook).await?;
    test.create(test.parent("good")).await?;

    // The webhook is asked with the trace and the span of the reconcile.
    let asked = hook.until_asked("about the parent", |_| true).await?;
    let parent = asked.headers.get("traceparent").context("no traceparent")?;
    let [version, trace, span, flags] = parent.split('-').collect::<Vec<_>>()[..] else {
        anyhow::bail!("{parent}");
    };
    ensure!((version, flags) == ("00", "01"), "{parent}");
    let (root, steps) = until_sent(&collector, trace).await?;
    ensure!(root.name == "reconcile" && hex(&root.span_id) == span, "{root:?}");
    let found = attributes(&root.attributes);
    let is = |key: &str, value: &str| found.get(key).is_some_and(|found| found == value);
    ensure!(is("k8s.object.name", "good") && is("metahook.end", "wrote"), "{found:?}");
    ensure!(is("metahook.controller", &format!("CompositeController {}", test.name())), "{found:?}");
    for name in ["call sync hook", "plan", "create object"] {
        let step = steps.iter().find(|step| step.name == name).context(name)?;
        ensure!(step.parent_span_id == root.span_id, "{step:?}");
        let is_within = |time| (root.start_time_unix_nano..=root.end_time_unix_nano).contains(&time);
        ensure!(
            is_within(step.start_time_unix_nano) && is_within(step.end_time_unix_nano),
            "{root:?} {step:?}"
        );
        ensure!(step.start_time_unix_nano <= step.end_time_unix_nano, "{step:?}");
    }
    let (_, resource) = &spans(&collector)?[0];
    ensure!(resource.get("service.name").is_some_and(|name| name == "metahook"), "{resource:?}");

    // An Event names the trace of the reconcile that failed.
    test.create(test.parent("bad")).await?;
    let event = test.until_event("bad", "SyncError", |_| true).await?;
    symptoms::is_shown(test, "Sync error:", &symptoms::parent(test, "bad")).await?;
    let trace = text(&event, "/metadata/annotations/metahook.dev~1trace-id").to_owned();
    let (root, _) = until_sent(&collector, &trace).await?;
    let status = root.status.context("no status")?;
    ensure!(status.code == 2 && status.message.contains("out of order"), "{status:?}");
    Ok(())
}

pub(crate) async fn a_collector_that_is_gone_holds_nothing_up(test: &mut Fixture) -> Result<()> {
    test.define_kind().await?;
    let hook = hook().await?;
    let collector = Webhook::answering(Answer::status(503)).await?;
    send_to(test, &collector.url(""));
    host(test, &hook).await?;
    for number in 0..20 {
        test.create(test.parent(&format!("p-{number}"))).await?;
    }
    for number in 0..20 {
        test.config_maps().until(&format!("p-{number}"), "made", |_: &Value| true).await?;
    }
    collector.until_asked("for spans", |_| true).await?;
    let warning = "spans were not sent to the collector";
    test.server().until_log("the warning", |line| line.contains(warning)).await?;
    ensure!(test.server().stop().await?.success(), "the server does not end well");
    test.server().start()
}

pub(crate) async fn without_a_collector_nobody_is_shown_a_trace(test: &mut Fixture) -> Result<()> {
    test.define_kind().await?;
    let hook = hook().await?;
    host(test, &hook).await?;
    test.create(test.parent("bad")).await?;
    let asked = hook.until_asked("about the parent", |_| true).await?;
    ensure!(!asked.headers.contains_key("traceparent"), "{:?}", asked.headers);
    let event = test.until_event("bad", "SyncError", |_| true).await?;
    ensure!(event.pointer("/metadata/annotations").is_none(), "{event}");
    Ok(())
}
