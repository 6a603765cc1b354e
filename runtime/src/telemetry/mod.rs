//! Telemetry: log lines on stderr, probes and metrics over HTTP.

pub(crate) mod http;
pub(crate) mod metrics;

use std::error::Error;

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

pub(crate) fn start_log(format: Format, level: &str) -> Result<(), LogError> {
    let filter = EnvFilter::try_new(level).map_err(|error| LogError::Level(level.to_owned(), error))?;
    let lines = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    match format {
        Format::Json => lines.json().flatten_event(true).with_current_span(false).try_init(),
        Format::Text => lines.with_ansi(false).try_init(),
    }
    .map_err(LogError::Twice)
}

/// Now, as Kubernetes writes times.
pub(crate) fn timestamp() -> String {
    jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// An error with its causes, in one line.
pub(crate) fn error_chain(error: &dyn Error) -> String {
    let causes = std::iter::successors(Some(error), |&error| error.source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}
