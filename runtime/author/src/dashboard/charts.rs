//! Small charts as SVG, which take their colours from the style of the page.

use maud::{Markup, html};

/// A bar of a histogram.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Bar {
    pub(super) label: String,
    pub(super) count: u64,
}

const WIDTH: f64 = 360.0;
const HEIGHT: f64 = 96.0;

/// Height below the bars, where the labels are.
const FOOT: f64 = 16.0;

/// Bars of an equal width, which [`in_bars`] fills.
const BARS: usize = 12;

/// A histogram. Its numbers are in a table, too, for readers who see no picture. `id`: stays the same while the title changes.
pub(super) fn histogram(id: &str, title: &str, bars: &[Bar]) -> Markup {
    let most = bars.iter().map(|bar| bar.count).max().unwrap_or_default();
    if most == 0 {
        return html! { p .quiet { "There were no calls yet." } };
    }
    #[expect(clippy::cast_precision_loss, reason = "a picture")]
    let (width, most) = (WIDTH / bars.len() as f64, most as f64);
    let shape = |nth: usize, bar: &Bar| {
        #[expect(clippy::cast_precision_loss, reason = "a picture")]
        let (nth, count) = (nth as f64, bar.count as f64);
        // One call is seen beside a million.
        let height = if bar.count == 0 { 0.0 } else { (count / most * HEIGHT).max(1.5) };
        [nth * width + 1.0, HEIGHT - height, (width - 2.0).max(1.0), height]
    };
    let ends = [bars.first(), bars.get(bars.len() / 2), bars.last()];
    let anchors = [("start", 0.0), ("middle", WIDTH / 2.0), ("end", WIDTH)];
    html! {
        figure {
            figcaption { (title) }
            svg viewBox={ "0 0 " (WIDTH) " " (HEIGHT + FOOT) } role="img" aria-label=(title) {
                @for (nth, bar) in bars.iter().enumerate() {
                    @let [x, y, width, height] = shape(nth, bar);
                    rect .bar x=(x) y=(y) width=(width) height=(height) {
                        title { (bar.label) ": " (bar.count) }
                    }
                }
                line .axis x1="0" x2=(WIDTH) y1=(HEIGHT) y2=(HEIGHT) {}
                @for ((anchor, x), bar) in anchors.into_iter().zip(ends.into_iter().flatten()) {
                    text x=(x) y=(HEIGHT + FOOT - 3.0) text-anchor=(anchor) { (bar.label) }
                }
            }
            details id={ "numbers-" (id) } {
                summary id={ "summary-" (id) } { "Numbers" }
                table {
                    thead { tr { th { "Range" } th .number { "Calls" } } }
                    tbody {
                        @for bar in bars.iter().filter(|bar| bar.count > 0) {
                            tr { th scope="row" { (bar.label) } td .number { (bar.count) } }
                        }
                    }
                }
            }
        }
    }
}

/// A line of rates over time, the latest at the right. Its name has the latest and the highest one.
pub(super) fn sparkline(title: &str, values: &[f64]) -> Markup {
    const WIDE: f64 = 120.0;
    const HIGH: f64 = 20.0;
    let most = values.iter().copied().fold(0.0, f64::max);
    if values.len() < 2 {
        return html! {};
    }
    #[expect(clippy::cast_precision_loss, reason = "a picture")]
    let step = WIDE / (values.len() - 1) as f64;
    let point = |(nth, value): (usize, &f64)| {
        let share = if most > 0.0 { value / most } else { 0.0 };
        #[expect(clippy::cast_precision_loss, reason = "a picture")]
        let x = nth as f64 * step;
        format!("{x:.1},{:.1}", HIGH - 1.0 - share * (HIGH - 2.0))
    };
    let latest = values.last().copied().unwrap_or_default();
    let name = format!("{title}: {latest:.1}/s now, at most {most:.1}/s");
    let points: Vec<_> = values.iter().enumerate().map(point).collect();
    html! {
        svg .spark viewBox={ "0 0 " (WIDE) " " (HIGH) } role="img" aria-label=(name) {
            polyline points=(points.join(" ")) {}
        }
    }
}

/// The bars from the first to the last one that has something.
pub(super) fn trimmed(bars: Vec<Bar>) -> Vec<Bar> {
    let Some(first) = bars.iter().position(|bar| bar.count > 0) else { return Vec::new() };
    let last = bars.iter().rposition(|bar| bar.count > 0).unwrap_or(first);
    bars.into_iter().skip(first).take(last - first + 1).collect()
}

/// Values counted in bars of equal width.
pub(super) fn in_bars(values: &[u64], label: impl Fn(u64) -> String) -> Vec<Bar> {
    let (Some(least), Some(most)) = (values.iter().min(), values.iter().max()) else { return Vec::new() };
    let bars = u64::try_from(BARS).unwrap_or(1);
    let width = ((most - least) / bars + 1).max(1);
    let used = (most - least) / width + 1;
    let of_bar = |nth: u64| {
        let count = values.iter().filter(|value| (*value - least) / width == nth).count();
        Bar { label: label(least + nth * width), count: u64::try_from(count).unwrap_or_default() }
    };
    (0..used).map(of_bar).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bars(counts: &[u64]) -> Vec<Bar> {
        counts.iter().map(|&count| Bar { label: count.to_string(), count }).collect()
    }

    #[test]
    fn a_histogram_has_a_bar_for_each_number() {
        let drawn = histogram("id", "Time", &bars(&[1, 0, 1_000_000])).into_string();
        assert_eq!(drawn.matches("<rect").count(), 3);
        assert!(drawn.contains("height=\"1.5\"") && drawn.contains("height=\"96\""), "{drawn}");
        assert!(drawn.contains("<title>1000000: 1000000</title>"));
        assert!(histogram("id", "Time", &bars(&[0, 0])).into_string().contains("no calls"));
        assert!(histogram("id", "Time", &[]).into_string().contains("no calls"));
    }

    #[test]
    fn empty_bars_at_the_ends_are_left_out() {
        assert_eq!(trimmed(bars(&[0, 0, 3, 0, 4, 0])), bars(&[3, 0, 4]));
        assert_eq!(trimmed(bars(&[0, 0])), []);
    }

    #[test]
    fn each_value_is_in_one_bar() {
        for values in
            [vec![7], vec![7, 7], vec![1, 2, 3], (0..1000).collect(), vec![0, u64::MAX], vec![u64::MAX]]
        {
            let found = in_bars(&values, |from| from.to_string());
            let sum: u64 = found.iter().map(|bar| bar.count).sum();
            assert_eq!(sum, u64::try_from(values.len()).unwrap(), "{values:?}");
            assert!((1..=BARS).contains(&found.len()), "{values:?}: {}", found.len());
        }
        assert_eq!(in_bars(&[], |from| from.to_string()), []);
    }

    #[test]
    fn a_line_stays_within_its_picture() {
        let drawn = sparkline("Rate", &[0.0, 5.0, 10.0]).into_string();
        assert!(drawn.contains("aria-label=\"Rate: 10.0/s now, at most 10.0/s\""), "{drawn}");
        assert!(drawn.contains("points=\"0.0,19.0 60.0,10.0 120.0,1.0\""), "{drawn}");
        assert!(sparkline("Rate", &[0.0, 0.0]).into_string().contains("0.0,19.0 120.0,19.0"));
        assert_eq!(sparkline("Rate", &[1.0]).into_string(), "");
    }
}
