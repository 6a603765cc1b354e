//! Tests of discovery.

use http::Response;

use super::*;
use crate::cluster::fake;

#[tokio::test]
async fn a_kind_is_found_in_another_version_than_the_one_that_is_no_longer_served() {
    let api = fake::answering(|request| {
        let body = match request.uri().path() {
            "/apis/e.com" => r#"{"versions":[{"version":"v3"},{"version":"v2"}]}"#,
            "/apis/e.com/v2" => r#"{"resources":[{"name":"things","kind":"Thing","namespaced":true}]}"#,
            "/apis/e.com/v3" => r#"{"resources":[]}"#,
            _ => "",
        };
        let status = if body.is_empty() { 404 } else { 200 };
        Response::builder().status(status).body(body.to_owned()).ok()
    });
    let discovery = Discovery::new(api);
    for version in ["v1", "v2"] {
        let things = discovery.resolve_any_version(&Gvr::new(&format!("e.com/{version}"), "things")).await;
        assert_eq!(things.unwrap().gvr(), Gvr::new("e.com/v2", "things"));
    }
    for gone in [Gvr::new("e.com/v1", "others"), Gvr::new("f.com/v1", "things"), Gvr::new("v1", "things")] {
        let error = discovery.resolve_any_version(&gone).await.unwrap_err();
        assert!(matches!(error, DiscoveryError::NotServed(named) if named == gone));
    }
}

#[tokio::test]
async fn the_singular_and_short_names_of_kinds_are_found() {
    let list = r#"{"resources":[
        {"name":"clusters/status","kind":"Cell","namespaced":true,"singularName":""},
        {"name":"clusters","kind":"Cell","namespaced":true,"singularName":"shard","shortNames":["sh"]},
        {"name":"things","kind":"Thing","namespaced":true}]}"#;
    let discovery = Discovery::new(fake::answering(move |_| Response::builder().body(list.to_owned()).ok()));
    let names = discovery.other_names(("e.com", "v1")).await.unwrap();
    for (plural, expected) in [("clusters", &["shard", "sh"][..]), ("things", &[])] {
        assert_eq!(names[plural], expected);
    }
}

#[tokio::test]
async fn a_broken_aggregated_api_is_named_with_its_api_service() {
    let answered = async |status: u16, body: &'static str, gvr: Gvr| {
        let api = fake::answering(move |_| Response::builder().status(status).body(body.to_owned()).ok());
        Discovery::new(api).resolve(&gvr).await.unwrap_err()
    };
    let things = || Gvr::new("broken.cases.test/v1beta1", "things");
    // The words of the API server where the Service of an APIService has no endpoints.
    let error = answered(503, "service unavailable\n", things()).await;
    assert!(error.is_unavailable() && !error.is_not_served() && !error.is_unreachable());
    assert_eq!(
        error.to_string(),
        "the API server cannot tell whether it serves broken.cases.test/v1beta1 things: discovery of broken.cases.test/v1beta1 fails (HTTP status 503: service unavailable); see `kubectl get apiservice v1beta1.broken.cases.test`"
    );
    let error = answered(200, "<html>", things()).await.to_string();
    assert!(error.contains("kubectl get apiservice v1beta1.broken.cases.test"), "{error}");
    for (status, gvr) in [(403, things()), (500, Gvr::new("v1", "pods"))] {
        let error = answered(status, "no", gvr.clone()).await;
        assert!(error.is_unavailable(), "{error}");
        let text = error.to_string();
        assert!(text.contains(&gvr.to_string()) && !text.contains("apiservice"), "{text}");
    }
    assert!(answered(404, "404 page not found", things()).await.is_not_served());
}
