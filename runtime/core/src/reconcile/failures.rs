//! Message about several objects that fail in one reconcile: it names each, shows equal causes once, and is cut to a length.

use std::collections::BTreeMap;

use crate::{counted, one_line, shorten_middle};

/// Causes that a message shows; the objects of the others are named without them.
const MAX_CAUSES: usize = 6;

/// A cause is cut to fewer bytes than these only where the whole message has less room.
const MIN_CAUSE: usize = 80;

/// One object that could not be written, and why.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct WriteFailure {
    /// Empty where the object is known by its place in an answer alone.
    pub kind: String,
    /// Namespace and name, or a place as `children[3]`.
    pub name: String,
    pub cause: String,
}

/// Objects that fail for one cause, which is shown in the words of the first one.
struct Group<'a> {
    objects: Vec<&'a WriteFailure>,
    cause: String,
}

/// For example `3 children failed: RoleBinding n/x, n/y: no such role; Job n/z: quota`. `what` is the plural of what failed.
///
/// # Guarantees
/// At most `max` bytes in one line. Causes are cut before names are left out. The order of the failures makes no difference,
/// but for places in an answer, which keep it.
pub fn message(what: &str, failures: &[WriteFailure], max: usize) -> String {
    let start = format!("{} {what} failed: ", failures.len());
    let groups = with_few_causes(grouped(failures));
    let separators = (": ".len() + "; ".len()) * groups.len();
    let room = max.saturating_sub(start.len() + separators);
    let for_cause = MIN_CAUSE.max(room / 4 / groups.len().max(1));
    let for_causes: usize = groups.iter().map(|group| group.cause.len().min(for_cause)).sum();
    let lengths = groups.iter().map(|group| group.names(usize::MAX).len());
    let share = level(lengths, room.saturating_sub(for_causes));
    let names: Vec<_> = groups.iter().map(|group| group.names(share)).collect();
    let taken: usize = names.iter().map(String::len).sum();
    let share = level(groups.iter().map(|group| group.cause.len()), room.saturating_sub(taken));
    let text =
        |(group, names): (&Group<'_>, &String)| format!("{names}: {}", shorten_middle(&group.cause, share));
    let texts: Vec<_> = groups.iter().zip(&names).map(text).collect();
    shorten_middle(&format!("{start}{}", texts.join("; ")), max)
}

fn grouped(failures: &[WriteFailure]) -> Vec<Group<'_>> {
    let mut sorted: Vec<_> = failures.iter().collect();
    sorted.sort_by_key(|one| one.rank());
    let mut nth_of = BTreeMap::new();
    let mut groups: Vec<Group<'_>> = Vec::new();
    for failure in sorted {
        let nth = *nth_of.entry(failure.nameless_cause()).or_insert(groups.len());
        match groups.get_mut(nth) {
            Some(group) => group.objects.push(failure),
            None => {
                groups.push(Group { objects: vec![failure], cause: one_line(&failure.cause).into_owned() });
            }
        }
    }
    groups
}

/// The first groups, and one of all objects that fail for other causes.
fn with_few_causes(mut groups: Vec<Group<'_>>) -> Vec<Group<'_>> {
    let others = groups.split_off(groups.len().min(MAX_CAUSES));
    if !others.is_empty() {
        let cause = counted(others.len(), "other cause", "other causes");
        let mut objects: Vec<_> = others.into_iter().flat_map(|group| group.objects).collect();
        objects.sort_by_key(|one| one.rank());
        groups.push(Group { objects, cause });
    }
    groups
}

/// The greatest length to which texts of these lengths are cut, so that all of them together have room.
fn level(lengths: impl Iterator<Item = usize>, room: usize) -> usize {
    let mut lengths: Vec<_> = lengths.collect();
    lengths.sort_unstable();
    let (mut room, mut left) = (room, lengths.len());
    for length in lengths {
        let share = room / left.max(1);
        if length > share {
            return share;
        }
        room -= length;
        left -= 1;
    }
    usize::MAX
}

impl WriteFailure {
    /// Places of an answer come first, in the order that they have.
    fn rank(&self) -> Option<(&str, &str, &str)> {
        (!self.kind.is_empty()).then_some((&*self.kind, &*self.name, &*self.cause))
    }

    /// The API server names the object in its refusals: the same refusal of another object is the same cause.
    fn nameless_cause(&self) -> String {
        if self.kind.is_empty() {
            return self.cause.replace(&self.name, "…");
        }
        let name = self.name.rsplit('/').next().unwrap_or_default();
        self.cause.replace(&format!("\"{name}\""), "\"…\"")
    }
}

impl Group<'_> {
    /// `Job n/a, n/b, Pod n/c and 4 more`: one name at least, and as many as `max` bytes take.
    fn names(&self, max: usize) -> String {
        let count = self.objects.len();
        let mut names = String::new();
        let mut kind = "";
        for (nth, object) in self.objects.iter().enumerate() {
            let mut name = if nth == 0 { String::new() } else { ", ".to_owned() };
            if object.kind != kind {
                name = format!("{name}{} ", object.kind);
            }
            name.push_str(&object.name);
            let after = count - nth - 1;
            let rest = if after == 0 { 0 } else { and_more(after).len() };
            if nth > 0 && names.len() + name.len() + rest > max {
                return format!("{names}{}", and_more(count - nth));
            }
            kind = &object.kind;
            names.push_str(&if nth == 0 { shorten_middle(&name, max.saturating_sub(rest)) } else { name });
        }
        names
    }
}

