//! Differences of two texts, line by line, with the lines around them.

/// Lines before and after each difference.
const CONTEXT: usize = 3;

/// Texts whose numbers of lines have a larger product are shown as removed and added whole.
const MAX_CELLS: usize = 4_000_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Line<'a> {
    Same(&'a str),
    Old(&'a str),
    New(&'a str),
}

/// The lines that differ, behind `-` and `+`; with colours where they are wanted. Empty for texts that are the same.
pub(crate) fn print(old: &str, new: &str, colours: bool) -> String {
    let (old, new): (Vec<_>, Vec<_>) = (old.lines().collect(), new.lines().collect());
    let lines = compare(&old, &new);
    let is_near = |at: usize| {
        let near = lines.get(at.saturating_sub(CONTEXT)..(at + CONTEXT + 1).min(lines.len()));
        near.is_some_and(|near| near.iter().any(|line| !matches!(line, Line::Same(_))))
    };
    let (red, green, end) = if colours { ("\u{1b}[31m", "\u{1b}[32m", "\u{1b}[0m") } else { ("", "", "") };
    let (mut out, mut is_cut) = (String::new(), false);
    for (at, line) in lines.iter().enumerate() {
        if !is_near(at) {
            is_cut = true;
            continue;
        }
        if std::mem::take(&mut is_cut) {
            out.push_str("...\n");
        }
        match line {
            Line::Same(text) => out.push_str(&["  ", text, "\n"].concat()),
            Line::Old(text) => out.push_str(&[red, "- ", text, end, "\n"].concat()),
            Line::New(text) => out.push_str(&[green, "+ ", text, end, "\n"].concat()),
        }
    }
    out
}

fn compare<'a>(old: &[&'a str], new: &[&'a str]) -> Vec<Line<'a>> {
    let width = new.len() + 1;
    if old.len().saturating_mul(new.len()) > MAX_CELLS {
        let (old, new) = (old.iter().map(|line| Line::Old(line)), new.iter().map(|line| Line::New(line)));
        return old.chain(new).collect();
    }
    // The longest common sequence of the lines from each pair of places on.
    let mut common = vec![0_u32; (old.len() + 1) * width];
    let get = |common: &[u32], at: usize| common.get(at).copied().unwrap_or_default();
    for (i, was) in old.iter().enumerate().rev() {
        for (j, is) in new.iter().enumerate().rev() {
            let at = i * width + j;
            let longest = if was == is {
                get(&common, at + width + 1) + 1
            } else {
                get(&common, at + width).max(get(&common, at + 1))
            };
            if let Some(cell) = common.get_mut(at) {
                *cell = longest;
            }
        }
    }
    let (mut i, mut j, mut lines) = (0, 0, Vec::new());
    loop {
        let at = i * width + j;
        match (old.get(i), new.get(j)) {
            (None, None) => return lines,
            (Some(was), Some(is)) if was == is => {
                lines.push(Line::Same(was));
                (i, j) = (i + 1, j + 1);
            }
            (Some(was), is) if is.is_none() || get(&common, at + width) >= get(&common, at + 1) => {
                lines.push(Line::Old(was));
                i += 1;
            }
            (_, Some(is)) => {
                lines.push(Line::New(is));
                j += 1;
            }
            (Some(was), None) => {
                lines.push(Line::Old(was));
                i += 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_that_differ_are_shown_with_those_around_them() {
        let old: Vec<_> = (1..=20).map(|number| number.to_string()).collect();
        let mut new = old.clone();
        new[9] = "ten".to_owned();
        new.remove(0);
        let shown = print(&old.join("\n"), &new.join("\n"), false);
        let expected = "- 1\n  2\n  3\n  4\n...\n  7\n  8\n  9\n- 10\n+ ten\n  11\n  12\n  13\n";
        assert_eq!(shown, expected);
        assert_eq!(print("a\nb", "a\nb", false), "");
        assert_eq!(print("", "a", true), "\u{1b}[32m+ a\u{1b}[0m\n");
        assert_eq!(print("a\nb\nc", "b\nx\nc", false), "- a\n  b\n+ x\n  c\n");
    }

    #[test]
    fn long_texts_are_shown_whole() {
        let text = |word: &str| vec![word; 2001].join("\n");
        let shown = print(&text("a"), &text("b"), false);
        assert_eq!(
            (shown.lines().count(), shown.starts_with("- a"), shown.ends_with("+ b\n")),
            (4002, true, true)
        );
    }
}
