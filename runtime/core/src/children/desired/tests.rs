//! Tests of desired children.

use super::error::{MAX_DECLARED, declared};
use super::*;
use crate::object::testing::{a, cluster_resource, resource};

fn try_it(parent: &str, children: Value) -> Result<Desired, String> {
    try_as(UnmanagedPolicy::Refused, parent, children).map(|wanted| wanted.desired)
}

fn try_as(unmanaged: UnmanagedPolicy, parent: &str, children: Value) -> Result<Wanted, String> {
    let selector = Selector::equals("controller-uid", "u");
    try_with(OwnerMark::Uid, Some(&selector), unmanaged, parent, children)
}

fn try_with(
    mark: OwnerMark<'_>,
    selector: Option<&Selector>,
    unmanaged: UnmanagedPolicy,
    parent: &str,
    children: Value,
) -> Result<Wanted, String> {
    let rules = [
        ChildKind::new(resource("v1", "Pod"), UpdateMethod::InPlace),
        ChildKind::new(cluster_resource("v1", "Namespace"), UpdateMethod::InPlace),
    ];
    let parent = a("e/v1", "P", parent).uid("u").object();
    let bounds =
        DesiredOptions { child_kinds: &rules, secrets: &ShownSecrets::All, selector, mark, unmanaged };
    let Value::Array(children) = children else { panic!() };
    let children = children.into_iter().map(|c| c.as_object().unwrap().clone()).collect();
    desired(&parent, bounds, children).map_err(|error| error.to_string())
}

#[test]
fn a_token_of_a_namespace_that_is_not_shown_refuses_the_answer() {
    let rules = [ChildKind::new(resource("v1", "Secret"), UpdateMethod::InPlace)];
    let parent = a("e/v1", "P", "n/p").uid("u").object();
    let answer = |namespace: &str, of_type: Value| {
        let secrets = &ShownSecrets::In([namespace.to_owned()].into());
        let (mark, unmanaged) = (OwnerMark::Uid, UnmanagedPolicy::Created);
        let bounds = DesiredOptions { child_kinds: &rules, secrets, selector: None, mark, unmanaged };
        let secret =
            json!({"apiVersion": "v1", "kind": "Secret", "type": of_type, "metadata": {"name": "s"}});
        let wanted = desired(&parent, bounds, vec![secret.as_object().unwrap().clone()]);
        wanted.map(|wanted| wanted.sequence.len()).map_err(|error| error.to_string())
    };
    let token = || json!("kubernetes.io/service-account-token");
    assert_eq!(answer("n", token()), Ok(1));
    for other in [json!("Opaque"), json!(null), json!("kubernetes.io/tls")] {
        assert_eq!(answer("m", other), Ok(1));
    }
    assert_eq!(
        answer("m", token()).unwrap_err(),
        "the hook's answer: children[0] is a Secret in namespace \"n\" that Kubernetes puts a token into, and modules and scripts are shown Secrets from \"m\" only (--mount-secret-namespaces): add the namespace to the flag, or set spec.serviceAccountRef"
    );
}

/// Messages repeat names, and a webhook may answer with any number of children.
#[test]
fn a_name_a_kind_and_a_version_have_a_bound() {
    let child = |field: &str, length: usize| {
        let mut child = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}});
        *child.pointer_mut(field).unwrap() = "a".repeat(length).into();
        try_as(UnmanagedPolicy::Created, "n/p", json!([child])).map(drop)
    };
    for (field, name) in
        [("/kind", "kind"), ("/apiVersion", "apiVersion"), ("/metadata/name", "metadata.name")]
    {
        let error = child(field, MAX_NAME + 1).unwrap_err();
        let expected =
            format!("the hook's answer: children[0].{name} must be a string of at most 1024 bytes");
        assert_eq!(error, expected);
    }
    assert_eq!(child("/kind", MAX_NAME), Ok(()), "a webhook's stray");
}

