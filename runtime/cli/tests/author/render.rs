//! `metahook render`: what is written, round by round, by hooks of every kind, and each way that it cannot be said.

use serde_json::{Value, json};

use crate::webhook::Webhook;
use crate::{Ended, Folder};

pub(crate) const CRD: &str = "
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: things.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {kind: Thing, plural: things}
  versions:
  - {name: v1, served: true, storage: true, subresources: {status: {}}}
";

pub(crate) const PARENT: &str = "
apiVersion: example.com/v1
kind: Thing
metadata: {name: a, namespace: ns}
spec: {size: 1}
";

/// A CompositeController of Things whose children are ConfigMaps.
pub(crate) fn composite(hooks: &Value, method: &str) -> String {
    json!({
        "apiVersion": "metacontroller.k8s.io/v1alpha1", "kind": "CompositeController",
        "metadata": {"name": "c"},
        "spec": {
            "generateSelector": true,
            "parentResource": {"apiVersion": "example.com/v1", "resource": "things"},
            "childResources": [
                {"apiVersion": "v1", "resource": "configmaps", "updateStrategy": {"method": method}},
                {"apiVersion": "v1", "resource": "secrets"},
            ],
            "hooks": hooks,
        },
    })
    .to_string()
}

pub(crate) fn module() -> Value {
    json!({"sync": {"wasm": {"configMap": {"namespace": "n", "name": "hook"}}}})
}

fn webhook(webhook: &Webhook) -> Value {
    json!({"webhook": {"url": webhook.url}})
}

fn folder(controller: &str) -> Folder {
    Folder::new().with("controller.yaml", controller).with("crd.yaml", CRD).with("parent.yaml", PARENT)
}

/// With the usual files and these arguments.
fn render(folder: &Folder, more: &[&str]) -> Ended {
    let files = ["render", "-f", "controller.yaml", "-f", "crd.yaml", "-f", "parent.yaml"];
    folder.metahook(&[&files[..], more].concat())
}

/// The changes of each round, as `<change> <object>`.
fn changes(ended: &Ended) -> Vec<Vec<String>> {
    let said: Value = serde_json::from_str(&ended.out).unwrap_or_else(|error| panic!("{error}: {ended:#?}"));
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let round = |round: &Value| {
        let all = round.as_array().unwrap().iter().flat_map(|one| one["changes"].as_array().unwrap());
        all.map(|change| text(&change["change"]) + " " + &text(&change["object"])).collect()
    };
    said["rounds"].as_array().unwrap().iter().map(round).collect()
}

pub(crate) fn config_map(name: &str, text: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"text": text}})
}

#[test]
fn children_come_first_then_the_status_and_then_nothing() {
    let answer = json!({"children": [config_map("a", "x")], "status": {"is": "fine"}});
    let folder = folder(&composite(&module(), "InPlace")).answers("hook.wasm", &answer.to_string());
    let one = render(&folder, &["--module", "hook.wasm", "--output=json"]);
    one.is(0, "the status is written in the next reconcile");
    assert_eq!(changes(&one), [["create ConfigMap ns/a"]]);
    let all = render(&folder, &["--module", "hook.wasm", "--output=json", "--cycles=9"]);
    all.is(0, "settled: round 3 changes nothing");
    let expected: [&[&str]; 3] = [&["create ConfigMap ns/a"], &["status Thing ns/a"], &[]];
    assert_eq!(changes(&all), expected);
    let again = render(&folder, &["--module", "hook.wasm", "--output=json", "--cycles=9"]);
    let without_times = |ended: &Ended| {
        let mut said: Value = serde_json::from_str(&ended.out).unwrap();
        for round in said["rounds"].as_array_mut().unwrap() {
            round[0]["calls"] = Value::Null;
        }
        said
    };
    assert_eq!(without_times(&all), without_times(&again), "the same in every run");
    let last = &without_times(&all)["rounds"][1][0]["changes"][0]["after"];
    assert_eq!(last["status"], json!({"is": "fine", "observedGeneration": 1}));
}

#[test]
fn a_folder_stands_for_its_files() {
    let answer = json!({"children": [config_map("a", "x")]}).to_string();
    let folder =
        folder(&composite(&module(), "InPlace")).answers("hook.wasm", &answer).with("x/README.md", "");
    let ended = folder.metahook(&["render", "-f", ".", "--module=hook.wasm"]);
    ended.is(0, "the status is written in the next reconcile");
    assert_eq!(ended.out, render(&folder, &["--module=hook.wasm"]).out);
    folder.metahook(&["render", "-f", "x"]).is(2, "-f: x: it has no files that end in .yaml, .yml or .json");
}