fn and_more(count: usize) -> String {
    format!(" and {count} more")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn failed(kind: &str, name: &str, cause: &str) -> WriteFailure {
        WriteFailure { kind: kind.to_owned(), name: name.to_owned(), cause: cause.to_owned() }
    }

    const ROLE: &str = "cannot change roleRef";

    #[test]
    fn each_object_is_named_with_its_cause() {
        let all = [
            failed("RoleBinding", "n/x", ROLE),
            failed("Job", "n/y", "field is immutable"),
            failed("RoleBinding", "n/a", ROLE),
            failed("ConfigMap", "n/x", ROLE),
        ];
        let expected = "4 children failed: ConfigMap n/x, RoleBinding n/a, n/x: cannot change roleRef; Job n/y: field is immutable";
        assert_eq!(message("children", &all, 1012), expected);
    }

    #[test]
    fn a_cause_that_names_its_object_is_one_with_that_of_another_object() {
        let refusal = |name: &str| {
            failed("Pod", &format!("n/{name}"), &format!("pods \"{name}\" is forbidden:\n exceeded quota: q"))
        };
        let expected = "3 children failed: Pod n/a, n/b, n/c: pods \"a\" is forbidden: exceeded quota: q";
        assert_eq!(message("children", &["c", "a", "b"].map(refusal), 1012), expected);
        let place = |nth: usize| {
            failed("", &format!("children[{nth}]"), &format!("children[{nth}].metadata.namespace is missing"))
        };
        let expected =
            "2 children failed: children[9], children[10]: children[9].metadata.namespace is missing";
        assert_eq!(message("children", &[place(9), place(10)], 1012), expected);
    }

    #[test]
    fn names_and_causes_that_have_no_room_are_counted() {
        let many: Vec<_> = (100..400)
            .map(|nth| failed("Job", &format!("n/{nth}"), &format!("{}end", "x".repeat(600))))
            .collect();
        let text = message("children", &many, 1012);
        assert!(text.starts_with("300 children failed: Job n/100, n/101, "), "{text}");
        assert!(text.contains(" more: xxx") && text.ends_with("xend") && text.len() <= 1012, "{text}");
        let causes: Vec<_> =
            (100..120).map(|nth| failed("Job", &format!("n/{nth}"), &format!("cause {nth}"))).collect();
        let text = message("children", &causes, 1012);
        let named: Vec<_> = (107..120).map(|nth| format!("n/{nth}")).collect();
        let end = format!("; Job n/105: cause 105; Job n/106, {}: 14 other causes", named.join(", "));
        assert!(text.ends_with(&end), "{text}");
    }

    #[test]
    fn a_long_cause_leaves_room_for_the_others_and_keeps_its_end() {
        let long = format!("spec.template: Invalid value: {}: field is immutable", "v".repeat(3000));
        let all = [failed("Job", "n/y", &long), failed("RoleBinding", "n/x", ROLE)];
        let text = message("children", &all, 1012);
        assert!(text.ends_with("vv: field is immutable; RoleBinding n/x: cannot change roleRef"), "{text}");
        assert!(text.len() > 1000 && text.len() <= 1012, "{}", text.len());
    }

    fn any_failure() -> impl Strategy<Value = WriteFailure> {
        ("[A-Z][a-z]{0,20}", "[a-z]{1,9}/[a-z]{1,200}", "[ -~\nü]{0,400}")
            .prop_map(|(kind, name, cause)| failed(&kind, &name, &cause))
    }

    proptest! {
        #[test]
        fn a_message_is_one_bounded_line_in_any_order(
            all in prop::collection::vec(any_failure(), 2..12), max in 60_usize..1100,
        ) {
            let text = message("children", &all, max);
            prop_assert!(text.len() <= max && !text.contains('\n'), "{}", text);
            let mut other = all.clone();
            other.reverse();
            prop_assert_eq!(message("children", &other, max), text);
        }

        #[test]
        fn short_failures_are_all_named(
            all in prop::collection::btree_map("[a-z]{1,9}", (0_usize..12, "[A-Z][a-z]{2}"), 2..30),
            length in 1_usize..400,
        ) {
            let cause = |nth: usize| format!("{nth}{}", "x".repeat(length));
            let failures: Vec<_> = all
                .iter()
                .map(|(name, (nth, kind))| failed(kind, &format!("n/{name}"), &cause(*nth)))
                .collect();
            let text = message("children", &failures, 1012);
            prop_assert!(text.len() <= 1012, "{}", text);
            for name in all.keys() {
                let is_named = [",", ":"].iter().any(|after| text.contains(&format!("n/{name}{after}")));
                prop_assert!(is_named, "{}: {}", name, text);
            }
        }
    }
}
