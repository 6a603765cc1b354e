//! Message about values of a child that another client keeps changing back.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::children::managed_fields::others;
use crate::children::write_history::Drift;
use crate::json::difference::Difference;
use crate::{shorten, shorten_middle};

/// Bytes of a value.
const MAX_VALUE: usize = 60;

/// Bytes of a path.
const MAX_PATH: usize = 120;

/// Bytes of the names of managers.
const MAX_MANAGERS: usize = 120;

/// Values that a message names; the others are counted.
const MAX_VALUES: usize = 2;

const ADVICE: &str = "the server corrects it less and less often: stop the one or the other";

/// The other managers of the values, such as `kubectl-edit`; empty where the API server names none.
pub fn managers(flapping: &Drift, fields: &Value, our_managers: &[&str]) -> String {
    let of_one = |value: &Difference| others(fields, &value.path, our_managers);
    let all: BTreeSet<_> = flapping.values.iter().take(MAX_VALUES).flat_map(of_one).collect();
    shorten(&all.into_iter().collect::<Vec<_>>().join(", "), MAX_MANAGERS)
}

/// Both values and their other managers; of Secrets only the paths. Long values are cut, so that the rest of the message has
/// room in an Event.
pub fn message(flapping: &Drift, fields: &Value, our_managers: &[&str]) -> String {
    let secret = flapping.id.resource.gvk.kind.as_ref() == "Secret";
    let one = |Difference { path, wanted, found, .. }: &Difference| {
        let others: Vec<_> = others(fields, path, our_managers).into_iter().collect();
        let by = if others.is_empty() {
            String::new()
        } else {
            format!(", by {}", shorten(&others.join(", "), MAX_MANAGERS))
        };
        let short = |value: &Value| shorten_middle(&value.to_string(), MAX_VALUE);
        let path = shorten_middle(path, MAX_PATH);
        if secret {
            format!("{path}{by}")
        } else {
            format!("{path} ({} becomes {}{by})", short(wanted), short(found))
        }
    };
    let mut values: Vec<_> = flapping.values.iter().take(MAX_VALUES).map(one).collect();
    let more = flapping.values.len().saturating_sub(MAX_VALUES);
    if more > 0 {
        values.push(format!("{more} more"));
    }
    format!("{} is changed back again and again: {}; {ADVICE}", flapping.id, values.join("; "))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::json::difference::Change;
    use crate::object::id::{Key, ObjectId, Uid};
    use crate::object::testing::resource;

    fn drift(kind: &str, values: Vec<Difference>) -> Drift {
        let id = ObjectId { resource: resource("v1", kind), key: Key::new("n", "a") };
        Drift { id, uid: Uid::new("u"), values }
    }

    fn differs(path: &str, length: usize) -> Difference {
        let value = |letter: &str| json!(letter.repeat(length));
        Difference { path: path.to_owned(), wanted: value("w"), found: value("f"), change: Change::Value }
    }

    #[test]
    fn a_long_value_leaves_room_for_managers_and_advice() {
        let fields = json!([{"manager": "theirs", "operation": "Update", "fieldsType": "FieldsV1",
            "fieldsV1": {"f:data": {"f:k": {}}}}]);
        let said = |kind, values| message(&drift(kind, values), &fields, &["ours"]);
        let expected = format!(
            "ConfigMap n/a is changed back again and again: data.k (\"w\" becomes \"f\", by theirs); {ADVICE}"
        );
        assert_eq!(said("ConfigMap", vec![differs("data.k", 1)]), expected);
        let by = |path| managers(&drift("ConfigMap", vec![differs(path, 1)]), &fields, &["ours"]);
        assert_eq!([by("data.k"), by("data.other")], ["theirs", ""]);
        let long = said("ConfigMap", vec![differs("data.k", 5000)]);
        assert!(long.ends_with(&format!("ff\", by theirs); {ADVICE}")) && long.len() < 400, "{long}");
        assert!(!said("Secret", vec![differs("data.k", 5)]).contains("www"));
    }

    #[test]
    fn many_values_are_counted_and_all_fits_an_event() {
        let values = (0..50).map(|nth| differs(&format!("data.{}{nth}", "k".repeat(500)), 5000)).collect();
        let long = message(&drift("ConfigMap", values), &json!([]), &["ours"]);
        assert!(long.ends_with(&format!("; 48 more; {ADVICE}")) && long.len() <= 1024, "{long}");
    }
}