#[test]
fn each_format_shows_the_same_change() {
    let answer = json!({"children": [config_map("a", "x")]}).to_string();
    let folder = folder(&composite(&module(), "InPlace")).answers("hook.wasm", &answer);
    let shown = |format: &str| render(&folder, &["--module=hook.wasm", "--output", format]).out;
    let yaml = shown("yaml");
    assert!(
        yaml.starts_with("# round 1: create ConfigMap ns/a\napiVersion: v1\ndata:\n  text: x\n"),
        "{yaml}"
    );
    assert!(!yaml.contains("creationTimestamp"), "{yaml}");
    let diff = shown("diff");
    assert!(
        diff.starts_with("# round 1: create ConfigMap ns/a\n+ apiVersion: v1\n+ data:\n+   text: x\n"),
        "{diff}"
    );
    assert_eq!(shown("table"), "ROUND  CHANGE     OBJECT\n1      create     ConfigMap ns/a\n");
}

#[test]
fn what_is_there_is_updated_deleted_and_left() {
    let first = json!({"children": [config_map("a", "x"), config_map("b", "x")]}).to_string();
    let folder = folder(&composite(&module(), "InPlace")).answers("hook.wasm", &first);
    let made = render(&folder, &["--module=hook.wasm", "--output=json", "--cycles=3"]);
    let said: Value = serde_json::from_str(&made.out).unwrap();
    let all =
        said["rounds"].as_array().unwrap().iter().flat_map(|round| round[0]["changes"].as_array().unwrap());
    let after: Vec<_> = all.map(|change| &change["after"]).filter(|after| after["kind"] != "Thing").collect();
    // They name their owner without its uid, as a person would write them.
    let mut items = json!(after);
    for item in items.as_array_mut().unwrap() {
        item["metadata"]["ownerReferences"][0].as_object_mut().unwrap().remove("uid");
    }
    let folder = folder.with("observed.json", json!({"kind": "List", "items": items}).to_string());
    let second = json!({"children": [config_map("a", "z")]}).to_string();
    let folder = folder.answers("hook.wasm", &second);
    let then = render(&folder, &["-f", "observed.json", "--module=hook.wasm", "--output=json"]);
    assert_eq!(changes(&then), [["delete ConfigMap ns/b", "replace ConfigMap ns/a"]]);
    let diff = render(&folder, &["-f", "observed.json", "--module=hook.wasm", "--output=diff"]).out;
    assert!(diff.contains("-   text: x\n+   text: z\n"), "{diff}");
    let folder = folder.with("controller.yaml", composite(&module(), "OnDelete"));
    let left = render(&folder, &["-f", "observed.json", "--module=hook.wasm", "--output=json"]);
    left.is(0, "ConfigMap ns/a differs from what the hook wants, and its updateStrategy OnDelete leaves it");
    assert_eq!(changes(&left), [["delete ConfigMap ns/b"]]);
}

#[test]
fn a_hook_that_takes_back_its_own_answer_oscillates() {
    let hook = Webhook::serve(|request| {
        let now = request["children"]["ConfigMap.v1"]["a"]["data"]["text"].as_str().unwrap_or_default();
        json!({"children": [config_map("a", if now == "even" { "odd" } else { "even" })]})
    });
    let folder = folder(&composite(&json!({"sync": webhook(&hook)}), "InPlace"));
    let ended = render(&folder, &["--cycles=20"]);
    ended.is(1, "it oscillates: after round 3 all is as after round 1");
    ended.is(1, "children[0].data.text: \"odd\" -> \"even\"");
}

