use metahook_core::settled::parent_state::ParentState;

use super::*;

fn asked(path: &str) -> Option<Asked> {
    Asked::of(&path.parse().unwrap())
}

#[test]
fn each_page_has_an_address() {
    let all = |search: &str| Some(Asked::Controllers { search: search.to_owned() });
    assert_eq!(asked("/"), all(""));
    assert_eq!(asked("/?search=a%20b&x=1"), all("a b"));
    assert_eq!((asked("/style.css"), asked("/live.js")), (Some(Asked::Style), Some(Asked::Script)));
    let filter = ParentFilter { search: "web".to_owned(), state: Some(ParentState::Failing), skip: 100 };
    let (kind, name) = (ControllerKind::Decorator, "d".to_owned());
    assert_eq!(
        asked("/controllers/DecoratorController/d?search=Web&state=failing&skip=100"),
        Some(Asked::Controller { kind, name, filter })
    );
    let find = Asked::Find { kind: "pod".to_owned(), name: "demo/a".to_owned() };
    assert_eq!(asked("/find?kind=pod&name=demo%2Fa+"), Some(find));
}

#[test]
fn an_object_is_found_by_its_link() {
    let object = TracedObject {
        group: "example.com".to_owned(),
        resource: "hellos".to_owned(),
        kind: "Hello".to_owned(),
        namespace: "n&m".to_owned(),
        name: "a/b?".to_owned(),
    };
    assert_eq!(asked(&pages::object_link(&object)), Some(Asked::Object(object)));
}

#[test]
fn there_are_no_other_pages() {
    for path in ["/controllers", "/controllers/Pod/a", "/controllers/CompositeController/a/b", "/a", "//"] {
        assert_eq!(asked(path), None, "{path}");
    }
    assert_eq!(asked(&format!("/?search={}", "x".repeat(MAX_PATH))), None);
    let odd = asked("/controllers/CompositeController/c?state=odd&skip=-1");
    let (kind, name, filter) = (ControllerKind::Composite, "c".to_owned(), ParentFilter::default());
    assert_eq!(odd, Some(Asked::Controller { kind, name, filter }));
}
