//! Metrics as a strict reader of the `OpenMetrics` format takes them: whatever is not as the format has it is an error.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result, bail, ensure};

/// Labels by name.
pub type Labels = BTreeMap<String, String>;

/// Result of one scrape.
#[derive(Debug, Default)]
pub struct Scrape {
    /// The types of the families, without the suffixes of their samples.
    pub types: BTreeMap<String, String>,
    /// By the name of the sample and its labels.
    pub samples: BTreeMap<(String, Labels), f64>,
}

impl Scrape {
    /// The values of the samples with this name and these labels, among others.
    pub fn values<'a>(&'a self, name: &'a str, labels: &'a [(&str, &str)]) -> impl Iterator<Item = f64> + 'a {
        let of = move |((found, has), value): (&(String, Labels), &f64)| {
            let is_it = found == name
                && labels.iter().all(|(label, value)| has.get(*label).is_some_and(|it| it == value));
            is_it.then_some(*value)
        };
        self.samples.iter().filter_map(of)
    }

    /// The sum of these values; `None`: there are none.
    pub fn sum(&self, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
        self.values(name, labels).reduce(|sum, value| sum + value)
    }

    /// # Errors
    /// The text is none of the format: the line is named.
    pub fn parse(text: &str) -> Result<Self> {
        let mut scrape = Self::default();
        let (mut family, mut closed, mut ended) = (None::<(String, String)>, BTreeSet::new(), false);
        for line in text.lines() {
            ensure!(!ended, "there is more after the end: {line}");
            if line == "# EOF" {
                ended = true;
            } else if let Some(rest) = line.strip_prefix("# TYPE ") {
                let (name, kind) = rest.split_once(' ').with_context(|| format!("no type: {line}"))?;
                ensure!(
                    matches!(kind, "counter" | "gauge" | "histogram" | "unknown"),
                    "an unknown type: {line}"
                );
                ensure!(closed.insert(name.to_owned()), "a family comes twice: {line}");
                scrape.types.insert(name.to_owned(), kind.to_owned());
                family = Some((name.to_owned(), kind.to_owned()));
            } else if line.starts_with("# HELP ") || line.starts_with("# UNIT ") {
            } else {
                let (name, labels, value) = sample(line).with_context(|| format!("no sample: {line}"))?;
                let (family, kind) = family.as_ref().with_context(|| format!("of no family: {line}"))?;
                let suffix = name
                    .strip_prefix(family.as_str())
                    .with_context(|| format!("of another family than {family}: {line}"))?;
                let fits = match kind.as_str() {
                    "counter" => suffix == "_total" && value >= 0.0,
                    "histogram" => matches!(suffix, "_sum" | "_count" | "_bucket") && value >= 0.0,
                    _ => suffix.is_empty(),
                };
                ensure!(fits && !value.is_nan(), "no {kind} has this: {line}");
                ensure!(
                    scrape.samples.insert((name, labels), value).is_none(),
                    "a sample comes twice: {line}"
                );
            }
        }
        ensure!(ended, "the text breaks off");
        scrape.check_histograms()?;
        Ok(scrape)
    }

    /// Buckets only grow, and the last one has all.
    fn check_histograms(&self) -> Result<()> {
        for (family, _) in self.types.iter().filter(|(_, kind)| *kind == "histogram") {
            let mut series: BTreeMap<Labels, Vec<(f64, f64)>> = BTreeMap::new();
            let bucket = format!("{family}_bucket");
            for ((_, labels), value) in self.samples.iter().filter(|((name, _), _)| *name == bucket) {
                let mut labels = labels.clone();
                let bound =
                    labels.remove("le").with_context(|| format!("{family} has a bucket without le"))?;
                let bound = if bound == "+Inf" { f64::INFINITY } else { bound.parse()? };
                series.entry(labels).or_default().push((bound, *value));
            }
            for (labels, mut buckets) in series {
                buckets.sort_by(|a, b| a.0.total_cmp(&b.0));
                let grows = buckets.is_sorted_by(|a, b| a.0 < b.0 && a.1 <= b.1);
                let count = self.samples.get(&(format!("{family}_count"), labels.clone()));
                let last = buckets.last().context("no bucket")?;
                if !grows || last.0.is_finite() || Some(&last.1) != count {
                    bail!("{family}{labels:?}: {buckets:?}, of {count:?}");
                }
            }
        }
        Ok(())
    }
}