#[test]
fn a_finalizer_comes_first_and_goes_last() {
    let hook = Webhook::serve(|request| {
        let left = request["children"]["ConfigMap.v1"].as_object().unwrap().len();
        if request["finalizing"] == true {
            json!({"children": [], "finalized": left == 0})
        } else {
            json!({"children": [config_map("a", "x")]})
        }
    });
    let hooks = json!({"sync": webhook(&hook), "finalize": webhook(&hook)});
    let mut folder = folder(&composite(&hooks, "InPlace"));
    let ended = render(&folder, &["--output=json"]);
    assert_eq!(changes(&ended)[0][..2], ["finalizer Thing ns/a", "create ConfigMap ns/a"]);
    let said: Value = serde_json::from_str(&ended.out).unwrap();
    let child = &said["rounds"][0][0]["changes"][1]["after"];
    let mut parent: Value = said["rounds"][0][0]["changes"][0]["after"].clone();
    parent["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    folder = folder.with("parent.yaml", parent.to_string()).with("child.json", child.to_string());
    let ended = render(&folder, &["-f", "child.json", "--output=json", "--cycles=5"]);
    let said = changes(&ended).concat();
    assert_eq!(
        (said.first().unwrap().as_str(), said.last().unwrap().as_str()),
        ("delete ConfigMap ns/a", "delete Thing ns/a")
    );
}

#[test]
fn a_customize_hook_is_shown_the_related_objects_of_the_files() {
    let customize = Webhook::serve(|_| {
        let rule = json!({"apiVersion": "v1", "resource": "services", "labelSelector": {"matchLabels": {"app": "x"}}});
        json!({"relatedResources": [rule]})
    });
    let sync = Webhook::serve(|request| {
        let names: Vec<_> = request["related"]["Service.v1"].as_object().unwrap().keys().cloned().collect();
        json!({"children": [config_map("names", &names.join(","))]})
    });
    let hooks = json!({"sync": webhook(&sync), "customize": webhook(&customize)});
    let service = |name: &str, app: &str| {
        format!(
            "apiVersion: v1\nkind: Service\nmetadata: {{name: {name}, namespace: ns, labels: {{app: {app}}}}}\n---\n"
        )
    };
    let related = service("one", "x") + &service("two", "x") + &service("other", "z");
    let folder = folder(&composite(&hooks, "InPlace")).with("related.yaml", related);
    let ended = render(&folder, &["-f", "related.yaml"]);
    ended.is(0, "customize hook: ");
    assert!(ended.out.contains("text: \"one,two\""), "{}", ended.out);
}

#[test]
fn a_decorator_writes_the_object_itself_and_its_attachments() {
    let answer = json!({"labels": {"seen": "yes"}, "attachments": [config_map("extra", "x")]}).to_string();
    let controller = json!({
        "apiVersion": "metacontroller.k8s.io/v1alpha1", "kind": "DecoratorController",
        "metadata": {"name": "d"},
        "spec": {
            "resources": [{"apiVersion": "v1", "resource": "services"}],
            "attachments": [{"apiVersion": "v1", "resource": "configmaps"}],
            "hooks": module(),
        },
    });
    let service = "{apiVersion: v1, kind: Service, metadata: {name: s}}";
    let folder = Folder::new()
        .with("all.yaml", format!("{controller}\n---\n{service}\n"))
        .answers("hook.wasm", &answer);
    let ended = folder.metahook(&[
        "render",
        "-f",
        "all.yaml",
        "--module=hook.wasm",
        "--output=json",
        "-n",
        "m",
        "--cycles=3",
    ]);
    ended.is(0, "settled: round 2 changes nothing");
    assert_eq!(changes(&ended)[0], ["replace Service m/s", "create ConfigMap m/extra"]);
}

#[test]
fn a_rolling_update_records_its_revision() {
    let answer = json!({"children": [config_map("a", "x")]}).to_string();
    let folder = folder(&composite(&module(), "RollingInPlace")).answers("hook.wasm", &answer);
    let ended = render(&folder, &["--module=hook.wasm", "--output=json", "--cycles=9"]);
    ended.is(0, "settled");
    let first = &changes(&ended)[0];
    assert!(
        first[0].starts_with("create ControllerRevision ns/") && first[1] == "create ConfigMap ns/a",
        "{first:?}"
    );
}

#[test]
fn values_of_secrets_are_shown_nowhere() {
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "stringData": {"key": "sesame"}});
    let answer = json!({"children": [secret]}).to_string();
    let folder = folder(&composite(&module(), "InPlace")).answers("hook.wasm", &answer);
    for format in ["yaml", "diff", "table", "json"] {
        let ended = render(&folder, &["--module=hook.wasm", "--output", format, "--cycles=3"]);
        ended.is(0, "settled");
        assert!(!format!("{ended:?}").contains("sesame"), "{ended:#?}");
    }
}

#[test]
fn what_the_hook_does_wrong_fails_with_its_place() {
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}});
    let folder = folder(&composite(&module(), "InPlace"));
    let with = |answer: Value| {
        let folder = folder.0.path();
        let module = crate::module(&crate::prints(1, &answer.to_string()));
        std::fs::write(folder.join("hook.wasm"), module).unwrap();
    };
    with(json!({"children": [pod]}));
    let run = || render(&folder, &["--module=hook.wasm", "--cycles=3"]);
    run().is(1, "Thing ns/a: sync hook: the hook's answer: children[0] is a v1 Pod, which the controller's spec does not declare");
    with(json!({}));
    run().is(1, "the hook's answer has no field children");
}

