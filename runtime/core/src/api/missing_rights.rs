//! Names of the rights that an account lacks, for the message of a condition or an Event.

use crate::api::access::Writes;
use crate::counted;

/// Resources that a message names.
const MAX_NAMED: usize = 10;

/// Bytes of the names in a message. A message may have 1,024, with its account and the advice.
const MAX_BYTES: usize = 640;

/// The missing rights, such as `create, update resource "pods" in API group ""; update resource "things/status" in API group "e"`:
/// those on the same resource together, the first ones of very many.
pub fn named(missing: &[&Writes]) -> String {
    let mut text = String::new();
    let groups = missing.chunk_by(|one, next| one.is_on_resource_of(next));
    let mut named = 0;
    for (nth, group) in groups.enumerate() {
        let one = forbidden(group);
        if nth >= MAX_NAMED || (nth > 0 && text.len() + one.len() > MAX_BYTES) {
            break;
        }
        if nth > 0 {
            text.push_str("; ");
        }
        text.push_str(&one);
        named += group.len();
    }
    match missing.len() - named {
        0 => text,
        rest => format!("{text}; and {} missing", counted(rest, "more right is", "more rights are")),
    }
}

/// Rights on one resource.
fn forbidden(group: &[&Writes]) -> String {
    let [before @ .., last] = group else { return String::new() };
    let last = last.forbidden();
    before.iter().map(|one| one.verb).chain([&*last]).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn right(verb: &'static str, resource: &str) -> Writes {
        Writes { verb, group: "e".to_owned(), resource: resource.to_owned(), subresource: "" }
    }

    fn text(missing: &[Writes]) -> String {
        named(&missing.iter().collect::<Vec<_>>())
    }

    #[test]
    fn each_missing_right_is_named_with_those_on_its_resource() {
        let missing = [right("update", "things"), right("create", "pods"), right("delete", "pods")];
        assert_eq!(
            text(&missing),
            "update resource \"things\" in API group \"e\"; create, delete resource \"pods\" in API group \"e\""
        );
        assert_eq!(text(&missing[..1]), "update resource \"things\" in API group \"e\"");
        let finalizers = Writes { subresource: "finalizers", ..right("update", "things") };
        assert!(text(&[finalizers]).contains("OwnerReferencesPermissionEnforcement"));
    }

    #[test]
    fn of_very_many_missing_rights_the_first_are_named_and_the_rest_counted() {
        let many = |name: &str, count: usize| -> Vec<_> {
            (0..count)
                .flat_map(|nth| ["create", "delete"].map(|verb| right(verb, &format!("{name}{nth}"))))
                .collect()
        };
        assert!(!text(&many("r", 10)).contains("more"), "ten are named");
        assert!(text(&many("r", 11)).ends_with("; and 2 more rights are missing"));
        assert!(text(&many("r", 11)).contains("\"r9\""));
        let long = text(&many(&"r".repeat(200), 10));
        assert!(long.len() < 750 && long.ends_with(" more rights are missing"), "{long}");
        let one = text(&many(&"r".repeat(900), 1));
        assert!(one.ends_with("API group \"e\""), "the first is named in any case: {one}");
    }
}
