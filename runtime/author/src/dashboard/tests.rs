use metahook_core::settled::parent_state::ParentState;

use super::*;

fn asked(path: &str) -> Option<PageRequest> {
    let (path, query) = path.split_once('?').unwrap_or((path, ""));
    PageRequest::of(path, query)
}

#[test]
fn each_page_has_an_address() {
    let all = |search: &str| Some(PageRequest::Controllers { search: search.to_owned() });
    assert_eq!(asked("/"), all(""));
    assert_eq!(asked("/?search=a%20b&x=1"), all("a b"));
    assert_eq!(
        (asked("/style.css"), asked("/live.js")),
        (Some(PageRequest::Style), Some(PageRequest::Script))
    );
    let filter = ParentFilter { search: "web".to_owned(), state: Some(ParentState::Failing), skip: 100 };
    let (kind, name) = (ControllerKind::Decorator, "d".to_owned());
    assert_eq!(
        asked("/controllers/DecoratorController/d?search=Web&state=failing&skip=100"),
        Some(PageRequest::Controller { kind, name, filter })
    );
    let find = PageRequest::Find { kind: "pod".to_owned(), name: "demo/a".to_owned() };
    assert_eq!(asked("/find?kind=pod&name=demo%2Fa+"), Some(find));
}

#[test]
fn an_object_is_found_by_its_link() {
    let object = TracedObject {
        group: "example.com".into(),
        resource: "hellos".into(),
        kind: "Hello".into(),
        namespace: "n&m".into(),
        name: "a/b?".into(),
    };
    let link = Site::for_tests().object_link(&object);
    assert_eq!(asked(link.strip_prefix("/0f").unwrap()), Some(PageRequest::Object(object)));
}

#[test]
fn the_calls_about_a_parent_are_found_by_their_link() {
    let controller = TracedObject::new(&resource(ControllerKind::Decorator), &Key::new("", "c&d"));
    let parent = TracedObject {
        resource: "pods".into(),
        kind: "Pod".into(),
        name: "a/b?".into(),
        ..TracedObject::default()
    };
    let link = Site::for_tests().calls_link((&controller.kind, &controller.name), &parent);
    let found = asked(link.strip_prefix("/0f").unwrap());
    assert_eq!(found, Some(PageRequest::Calls(CallSubject { controller, parent })));
}

#[test]
fn there_are_no_other_pages() {
    for path in [
        "/calls",
        "/calls?controllerKind=Pod&controller=a&resource=pods&name=a",
        "/calls?controllerKind=CompositeController&controller=a&resource=pods",
        "/calls?controllerKind=CompositeController&controller=a&name=a",
        "/calls?controllerKind=CompositeController&resource=pods&name=a",
        "/controllers",
        "/controllers/Pod/a",
        "/controllers/CompositeController/a/b",
        "/a",
        "//",
    ] {
        assert_eq!(asked(path), None, "{path}");
    }
    assert_eq!(asked(&format!("/?search={}", "x".repeat(MAX_PATH))), None);
    let odd = asked("/controllers/CompositeController/c?state=odd&skip=-1");
    let (kind, name, filter) = (ControllerKind::Composite, "c".to_owned(), ParentFilter::default());
    assert_eq!(odd, Some(PageRequest::Controller { kind, name, filter }));
}