#[test]
fn a_child_whose_name_is_taken_fails_and_says_whose_it_is() {
    let answer = json!({"children": [config_map("a", "x"), config_map("b", "x")]}).to_string();
    let other = "{apiVersion: v1, kind: ConfigMap, metadata: {name: a, namespace: ns, ownerReferences: [{apiVersion: v1, kind: Pod, name: p, uid: u, controller: true}]}}";
    let folder =
        folder(&composite(&module(), "InPlace")).answers("hook.wasm", &answer).with("other.yaml", other);
    let ended = render(&folder, &["-f", "other.yaml", "--module=hook.wasm", "--output=json"]);
    ended.is(1, "create ConfigMap ns/a: an object of that name exists already, whose controller is Pod p");
    assert_eq!(changes(&ended), [["create ConfigMap ns/b", "status Thing ns/a"]]);
}

#[test]
fn files_that_do_not_fit_are_named_with_their_place() {
    let answer = json!({"children": []}).to_string();
    let folder = folder(&composite(&module(), "InPlace"))
        .answers("hook.wasm", &answer)
        .with("broken.yaml", "a: 1\n---\nb: [")
        .with("podd.yaml", "# first\n---\napiVersion: v1\nkind: Podd\nmetadata: {name: p}")
        .with("nameless.yaml", "{apiVersion: v1, kind: Pod}")
        .with("kindless.yaml", "{metadata: {name: p}}")
        .with("off.yaml", composite(&module(), "InPlace").replace("\"n\"", "false"))
        .with("yes.yaml", "{apiVersion: v1, kind: Pod, metadata: {name: p, labels: {app: yes}}}")
        .with("no.yaml", "{apiVersion: v1, kind: Pod, metadata: {name: p, namespace: no}}")
        .with("node.yaml", "{apiVersion: v1, kind: Node, metadata: {name: x, namespace: ns}}")
        .with("text.wasm", "hello");
    let run = |more: &[&str]| render(&folder, &[&["--module=hook.wasm"], more].concat());
    run(&["-f", "none.yaml"]).is(2, "-f: none.yaml cannot be read: No such file");
    run(&["-f", "broken.yaml"]).is(2, "-f: broken.yaml, document 2 (line 2) is neither YAML nor JSON");
    run(&["-f", "podd.yaml"]).is(2, "podd.yaml, document 1 (line 2): v1 Podd is not built in");
    run(&["-f", "nameless.yaml"])
        .is(2, "nameless.yaml, document 1 (line 1): the object is not the JSON of a Kubernetes object");
    run(&["-f", "kindless.yaml"])
        .is(2, "kindless.yaml, document 1 (line 1): the object names no apiVersion and kind");
    run(&["-f", "no.yaml"]).is(2, "no.yaml, document 1 (line 1): metadata.namespace is the boolean false, and a text is expected: n, no and off are booleans in YAML");
    run(&["-f", "yes.yaml"]).is(2, "metadata.labels.app is the boolean true");
    run(&["-f", "node.yaml"]).is(2, "Node x has no namespaces, and names the namespace \"ns\"");
    run(&["-f", "parent.yaml"]).is(2, "is the same object as one before it: Thing ns/a");
    run(&["-f", "controller.yaml"]).is(2, "are controllers, and one is tried at a time");
    run(&["--cycles=0"]).is(2, "--cycles");
    run(&["--mount=/x=none"]).is(2, "--mount none");
    let bare = |arguments: &[&str]| folder.metahook(&[&["render"], arguments].concat());
    bare(&["-f", "crd.yaml"]).is(2, "the files hold no CompositeController and no DecoratorController");
    bare(&[]).is(2, "--file");
    bare(&["-f", "off.yaml"]).is(2, "off.yaml, document 1 (line 1): n, no and off are booleans in YAML: write such a text in quotes, \"n\": the spec cannot be read: invalid type");
    bare(&["-f", "controller.yaml", "-f", "parent.yaml"])
        .is(2, "controller.yaml, document 1 (line 1): spec: example.com/v1 things is not built in");
    bare(&["-f", "controller.yaml", "-f", "crd.yaml", "--module=hook.wasm"])
        .is(2, "the files hold no object that the controller selects, which would be example.com/v1 things");
    render(&folder, &[]).is(0, "1 change");
    std::fs::rename(folder.path("hook.wasm"), folder.path("other.wasm")).unwrap();
    render(&folder, &[])
        .is(2, "the sync hook of the controller is a module: build it (`cargo build --target wasm32-wasip1 --release`), or name its file with --module");
    std::fs::rename(folder.path("other.wasm"), folder.path("hook.wasm")).unwrap();
    render(&folder, &["--module=none.wasm"]).is(2, "none.wasm cannot be read");
    render(&folder, &["--module=text.wasm"]).is(1, "text.wasm: this is not a WebAssembly module");
    let mut spec: Value = serde_json::from_str(&composite(&module(), "InPlace")).unwrap();
    spec["spec"]["hooks"]["sync"]["wasm"]["limits"] = json!({"memory": "600Mi"});
    let folder = folder.with("controller.yaml", spec.to_string());
    render(&folder, &["--module=hook.wasm"])
        .is(2, "controller.yaml, document 1 (line 1): spec.hooks.sync.wasm.limits.memory: 600Mi is above");
    spec["spec"]["hooks"]["sync"]["wasm"] = json!({
        "configMap": {"namespace": "n", "name": "h"},
        "mounts": [{"path": "/etc/x", "configMap": {"namespace": "n", "name": "x"}}],
    });
    let folder = folder.with("controller.yaml", spec.to_string());
    render(&folder, &["--module=hook.wasm"]).is(2, "name a folder with --mount /etc/x=FOLDER");
}

