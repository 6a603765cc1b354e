//! What an answer leaves out of a trace.

use super::*;

#[tokio::test]
async fn names_and_numbers_of_related_objects_that_the_user_may_not_list_are_left_out() {
    let (status, answer) = ask(PATH, "Host: localhost:1\r\nAuthorization: Bearer good\r\n").await;
    let [own, other] = [0, 1].map(|at| answer["reconciles"][0]["steps"][1]["found"][at].clone());
    assert_eq!((status, &own["names"], &own["objects"]), (200, &json!(["x"]), &json!(1)), "{answer}");
    assert_eq!((&other["namespace"], &other["moreNames"]), (&json!("m"), &json!(1)));
    assert_eq!(answer["reconciles"][0]["steps"][1]["objects"], json!(1), "no sum tells of it either");
    assert!(other.get("names").is_none() && other.get("objects").is_none(), "{other}");
}

#[tokio::test]
async fn no_cause_names_a_related_object_that_the_user_may_not_list() {
    let (status, answer) = ask(PATH, "Host: localhost:1\r\nAuthorization: Bearer good\r\n").await;
    let [latest, before] = [0, 1].map(|at| answer["reconciles"][at].clone());
    assert_eq!((status, &before["relatedCause"]["name"]), (200, &json!("x")), "{answer}");
    let hidden = json!("a related object changed");
    assert_eq!((&latest["cause"], &latest["settled"]["lastCause"]), (&hidden, &hidden));
    assert!(!latest.to_string().contains("relatedCause") && !latest.to_string().contains("m/"), "{latest}");
}

#[tokio::test]
async fn no_step_names_a_deleted_related_object_that_the_user_may_not_list() {
    let (status, answer) = ask(PATH, "Host: localhost:1\r\nAuthorization: Bearer good\r\n").await;
    let [own, other] = [2, 3].map(|at| answer["reconciles"][0]["steps"][at].clone());
    assert_eq!((status, &own["object"]["name"]), (200, &json!("token")), "{answer}");
    assert_eq!(other, json!({ "step": "deletedRelated", "deleted": true }));
}

#[tokio::test]
async fn of_a_child_that_the_user_may_not_get_the_name_alone_is_shown() {
    let path = PATH.replace("name=a", "name=writes");
    let (_, all) = ask(&path, "Host: localhost:1\r\nAuthorization: Bearer admin\r\n").await;
    assert_eq!(all.to_string().matches("sesame").count(), 2 * 5, "{all}");
    let (status, answer) = ask(&path, "Host: localhost:1\r\nAuthorization: Bearer good\r\n").await;
    let steps = &answer["reconciles"][0]["steps"];
    assert_eq!((status, answer.to_string().matches("sesame").count()), (200, 5), "{answer}");
    let hidden = "you may not get it, so no more is shown";
    let object = json!(TracedObject::new(&config_maps(), &Key::new("m", "child")));
    assert_eq!(steps[0]["writes"][1], json!({ "verb": "replace", "object": object }));
    assert_eq!(steps[0]["left"][1], json!({ "object": object, "why": hidden }));
    let wrote = json!({ "step": "wrote", "verb": "replace", "object": object, "tookUs": 0, "end": { "failed": hidden } });
    assert_eq!(steps[2], wrote);
    // The plan alone names its fields.
    assert_eq!((&steps[3]["reason"], &steps[4]["reason"]), (&Value::Null, &json!(hidden)));
}

#[tokio::test]
async fn of_children_in_too_many_namespaces_the_names_alone_are_shown() {
    let path = PATH.replace("name=a", "name=writes-many");
    let (_, answer) = ask(&path, "Host: localhost:1\r\nAuthorization: Bearer good\r\n").await;
    let left = answer["reconciles"][0]["steps"][0]["left"].as_array().unwrap().clone();
    let is_unreviewed = |child: &Value| child["why"].as_str().unwrap().ends_with("whether you may see it)");
    // One review is of all namespaces.
    assert_eq!(left.iter().position(is_unreviewed), Some(reach_rights::MAX_REVIEWS - 1), "{answer}");
    assert!(!answer.to_string().contains("sesame"), "{answer}");
}

#[tokio::test]
async fn no_failure_names_a_related_object_that_the_user_may_not_list() {
    let good = "Host: localhost:1\r\nAuthorization: Bearer good\r\n";
    let (_, own) = ask(&PATH.replace("name=a", "name=own"), good).await;
    assert_eq!(own["reconciles"][0]["end"], json!({ "failed": "Secret n/token: no right" }), "{own}");
    let (_, other) = ask(&PATH.replace("name=a", "name=other"), good).await;
    let hidden = json!({ "failed": "the deletion of a related object failed" });
    assert_eq!(other["reconciles"][0]["end"], hidden, "{other}");
    assert!(!other.to_string().contains("relatedFailure"), "{other}");
}

#[tokio::test]
async fn who_may_list_a_kind_everywhere_is_shown_objects_of_all_namespaces() {
    let many = PATH.replace("name=a", "name=many");
    let (_, answer) = ask(&many, "Host: localhost:1\r\nAuthorization: Bearer admin\r\n").await;
    assert_eq!(answer["reconciles"][1]["steps"][0]["objects"], json!(30), "{answer}");
    assert!(!answer.to_string().contains("unreviewed") && !answer.to_string().contains("a related object"));
}

#[tokio::test]
async fn what_was_not_reviewed_is_told_from_what_is_forbidden() {
    let many = PATH.replace("name=a", "name=many");
    let (_, answer) = ask(&many, "Host: localhost:1\r\nAuthorization: Bearer good\r\n").await;
    let found = answer["reconciles"][1]["steps"][0]["found"].as_array().unwrap().clone();
    let unreviewed: Vec<_> = found.iter().map(|rule| rule["unreviewed"] == json!(true)).collect();
    assert!(found.iter().all(|rule| rule["objects"].is_null()), "{answer}");
    // One in all namespaces, one each for the two causes.
    assert_eq!(unreviewed.iter().position(|it| *it), Some(reach_rights::MAX_REVIEWS - 3), "{answer}");
    assert!(unreviewed[reach_rights::MAX_REVIEWS - 3..28].iter().all(|it| *it) && !unreviewed[29]);
}
