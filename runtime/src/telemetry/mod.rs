//! What is told about the server while it runs.

pub(crate) mod http;
pub(crate) mod log;
pub(crate) mod metrics;
pub(crate) mod webhooks;

/// Now, as Kubernetes writes times.
pub(crate) fn timestamp() -> String {
    jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}