/// ConfigMaps of the parent, as the server that the controller's status tells of has left them.
fn owned(names: &[&str]) -> String {
    let owner =
        json!({"apiVersion": "example.com/v1", "kind": "Thing", "name": "a", "uid": "u", "controller": true});
    let one = |name: &&str| {
        let mut map = config_map(name, "x");
        map["metadata"] = json!({"name": name, "namespace": "ns", "labels": {"controller-uid": "u"}});
        let applied = map.to_string();
        map["metadata"]["ownerReferences"] = json!([owner]);
        map["metadata"]["annotations"] = json!({
            "metacontroller.k8s.io/last-applied-configuration": applied, "metahook.dev/controller": "c",
        });
        map.to_string()
    };
    names.iter().map(one).collect::<Vec<_>>().join("\n---\n")
}

const PARENT_U: &str =
    "{apiVersion: example.com/v1, kind: Thing, metadata: {name: a, namespace: ns, uid: u}, spec: {size: 1}}";

/// The controller as a server has left it that ran another module.
fn with_status(controller: &str, digest: &str) -> String {
    let mut controller: Value = serde_json::from_str(controller).unwrap();
    controller["status"] =
        json!({"hooks": {"sync": {"digest": digest}}, "deletions": {"accepted": "before"}});
    controller.to_string()
}

#[test]
fn deletions_after_a_change_of_the_hook_are_held_as_by_the_server() {
    let composite = composite(&module(), "InPlace");
    let names = ["a", "b", "c", "d", "e", "f"];
    let answer = json!({"children": []}).to_string();
    for (controller, names, expected) in [
        (with_status(&composite, "sha256:other"), &names[..], Err("the deletion of 6 children waits")),
        (with_status(&composite, "sha256:other"), &names[..5], Ok(5)),
        (composite, &names[..], Ok(6)),
    ] {
        let folder = folder(&controller).answers("hook.wasm", &answer);
        let folder = folder.with("parent.yaml", PARENT_U).with("children.yaml", owned(names));
        let ended = render(&folder, &["-f", "children.yaml", "--module=hook.wasm", "--output=json"]);
        match expected {
            Err(why) => {
                ended.is(1, why);
                assert_eq!(changes(&ended), [[""; 0]], "nothing is written");
            }
            Ok(deleted) => {
                let deletions = changes(&ended)[0].iter().filter(|one| one.starts_with("delete")).count();
                assert_eq!(deletions, deleted, "{ended:#?}");
            }
        }
    }
}

#[test]
fn after_a_change_of_the_hook_no_child_is_deleted_that_could_not_be_made_again() {
    let mut child = config_map("a", "y");
    child["data"] = json!({"text": 7});
    let answer = json!({"children": [child]}).to_string();
    let composite = composite(&module(), "Recreate");
    let run = |controller: &str| {
        let folder = folder(controller).answers("hook.wasm", &answer);
        let folder = folder.with("parent.yaml", PARENT_U).with("children.yaml", owned(&["a"]));
        render(&folder, &["-f", "children.yaml", "--module=hook.wasm", "--output=json"])
    };
    let held = run(&with_status(&composite, "sha256:other"));
    held.is(1, "nor recreated, so it is left as it is: data.text is a number");
    assert_eq!(changes(&held), [["status Thing ns/a"]]);
    assert!(changes(&run(&composite))[0].contains(&"recreate ConfigMap ns/a".to_owned()), "as by the server");
}