#[test]
fn namespace_and_generated_label_are_filled_in() {
    let desired = try_it(
        "n/p",
        json!([{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x", "labels": null}}]),
    )
    .unwrap();
    let pod = &desired[&resource("v1", "Pod")][&Key::new("n", "x")];
    assert_eq!(pod["metadata"], json!({"name": "x", "namespace": "n", "labels": {"controller-uid": "u"}}));
}

#[test]
fn a_message_names_so_many_declared_kinds() {
    let kinds = |count: usize| {
        let kind = |nth: usize| ChildKind::new(resource("v1", &format!("K{nth}")), UpdateMethod::InPlace);
        declared(&(0..count).map(kind).collect::<Vec<_>>())
    };
    assert_eq!((kinds(0), kinds(2)), ("none".to_owned(), "v1 K0, v1 K1".to_owned()));
    assert!(kinds(MAX_DECLARED).ends_with("v1 K9"), "{}", kinds(MAX_DECLARED));
    assert!(kinds(MAX_DECLARED + 2).ends_with("v1 K9, and 2 more"), "{}", kinds(MAX_DECLARED + 2));
}

#[test]
fn one_bad_child_refuses_the_whole_answer() {
    let good = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "ok"}});
    for (bad, says) in [
        (json!({"apiVersion": "v1", "metadata": {"name": "x"}}), "children[1].kind must be a string"),
        (json!({"kind": "Pod", "metadata": {"name": "x"}}), "children[1].apiVersion must be a string"),
        (
            json!({"apiVersion": "/v1/namespaces/x/services/http:y:80/proxy", "kind": "Pod", "metadata": {"name": "x"}}),
            "children[1].apiVersion must be like v1 or apps/v1",
        ),
        (json!({"apiVersion": "v1", "kind": "Pod"}), "children[1].metadata must be an object"),
        (json!({"apiVersion": "v1", "kind": "Pod", "metadata": {}}), "children[1].metadata.name must be"),
        (
            json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": ""}}),
            "children[1].metadata.name must be",
        ),
        (
            json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a/b"}}),
            "children[1].metadata.name must be a name without",
        ),
        (
            json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": ".."}}),
            "children[1].metadata.name must be a name without",
        ),
        (
            json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x", "namespace": "m"}}),
            "children[1].metadata.namespace is \"m\"",
        ),
        (
            json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x", "labels": {"a": 1}}}),
            "children[1].metadata.labels must be",
        ),
        (
            json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x", "annotations": {"a": 1}}}),
            "children[1].metadata.annotations[\"a\"] must be a string, not a number",
        ),
        (
            json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x", "annotations": "a"}}),
            "children[1].metadata.annotations must be an object of strings, not a string",
        ),
        (
            json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x", "labels": {"controller-uid": "z"}}}),
            "labels on desired child v1 Pod n/x don't match parent selector: label controller-uid is \"z\", and \"u\" is needed, which is the parent's uid; it was probably copied from the parent's metadata: remove `controller-uid` from the labels you copy",
        ),
        (
            json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "x"}}),
            "children[1] is a v1 Secret, which the controller's spec does not declare: add it to spec.childResources; declared are: v1 Pod, v1 Namespace",
        ),
        (
            json!({"apiVersion": "v2", "kind": "Pod", "metadata": {"name": "x"}}),
            "children[1] is a v2 Pod, and the controller's spec declares it as v1",
        ),
        (json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "x"}}), "has no namespace"),
        (good.clone(), "children[1] is v1 Pod n/ok a second time"),
    ] {
        let error = try_it("n/p", json!([good.clone(), bad])).unwrap_err();
        assert!(error.contains(says), "{error}");
    }
}

