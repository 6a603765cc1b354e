//! Lines of a hook's log: text, or JSON with a level, as the SDK's logger and loggers of other languages write it.

use std::borrow::Cow;

use serde::Deserialize;

/// How loud a line is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Level {
    Error,
    Warn,
    Info,
    Debug,
    Trace,
}

/// One line, as it is logged.
#[derive(Debug, PartialEq, Eq)]
pub struct LogLine<'a> {
    pub level: Level,
    pub message: Cow<'a, str>,
}

#[derive(Deserialize)]
struct Json<'a> {
    #[serde(borrow)]
    level: Cow<'a, str>,
    #[serde(borrow, alias = "msg")]
    message: Cow<'a, str>,
}

impl<'a> LogLine<'a> {
    /// A line that is a JSON object with a known `level`, and with `message` or `msg`; any other is a text of the level info.
    pub fn of(line: &'a str) -> Self {
        let json = line.trim_start().starts_with('{').then(|| serde_json::from_str::<Json<'a>>(line).ok());
        let known = json.flatten().and_then(|json| Some((level(&json.level)?, json.message)));
        let (level, message) = known.unwrap_or((Level::Info, Cow::Borrowed(line)));
        Self { level, message }
    }
}

fn level(name: &str) -> Option<Level> {
    Some(match name.to_ascii_lowercase().as_str() {
        "error" | "fatal" | "critical" => Level::Error,
        "warn" | "warning" => Level::Warn,
        "info" | "notice" => Level::Info,
        "debug" => Level::Debug,
        "trace" => Level::Trace,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_with_a_level_has_that_and_any_other_is_info() {
        for (line, level, message) in [
            (r#"{"level":"warn","message":"a \"b\""}"#, Level::Warn, "a \"b\""),
            (r#"{"time":1,"level":"ERROR","msg":"gone","n":[1]}"#, Level::Error, "gone"),
            (r#" {"level":"trace","message":""}"#, Level::Trace, ""),
            ("plain", Level::Info, "plain"),
            (r#"{"level":"loud","message":"m"}"#, Level::Info, r#"{"level":"loud","message":"m"}"#),
            (r#"{"level":"warn"}"#, Level::Info, r#"{"level":"warn"}"#),
            (r#"{"level":3,"message":"m"}"#, Level::Info, r#"{"level":3,"message":"m"}"#),
            (
                r#"{"level":"warn","message":"m"} and more"#,
                Level::Info,
                r#"{"level":"warn","message":"m"} and more"#,
            ),
            ("{", Level::Info, "{"),
        ] {
            assert_eq!(LogLine::of(line), LogLine { level, message: message.into() }, "{line}");
        }
        let deep = format!("{{\"level\":\"warn\",\"message\":\"m\",\"x\":{}", "[".repeat(100_000));
        assert_eq!(LogLine::of(&deep).level, Level::Info);
    }
}
