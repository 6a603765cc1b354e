//! Names of types, fields and variants, made of any text: words of letters and digits in the case of a language.

use std::collections::BTreeSet;

/// The words of a text: `maxBodySize`, `max-body-size` and `max_body_size` have the same.
fn words(text: &str) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    let (mut before, mut new) = ('_', true);
    let chars: Vec<_> = text.chars().collect();
    for (index, one) in chars.iter().copied().enumerate() {
        if !one.is_ascii_alphanumeric() {
            new = true;
            continue;
        }
        let ends_upper = before.is_ascii_uppercase()
            && one.is_ascii_uppercase()
            && chars.get(index + 1).is_some_and(char::is_ascii_lowercase);
        new |= ends_upper || (!before.is_ascii_uppercase() && one.is_ascii_uppercase());
        match words.last_mut() {
            Some(word) if !new => word.push(one.to_ascii_lowercase()),
            _ => words.push(one.to_ascii_lowercase().to_string()),
        }
        (before, new) = (one, false);
    }
    words
}

/// `MaxBodySize`. What has no letter is a word of its own, what begins with a digit gets one in front.
pub(super) fn pascal(text: &str) -> String {
    let name: String = words(text)
        .iter()
        .map(|word| {
            let mut letters = word.chars();
            letters
                .next()
                .map(|first| first.to_ascii_uppercase())
                .into_iter()
                .chain(letters)
                .collect::<String>()
        })
        .collect();
    match name.chars().next() {
        None => "Empty".to_owned(),
        Some(first) if first.is_ascii_digit() => format!("N{name}"),
        Some(_) => name,
    }
}

/// `max_body_size`.
pub(super) fn snake(text: &str) -> String {
    let name = words(text).join("_");
    match name.chars().next() {
        None => "empty".to_owned(),
        Some(first) if first.is_ascii_digit() => format!("n{name}"),
        Some(_) => name,
    }
}

/// The name, or with the first number behind it that makes it a new one.
pub(super) fn unique(taken: &mut BTreeSet<String>, name: &str) -> String {
    let names = (2_usize..).map(|number| format!("{name}{number}"));
    let free = std::iter::once(name.to_owned()).chain(names).find(|name| !taken.contains(name));
    let name = free.unwrap_or_default();
    taken.insert(name.clone());
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_found_in_every_spelling() {
        for (text, expected_pascal, expected_snake) in [
            ("maxBodySize", "MaxBodySize", "max_body_size"),
            ("max-body_size", "MaxBodySize", "max_body_size"),
            ("clusterIP", "ClusterIp", "cluster_ip"),
            ("clusterIPs", "ClusterIPs", "cluster_i_ps"),
            ("HTTPServer", "HttpServer", "http_server"),
            ("v1Beta2", "V1Beta2", "v1_beta2"),
            ("8080", "N8080", "n8080"),
            ("", "Empty", "empty"),
            ("äö", "Empty", "empty"),
            ("$ref", "Ref", "ref"),
        ] {
            assert_eq!(
                (pascal(text).as_str(), snake(text).as_str()),
                (expected_pascal, expected_snake),
                "{text}"
            );
        }
    }

    #[test]
    fn a_taken_name_gets_a_number() {
        let mut taken = BTreeSet::new();
        assert_eq!(["A", "A", "A2", "A"].map(|name| unique(&mut taken, name)), ["A", "A2", "A22", "A3"]);
    }
}
