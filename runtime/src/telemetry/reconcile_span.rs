//! The span of the reconcile that runs: webhooks and Events name its trace, and its end sends it, with a span for each step.
//!
//! The span begins when its trace is first named, else at its end, so that a reconcile that finds nothing to do has none.

use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime};

use http::HeaderValue;
use metahook_core::reconcile::steps::StepTime;
use metahook_core::trace::ReconcileTrace;
use metahook_core::trace::spans::{AttributeValue, SpanFacts, reconcile_span, step_span};
use opentelemetry::trace::{Span as _, SpanContext, Status, TraceContextExt as _, Tracer as _};
use opentelemetry::{Context, KeyValue, Value};
use opentelemetry_sdk::trace::SdkTracer;

tokio::task_local! {
    static CURRENT: Arc<ReconcileSpan>;
}

/// The span of one attempt of a reconcile.
pub(crate) struct ReconcileSpan {
    tracer: SdkTracer,
    began: SystemTime,
    /// Time at which the span began, by the clock of the steps.
    clock: Duration,
    context: OnceLock<Context>,
}

/// The span of the reconcile that this task runs; `None` where no spans are sent.
pub(crate) fn current() -> Option<Arc<ReconcileSpan>> {
    CURRENT.try_with(Arc::clone).ok()
}

/// Runs a reconcile with its span.
pub(crate) async fn within<F: Future>(span: Option<ReconcileSpan>, reconcile: F) -> F::Output {
    match span {
        Some(span) => CURRENT.scope(Arc::new(span), reconcile).await,
        None => reconcile.await,
    }
}

impl ReconcileSpan {
    /// It begins now. `clock`: now, by the clock of the steps.
    pub(crate) fn new(tracer: SdkTracer, clock: Duration) -> Self {
        Self { tracer, began: SystemTime::now(), clock, context: OnceLock::new() }
    }

    /// Value of the header `traceparent` of requests to webhooks.
    pub(crate) fn traceparent(&self) -> Option<HeaderValue> {
        let named = self.named();
        let (trace, span, flags) = (named.trace_id(), named.span_id(), named.trace_flags().to_u8());
        HeaderValue::try_from(format!("00-{trace}-{span}-{flags:02x}")).ok()
    }

    /// The id of the trace; `None` where it is not sent, as only some are.
    pub(crate) fn trace_id(&self) -> Option<String> {
        let named = self.named();
        named.is_sampled().then(|| named.trace_id().to_string())
    }

    /// Whether the trace is sent, as only some are.
    pub(crate) fn is_sent(&self) -> bool {
        self.context().span().is_recording()
    }

    /// Sends the span and those of its steps.
    pub(crate) fn end(&self, trace: &ReconcileTrace, times: &[StepTime]) {
        let context = self.context();
        let span = context.span();
        for (step, time) in trace.steps.iter().zip(times) {
            let SpanFacts { name, attributes, error } = made(step_span(step));
            let step = self.tracer.span_builder(name).with_start_time(self.time(time.began));
            let step = step.with_attributes(attributes.into_iter().map(key_value));
            let mut step = step.start_with_context(&self.tracer, context);
            if let Some(error) = error {
                step.set_status(Status::error(error));
            }
            step.end_with_timestamp(self.time(time.ended));
        }
        let SpanFacts { attributes, error, .. } = made(reconcile_span(trace));
        span.set_attributes(attributes.into_iter().map(key_value));
        if let Some(error) = error {
            span.set_status(Status::error(error));
        }
        span.end();
    }

    fn named(&self) -> SpanContext {
        self.context().span().span_context().clone()
    }

    fn context(&self) -> &Context {
        self.context.get_or_init(|| {
            let span = self.tracer.span_builder("reconcile").with_start_time(self.began);
            Context::new().with_span(span.start_with_context(&self.tracer, &Context::new()))
        })
    }

    fn time(&self, clock: Duration) -> SystemTime {
        self.began + clock.saturating_sub(self.clock)
    }
}

#[cfg(test)]
thread_local! {
    /// Attributes that this thread made.
    pub(crate) static ATTRIBUTES: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

/// Returns the facts of a span as they are; tests count its attributes.
fn made(facts: SpanFacts) -> SpanFacts {
    #[cfg(test)]
    ATTRIBUTES.set(ATTRIBUTES.get() + facts.attributes.len());
    facts
}

fn key_value((name, value): (&'static str, AttributeValue)) -> KeyValue {
    let value = match value {
        AttributeValue::Text(text) => Value::from(text),
        AttributeValue::Number(number) => Value::from(i64::try_from(number).unwrap_or(i64::MAX)),
    };
    KeyValue::new(name, value)
}