#[test]
fn a_parent_without_namespace_owns_anywhere_but_has_to_say_where() {
    let pod = |namespace: &str| json!([{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x", "namespace": namespace}}]);
    assert!(try_it("p", pod("m")).unwrap()[&resource("v1", "Pod")].contains_key(&Key::new("m", "x")));
    assert!(try_it("p", pod("")).unwrap_err().contains("children[0].metadata.namespace is missing"));
    for odd in ["default/services/http:x:80/proxy", "a?b", "A", "-a", "a%2fb", ".."] {
        assert!(
            try_it("p", pod(odd)).unwrap_err().contains("children[0].metadata.namespace must be a namespace")
        );
    }
    let namespace = json!([{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "x"}}]);
    assert!(
        try_it("p", namespace).unwrap()[&cluster_resource("v1", "Namespace")]
            .contains_key(&Key::new("", "x"))
    );
}

#[test]
fn a_webhooks_strays_are_kept_apart_and_the_last_of_twins_wins() {
    let child = |kind: &str, namespace: &str| json!({"apiVersion": "v1", "kind": kind, "metadata": {"name": "x", "namespace": namespace}});
    let Wanted { desired, unmanaged, .. } = try_as(
        UnmanagedPolicy::Created,
        "n/p",
        json!([
            child("Pod", ""),
            child("Pod", "n"),
            child("Pod", "m"),
            child("Secret", ""),
            child("Namespace", "")
        ]),
    )
    .unwrap();
    assert_eq!(desired[&resource("v1", "Pod")].len(), 1);
    let found: Vec<_> =
        unmanaged.iter().map(|one| (one.gvk.to_string(), one.key.to_string(), one.why.to_string())).collect();
    let says = ["metadata.namespace is \"m\"", "does not declare", "has no namespace"];
    let expected = [("v1 Pod", "m/x"), ("v1 Secret", "n/x"), ("v1 Namespace", "n/x")];
    for ((found, says), expected) in found.iter().zip(says).zip(expected) {
        assert_eq!((found.0.as_str(), found.1.as_str()), expected);
        assert!(found.2.contains(says), "{}", found.2);
    }
    assert_eq!(found.len(), 3);
    let nameless = json!([{"apiVersion": "v1", "kind": "Secret", "metadata": {}}]);
    assert!(try_as(UnmanagedPolicy::Created, "n/p", nameless).is_err());
}

#[test]
fn attachments_are_stamped_and_called_by_their_name() {
    let attach = |parent: &str, of: Value| {
        try_with(OwnerMark::Attached("d"), None, UnmanagedPolicy::Refused, parent, of)
            .map(|wanted| wanted.desired)
    };
    let pod = |metadata: Value| json!([{"apiVersion": "v1", "kind": "Pod", "metadata": metadata}]);
    for annotations in [json!(null), json!({}), json!({ATTACHED_BY: "another"})] {
        let found = attach("n/p", pod(json!({"name": "x", "annotations": annotations}))).unwrap();
        let stamped = json!({"name": "x", "namespace": "n", "annotations": {ATTACHED_BY: "d"}});
        assert_eq!(found[&resource("v1", "Pod")][&Key::new("n", "x")]["metadata"], stamped);
    }
    for (of, says) in [
        (pod(json!({"name": "x", "annotations": []})), "attachments[0].metadata.annotations must be"),
        (pod(json!({"name": ""})), "attachments[0].metadata.name must be"),
        (
            json!([{"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "x"}}]),
            "attachments[0] is a v1 Secret, which the controller's spec does not declare: add it to spec.attachments",
        ),
        (
            pod(json!({"name": "x", "namespace": "m"})),
            "attachments[0].metadata.namespace is \"m\"; attachments of a parent in namespace \"n\" have to",
        ),
    ] {
        let found = attach("n/p", of).unwrap_err();
        assert!(found.contains(says), "{found}");
    }
}

#[test]
fn annotations_that_are_no_strings_are_left_out_for_webhooks() {
    let pod = |name: &str, annotations: &Value| json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "annotations": annotations}});
    let long = json!({"k".repeat(300): true});
    for (annotations, says) in [
        (
            json!({"a": null, "b": "kept?"}),
            "children[1].metadata.annotations[\"a\"] must be a string, not null",
        ),
        (json!({"a": {"password": "s3cret"}}), "[\"a\"] must be a string, not an object"),
        (json!([]), "children[1].metadata.annotations must be an object of strings, not a list"),
        (long, "k…\"] must be a string, not a boolean"),
    ] {
        let children =
            json!([pod("fine", &json!({"c": "d"})), pod("x", &annotations), pod("y", &annotations)]);
        let wanted = try_as(UnmanagedPolicy::Created, "n/p", children.clone()).unwrap();
        let pods = &wanted.desired[&resource("v1", "Pod")];
        assert_eq!(pods[&Key::new("n", "fine")]["metadata"]["annotations"], json!({"c": "d"}));
        for name in ["x", "y"] {
            assert_eq!(pods[&Key::new("n", name)]["metadata"].get("annotations"), None, "all of them go");
        }
        let (why, count) = wanted.without_annotations.unwrap();
        assert_eq!(count, 2);
        let why = why.to_string();
        assert!(why.contains(says) && !why.contains("s3cret") && why.len() < 250, "{why}");
        assert_eq!(try_it("n/p", children).unwrap_err(), why, "a module's answer is refused");
    }
    let stamped = try_with(
        OwnerMark::Attached("d"),
        None,
        UnmanagedPolicy::Created,
        "n/p",
        json!([pod("x", &json!({"a": null}))]),
    )
    .unwrap();
    let pod = &stamped.desired[&resource("v1", "Pod")][&Key::new("n", "x")];
    assert_eq!(pod["metadata"]["annotations"], json!({ATTACHED_BY: "d"}));
}

#[test]
fn a_webhooks_child_without_its_namespace_fails_alone() {
    let pod = |name: &str, namespace: &str| json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": namespace}});
    let children = json!([pod("lost", ""), pod("fine", "m"), pod("lost too", "")]);
    let wanted = try_as(UnmanagedPolicy::Created, "p", children.clone()).unwrap();
    assert_eq!(wanted.desired[&resource("v1", "Pod")].keys().collect::<Vec<_>>(), [&Key::new("m", "fine")]);
    let why = wanted.failed[0].to_string();
    assert!(why.contains("children[0].metadata.namespace is missing"), "{why}");
    assert!(try_it("p", children).is_err());
}