/// Name, labels and value of a line.
fn sample(line: &str) -> Option<(String, Labels, f64)> {
    let end = line.find(['{', ' '])?;
    let (name, mut rest) = line.split_at_checked(end)?;
    let is_word = |text: &str| {
        !text.is_empty()
            && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
            && !text.starts_with(|c: char| c.is_ascii_digit())
    };
    let mut labels = Labels::new();
    if let Some(inside) = rest.strip_prefix('{') {
        rest = inside;
        while !rest.starts_with('}') {
            let (label, more) = rest.split_once("=\"")?;
            let (value, more) = quoted(more)?;
            if !is_word(label) || labels.insert(label.to_owned(), value).is_some() {
                return None;
            }
            rest = match more.strip_prefix(',') {
                // Nothing may follow it but another label.
                Some(more) if more.starts_with('}') => return None,
                Some(more) => more,
                None => more.starts_with('}').then_some(more)?,
            };
        }
        rest = rest.strip_prefix('}')?;
    }
    let value = rest.strip_prefix(' ')?.parse().ok()?;
    is_word(name).then(|| (name.to_owned(), labels, value))
}

/// A text up to its closing quotation mark, and what follows.
fn quoted(text: &str) -> Option<(String, &str)> {
    let (mut value, mut chars) = (String::new(), text.char_indices());
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return Some((value, text.get(at + 1..)?)),
            '\\' => value.push(match chars.next()?.1 {
                'n' => '\n',
                c @ ('"' | '\\') => c,
                _ => return None,
            }),
            c => value.push(c),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = r#"# HELP a A thing.
# TYPE a counter
a_total{x="1",y="a \"b\" {,}"} 2
a_total{x="2"} 0.5
# TYPE b gauge
b -3
# TYPE h histogram
h_sum 2.5
h_count 3
h_bucket{le="0.5"} 1
h_bucket{le="+Inf"} 3
# EOF
"#;

    #[test]
    fn what_is_told_is_read() {
        let scrape = Scrape::parse(GOOD).unwrap();
        assert_eq!(scrape.sum("a_total", &[]), Some(2.5));
        assert_eq!(scrape.sum("a_total", &[("y", r#"a "b" {,}"#)]), Some(2.0));
        assert_eq!(scrape.sum("b", &[]), Some(-3.0));
        assert_eq!(scrape.sum("c", &[]), None);
    }

    #[test]
    fn what_the_format_does_not_have_is_refused() {
        for (from, to) in [
            ("# EOF\n", ""),
            ("# EOF", "# EOF\nb 1"),
            ("# TYPE b gauge\n", ""),
            ("# TYPE b gauge", "# TYPE a gauge"),
            ("# TYPE b gauge", "# TYPE b number"),
            ("a_total{x=\"2\"} 0.5", "a{x=\"2\"} 0.5"),
            ("a_total{x=\"2\"} 0.5", "a_total{x=\"2\",} 0.5"),
            ("a_total{x=\"2\"} 0.5", "a_total{x=\"2\" 0.5"),
            ("a_total{x=\"2\"} 0.5", "a_total{x=\"2\",x=\"3\"} 0.5"),
            ("a_total{x=\"2\"} 0.5", "a_total{x=\"2\"} -1"),
            ("a_total{x=\"2\"} 0.5", "a_total{x=\"2\"} much"),
            ("b -3", "b -3\nb 4"),
            ("b -3", "b NaN"),
            ("h_count 3", "h_count 4"),
            ("h_bucket{le=\"0.5\"} 1", "h_bucket{le=\"0.5\"} 4"),
            ("h_bucket{le=\"0.5\"} 1", "h_bucket 1"),
            ("h_bucket{le=\"+Inf\"} 3\n", ""),
        ] {
            let bad = GOOD.replacen(from, to, 1);
            assert!(bad != GOOD && Scrape::parse(&bad).is_err(), "{from} -> {to}");
        }
    }
}
