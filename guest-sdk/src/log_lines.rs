//! The macros of the `log` crate: each line is JSON on stderr, with its level, as the server reads it.

use log::{LevelFilter, Log, Metadata, Record};
use serde_json::json;
use std::io::{Write, stderr};

struct Stderr;

impl Log for Stderr {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &Record<'_>) {
        drop(stderr().write_all(line(record).as_bytes())); // nowhere else to say that this failed
    }

    fn flush(&self) {}
}

fn line(record: &Record<'_>) -> String {
    let level = record.level().as_str().to_ascii_lowercase();
    let line = json!({ "level": level, "target": record.target(), "message": record.args().to_string() });
    line.to_string() + "\n"
}

/// Makes `log::info!` and the other macros of `log` write their lines to stderr as JSON,
/// `{"level":"info","message":"…","target":"…"}`. The server logs each line with its level. Call it at the beginning of
/// `main`. When you call it several times, the first call counts.
///
/// Needs the feature `log`.
///
/// ```
/// metahook_sdk::log_to_stderr(log::LevelFilter::Info);
/// log::warn!("no image for {}", "web");
/// ```
pub fn log_to_stderr(most: LevelFilter) {
    if log::set_logger(&Stderr).is_ok() {
        log::set_max_level(most);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use log::Level;

    #[test]
    fn a_line_is_json_with_a_level() {
        let written = |level, text: &str| {
            line(&Record::builder().level(level).target("t").args(format_args!("{text}")).build())
        };
        let warned = "{\"level\":\"warn\",\"message\":\"a\\n\\\"b\\\"\",\"target\":\"t\"}\n";
        assert_eq!(written(Level::Warn, "a\n\"b\""), warned);
        assert!(written(Level::Trace, "").starts_with("{\"level\":\"trace\","));
    }
}
