//! Telemetry: log lines on stderr, probes and metrics over HTTP.

pub(crate) mod hosted;
pub mod http;
pub mod metrics;
pub(crate) mod open_watches;
mod process;
pub(crate) mod reconcile_span;
mod server_metrics;
pub(crate) mod standard;
pub(crate) mod webhooks;

use std::borrow::Cow;
use std::error::Error;
use std::io::{self, Write};

use metahook_core::controller_metrics::{Metric, MetricKind};
pub use metahook_core::error_chain;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder};
use prometheus_client::metrics::MetricType;
use tracing_subscriber::EnvFilter;

/// Format of log lines: JSON for machines, text for people.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    Json,
    Text,
}

#[derive(Debug, thiserror::Error)]
pub enum LogError {
    #[error(
        "--log-level: {0:?} is no log level: write error, warn, info, debug or trace, or a filter like metahook=debug"
    )]
    Level(String, #[source] tracing_subscriber::filter::ParseError),
    #[error("logging has been set up already")]
    Twice(#[source] Box<dyn Error + Send + Sync>),
}

/// The labels of all series of one controller.
type ControllerLabels = [(&'static str, String); 2];

/// Labels by name.
type Labels<'a> = Vec<(&'static str, &'a str)>;

fn labels<'a>(own: &'a [(&'static str, String)], more: &[(&'static str, &'a str)]) -> Labels<'a> {
    own.iter().map(|(name, value)| (*name, value.as_str())).chain(more.iter().copied()).collect()
}

fn describe<'a>(
    encoder: &'a mut DescriptorEncoder<'_>,
    name: &'a str,
    metric: Metric,
) -> Result<MetricEncoder<'a>, std::fmt::Error> {
    let kind = match metric.kind() {
        MetricKind::Counter => MetricType::Counter,
        MetricKind::Gauge => MetricType::Gauge,
        MetricKind::Histogram => MetricType::Histogram,
    };
    encoder.encode_descriptor(name, metric.meaning(), None, kind)
}

pub fn start_log(format: Format, level: &str) -> Result<(), LogError> {
    let filter = EnvFilter::try_new(level).map_err(|error| LogError::Level(level.to_owned(), error))?;
    let lines = tracing_subscriber::fmt().with_env_filter(filter);
    match format {
        Format::Json => {
            lines.with_writer(io::stderr).json().flatten_event(true).with_current_span(false).try_init()
        }
        Format::Text => lines.with_writer(|| EscapedStderr).with_ansi(false).try_init(),
    }
    .map_err(LogError::Twice)
}

/// Lines as text: an event is one line, and what hooks and objects put into it commands no terminal.
struct EscapedStderr;

impl Write for EscapedStderr {
    /// Gets one event at once.
    fn write(&mut self, event: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(event);
        let line = text.strip_suffix('\n').unwrap_or(&text);
        let escaped = format!("{}\n", escape(line));
        io::stderr().lock().write_all(escaped.as_bytes())?;
        Ok(event.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}

/// A terminal obeys it, or it turns the direction of text.
pub fn is_harmful(c: char) -> bool {
    let turns =
        matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    (c.is_control() && c != '\t') || turns || matches!(c, '\u{2028}' | '\u{2029}')
}

/// The text with escapes for line breaks, control characters, and marks that turn the direction of text.
pub fn escape(text: &str) -> Cow<'_, str> {
    if !text.contains(is_harmful) {
        return text.into();
    }
    let escaped = |c: char| if is_harmful(c) { c.escape_default().to_string() } else { c.to_string() };
    text.chars().map(escaped).collect::<String>().into()
}

/// Now, as Kubernetes writes times.
pub fn timestamp() -> String {
    jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

#[cfg(test)]
mod dashboard_tests;
#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_text_stays_one_and_commands_no_terminal() {
        assert!(matches!(escape("grüße, 你好 🦀\"'\\"), Cow::Borrowed(_)));
        let hostile = "a\rb\nc\u{1b}[2Jd\u{2028}e\u{202e}f\u{2066}g\u{7f}h\u{9b}i";
        let expected = r"a\rb\nc\u{1b}[2Jd\u{2028}e\u{202e}f\u{2066}g\u{7f}h\u{9b}i";
        assert_eq!(escape(hostile), expected);
    }
}
