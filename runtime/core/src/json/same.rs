//! Whether two values mean the same to the API server: `1.0` is `1`, an explicit null is no field.

use serde_json::Value;

pub fn same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => {
            a == b || a.as_f64() == b.as_f64() && a.is_f64() != b.is_f64()
        }
        (Value::Array(a), Value::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b)),
        (Value::Object(a), Value::Object(b)) => {
            // Each pair is compared once: the way back only looks for what the way there could not see.
            a.iter().all(|(key, a)| b.get(key).map_or(a.is_null(), |b| same(a, b)))
                && b.iter().all(|(key, b)| b.is_null() || a.contains_key(key))
        }
        _ => a == b,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn nulls_in_objects_and_the_spelling_of_numbers_do_not_count() {
        assert!(same(&json!({"a": 1.0, "b": null}), &json!({"a": 1})));
        assert!(same(&json!([{"x": null}]), &json!([{}])));
    }

    #[test]
    fn everything_else_counts() {
        for (a, b) in [
            (json!({"a": 1}), json!({"a": "1"})),
            (json!([null]), json!([])),
            (json!([1, 2]), json!([2, 1])),
            (json!({"a": ""}), json!({})),
            (json!({"a": {}}), json!({})),
            (json!(9_007_199_254_740_993_i64), json!(9_007_199_254_740_992_i64)),
        ] {
            assert!(!same(&a, &b), "{a} {b}");
        }
    }

    #[test]
    fn deep_values_are_compared_in_the_time_of_their_size() {
        let deep = (0..1000).fold(json!(1), |inner, _| json!({"a": inner, "b": 1.0}));
        let other = (0..1000).fold(json!(1.0), |inner, _| json!({"a": inner, "b": 1, "c": null}));
        assert!(same(&deep, &other));
    }
}
