//! How many deletions pass: the defaults, and the numbers of flags and specs.

use metahook_core::api::policy::{BrakeLimits, DeletionBrakeSpec};
use metahook_core::object::id::Gvr;
use serde_json::{Value, json};

#[test]
fn the_threshold_is_more_than_five_and_more_than_a_fifth() {
    for (managed, most) in [(0, 5), (3, 5), (25, 5), (30, 6), (34, 6), (1_000, 200)] {
        assert_eq!(BrakeLimits::default().max_deletions(managed), most, "of {managed}");
    }
    let off = BrakeLimits { percent: 100, ..BrakeLimits::default() };
    assert_eq!(off.max_deletions(10), usize::MAX);
    assert!(BrakeLimits::default().max_deletions(usize::MAX) > 0, "no overflow");
}

#[test]
fn a_deletion_brake_takes_the_numbers_of_the_flags_where_it_names_none() {
    let flags = BrakeLimits { children: 7, percent: 8, exempt: vec![] };
    let checked = |spec: Value| {
        let spec: DeletionBrakeSpec = serde_json::from_value(spec).unwrap();
        spec.check(&flags).map_err(|error| error.to_string())
    };
    assert_eq!(checked(json!({})), Ok(flags.clone()));
    let pods = json!({"apiVersion": "v1", "resource": "pods"});
    let all = json!({"children": 0, "percent": 100, "exempt": [pods]});
    let exempt = vec![Gvr::new("v1", "pods")];
    assert_eq!(checked(all), Ok(BrakeLimits { children: 0, percent: 100, exempt }));
    let error = checked(json!({"percent": 101})).unwrap_err();
    assert_eq!(error, "spec.deletionBrake.percent: 101 is more than 100");
}
