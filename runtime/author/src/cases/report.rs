//! Reports of cases for other programs: `JUnit`'s XML, JSON, and the lines that GitHub shows at a file.

use std::fmt::Write;
use std::path::PathBuf;
use std::time::Duration;

use serde_json::{Value, json};

/// A case that ran.
#[derive(Debug)]
pub struct Ran {
    pub name: String,
    pub took: Duration,
    pub instructions: u64,
    /// Lines that the hook logged.
    pub log: Vec<String>,
    /// Files that were blessed.
    pub wrote: Vec<PathBuf>,
    /// The error that its reconciles end in.
    pub error: Option<String>,
    /// Failures, each with the file that it is about.
    pub failures: Vec<(PathBuf, String)>,
}

/// All cases as one suite.
pub fn junit(all: &[Ran]) -> String {
    let failed = all.iter().filter(|one| !one.failures.is_empty()).count();
    let seconds: f64 = all.iter().map(|one| one.took.as_secs_f64()).sum();
    let mut out = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
    let mut line = |text: String| out.push_str(&text);
    line(format!(
        "<testsuite name=\"metahook test\" tests=\"{}\" failures=\"{failed}\" time=\"{seconds:.3}\">\n",
        all.len()
    ));
    for Ran { name, took, failures, .. } in all {
        let (name, seconds) = (xml(name), took.as_secs_f64());
        if failures.is_empty() {
            line(format!("  <testcase name=\"{name}\" time=\"{seconds:.3}\"/>\n"));
            continue;
        }
        line(format!("  <testcase name=\"{name}\" time=\"{seconds:.3}\">\n"));
        for (file, message) in failures {
            let (file, first) =
                (xml(&file.display().to_string()), xml(message.lines().next().unwrap_or_default()));
            line(format!("    <failure message=\"{file}: {first}\">{}</failure>\n", xml(message)));
        }
        line("  </testcase>\n".to_owned());
    }
    line("</testsuite>\n".to_owned());
    out
}

/// All cases as one object.
pub fn json(all: &[Ran]) -> Value {
    let case = |ran: &Ran| {
        let failures = ran.failures.iter().map(|(file, message)| json!({ "file": file, "message": message }));
        json!({
            "name": ran.name,
            "passed": ran.failures.is_empty(),
            "seconds": ran.took.as_secs_f64(),
            "instructions": ran.instructions,
            "failures": failures.collect::<Vec<_>>(),
            "wrote": ran.wrote,
            "error": ran.error,
            "log": ran.log,
        })
    };
    let failed = all.iter().filter(|one| !one.failures.is_empty()).count();
    let cases: Vec<_> = all.iter().map(case).collect();
    json!({ "passed": all.len() - failed, "failed": failed, "cases": cases })
}

/// A line for each failure.
pub fn github(ran: &Ran) -> String {
    let mut out = String::new();
    for (file, message) in &ran.failures {
        let (file, title) = (property(&file.display().to_string()), property(&ran.name));
        // Writing to a text never fails.
        writeln!(out, "::error file={file},title={title}::{}", data(message)).unwrap_or_default();
    }
    out
}

/// A text in XML; what XML has no words for becomes a question mark.
fn xml(text: &str) -> String {
    let escaped = |c: char| match c {
        '&' => "&amp;".to_owned(),
        '<' => "&lt;".to_owned(),
        '>' => "&gt;".to_owned(),
        '"' => "&quot;".to_owned(),
        '\n' | '\t' => c.to_string(),
        c if c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}') => "?".to_owned(),
        c => c.to_string(),
    };
    text.chars().map(escaped).collect::<Vec<_>>().concat()
}

fn data(text: &str) -> String {
    text.replace('%', "%25").replace('\r', "%0D").replace('\n', "%0A")
}

fn property(text: &str) -> String {
    data(text).replace(':', "%3A").replace(',', "%2C")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ran(name: &str, failures: &[&str]) -> Ran {
        let failures = failures.iter().map(|text| ("a,b.yaml".into(), (*text).to_owned())).collect();
        let (took, log) = (Duration::from_millis(5), vec!["one".to_owned()]);
        let (wrote, error) = (vec!["w.yaml".into()], Some("boom".to_owned()));
        Ran { name: name.to_owned(), took, instructions: 7, log, wrote, error, failures }
    }

    #[test]
    fn what_is_special_in_xml_is_escaped() {
        let all = [ran("fine", &[]), ran("a<b>&\"c\"", &["one\n- \u{1b}two"])];
        let expected = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuite name=\"metahook test\" tests=\"2\" failures=\"1\" time=\"0.010\">\n  <testcase name=\"fine\" time=\"0.005\"/>\n  <testcase name=\"a&lt;b&gt;&amp;&quot;c&quot;\" time=\"0.005\">\n    <failure message=\"a,b.yaml: one\">one\n- ?two</failure>\n  </testcase>\n</testsuite>\n";
        assert_eq!(junit(&all), expected);
    }

    #[test]
    fn programs_get_all_of_a_case() {
        let said = json(&[ran("fine", &[]), ran("bad", &["why"])]);
        assert_eq!((&said["passed"], &said["failed"]), (&json!(1), &json!(1)));
        let expected = json!({
            "name": "bad", "passed": false, "seconds": 0.005, "instructions": 7, "log": ["one"], "wrote": ["w.yaml"],
            "error": "boom",
            "failures": [{ "file": "a,b.yaml", "message": "why" }],
        });
        assert_eq!(said["cases"][1], expected);
    }

    #[test]
    fn what_is_special_for_github_is_escaped() {
        let line = github(&ran("x: y", &["100%\n::error::z"]));
        assert_eq!(line, "::error file=a%2Cb.yaml,title=x%3A y::100%25%0A::error::z\n");
        assert_eq!(github(&ran("fine", &[])), "");
    }
}
