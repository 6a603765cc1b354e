use serde_json::json;

use super::*;
use crate::documents::of_text;

fn controller(hooks: &serde_json::Value) -> Vec<Document> {
    let controller = json!({
        "apiVersion": "metacontroller.k8s.io/v1alpha1", "kind": "CompositeController",
        "metadata": { "name": "c" }, "spec": { "hooks": hooks },
    });
    of_text("c.yaml", &controller.to_string()).unwrap()
}

fn script(name: &str, key: &str) -> serde_json::Value {
    json!({ "script": { "language": "python", "configMap": { "namespace": "n", "name": name, "key": key } } })
}

fn python(path: PathBuf) -> HookFile {
    HookFile { path, language: Some(Language::Python) }
}

#[test]
fn the_spec_decides_whether_a_file_is_a_script() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    for name in ["sync", "customize.py"] {
        std::fs::write(path(name), "").unwrap();
    }
    let module = json!({ "configMap": { "namespace": "n", "name": "m", "key": "customize.py" } });
    let hooks = json!({ "sync": script("s", "sync"), "customize": { "wasm": module } });
    let documents = controller(&hooks);
    let found = FoundFiles::beside(&[path("c.yaml")], &[]);
    let modules = HookModules::of(None, &documents, &found).unwrap();
    assert_eq!(modules.of_hook(&documents, HookName::Sync), Some(&python(path("sync"))));
    let module = HookFile { path: path("customize.py"), language: None };
    assert_eq!(modules.of_hook(&documents, HookName::Customize), Some(&module));
    let named = HookModules::of(Some("other".into()), &documents, &found).unwrap();
    assert_eq!(named.of_hook(&documents, HookName::Sync), Some(&python(path("sync"))));
    let other = HookFile { path: "other".into(), language: None };
    assert_eq!(named.of_hook(&documents, HookName::Customize), Some(&other), "a module by its name");
    let later = modules_of(&controller(&json!({ "sync": script("later", "sync") }))[0].value);
    assert_eq!(named.of_place(&later[0].0).unwrap().path, PathBuf::from("other"));
    let language = |name: &str, documents: &[Document]| HookFile::named(name.into(), documents).language;
    assert_eq!(language("x/sync", &documents), Some(Language::Python));
    assert_eq!((language("sync", &[]), language("x.py", &documents)), (None, Some(Language::Python)));
}

#[test]
fn builds_are_found_beside_files_and_in_folders() {
    let folder = tempfile::tempdir().unwrap();
    let target = folder.path().join(BUILT[1]);
    std::fs::create_dir_all(&target).unwrap();
    for file in ["b.wasm", "a.wasm", "a.d"] {
        std::fs::write(target.join(file), "").unwrap();
    }
    let found = FoundFiles::beside(&[folder.path().to_owned(), folder.path().join("controller.yaml")], &[]);
    assert_eq!(found.built, [target.join("a.wasm"), target.join("b.wasm")]);
    assert!(FoundFiles::beside(&["nowhere/x.yaml".into()], &[]).built.is_empty());
}

#[test]
fn of_files_with_one_name_the_one_beside_the_controller_counts() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    for name in ["one", "other"] {
        std::fs::create_dir(path(name)).unwrap();
        std::fs::write(path(name).join("hook.py"), "").unwrap();
    }
    let value = controller(&json!({ "sync": script("s", "hook.py") })).remove(0).value.to_string();
    let of = |file: &str| of_text(path(file).to_str().unwrap(), &value).unwrap();
    let folders = [path("one"), path("other")];
    let found = |documents: &[Document]| {
        HookModules::of(None, documents, &FoundFiles::beside(&folders, documents))
            .map(|modules| modules.of_hook(documents, HookName::Sync).cloned())
    };
    assert_eq!(found(&of("other/c.yaml")), Ok(Some(python(path("other/hook.py")))));
    let error = found(&of("c.yaml")).unwrap_err().to_string().replace(folder.path().to_str().unwrap(), "");
    let says = "a hook's key is hook.py, and /one/hook.py and /other/hook.py have this name: remove one of them, or put the right one beside the controller's file";
    assert_eq!(error, says);
    let both = [of("one/c.yaml"), of("other/c.yaml")].concat();
    assert!(found(&both).is_err(), "two controllers have one place and two files");
    std::fs::write(path("hook.py"), "").unwrap();
    assert_eq!(found(&of("c.yaml")), Ok(Some(python(path("hook.py")))), "its folder is not named");
}

#[test]
fn a_file_that_is_checked_is_of_the_hooks_that_name_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    for name in ["a.py", "b.py"] {
        std::fs::write(path(name), "").unwrap();
    }
    let hooks = json!({ "sync": script("a", "a.py"), "customize": script("b", "b.py"), "finalize": script("c", "c.py") });
    let documents = controller(&hooks);
    let found = FoundFiles::beside(&[path("c.yaml")], &documents);
    let checked = |file: &str, documents: &[Document]| {
        let file = HookFile::named(file.into(), documents);
        let modules = HookModules::checked(&file, documents, &found).unwrap();
        [HookName::Sync, HookName::Customize, HookName::Finalize]
            .map(|hook| modules.of_hook(documents, hook).map(|file| file.path.clone()))
    };
    let (a, b, other) = (Some("new/a.py".into()), Some(path("b.py")), Some("x.py".into()));
    assert_eq!(checked("new/a.py", &documents), [a, b, None], "c.py is missing");
    assert_eq!(checked("x.py", &documents), [&other, &other, &other].map(Clone::clone));
    assert_eq!(checked("x.wasm", &documents), [Some(path("a.py")), Some(path("b.py")), None]);
    assert_eq!(checked("x.py", &[]), [&other, &other, &other].map(Clone::clone));
    let wasm = json!({ "wasm": { "configMap": { "namespace": "n", "name": "m" } } });
    let mixed = controller(&json!({ "sync": wasm, "customize": script("b", "b.py") }));
    let [sync, customize, _] = checked("release/demo.wasm", &mixed);
    assert_eq!((sync, customize), (Some("release/demo.wasm".into()), Some(path("b.py"))));
}

#[test]
fn a_named_file_is_of_the_hooks_of_its_key_or_kind() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    std::fs::write(path("b.py"), "").unwrap();
    let named = |file: &str, documents: &[Document]| {
        let found = FoundFiles::beside(&[path("c.yaml")], documents);
        let modules = HookModules::of(Some(file.into()), documents, &found)?;
        Ok::<_, HookFileError>(
            [HookName::Sync, HookName::Customize].map(|hook| modules.of_hook(documents, hook).cloned()),
        )
    };
    let wasm = json!({ "wasm": { "configMap": { "namespace": "n", "name": "m" } } });
    let module = |name: &str| Some(HookFile { path: name.into(), language: None });
    let (b, x) = (Some(python(path("b.py"))), Some(python("x.py".into())));
    let mixed = controller(&json!({ "sync": script("b", "b.py"), "customize": wasm }));
    assert_eq!(named("x.py", &mixed), Ok([x.clone(), None]), "a script is no module");
    assert_eq!(named("x.wasm", &mixed), Ok([b.clone(), module("x.wasm")]));
    assert_eq!(named("new/b.py", &mixed), Ok([Some(python("new/b.py".into())), None]));
    let error = named("x.js", &mixed).unwrap_err().to_string();
    assert_eq!(error, "x.js: no hook of the controller is of this file: their keys are b.py, hook.wasm");
    let two = controller(&json!({ "sync": script("a", "a.py"), "customize": script("b", "b.py") }));
    assert_eq!(named("new/a.py", &two), Ok([Some(python("new/a.py".into())), b]), "by its key");
    assert_eq!(named("x.py", &two), Ok([x.clone(), x]));
    let any = Some(python("x.txt".into()));
    assert_eq!(named("x.txt", &two), Ok([any.clone(), any]), "all are scripts in Python");
    assert_eq!(named("x.py", &controller(&json!({ "sync": wasm }))), Ok([module("x.py"), module("x.py")]));
}

#[test]
fn each_hook_has_the_file_of_its_key() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let beside = || FoundFiles::beside(&[path("c.yaml"), folder.path().join("sub/..")], &[]);
    for name in ["a.py", "b.py", "c.py"] {
        std::fs::write(path(name), "").unwrap();
    }
    std::fs::create_dir(path("sub")).unwrap();
    let documents = controller(&json!({ "sync": script("a", "a.py"), "customize": script("b", "b.py") }));
    let modules = HookModules::of(None, &documents, &beside()).unwrap();
    assert_eq!(
        modules.of_hook(&documents, HookName::Sync),
        Some(&python(path("a.py"))),
        "the folder counts once"
    );
    assert_eq!(modules.of_hook(&documents, HookName::Customize), Some(&python(path("b.py"))));
    assert_eq!(modules.of_hook(&documents, HookName::Finalize), Some(&python(path("a.py"))), "as sync");
    assert_eq!(modules.of_hook(&[], HookName::Sync), None, "no controller names it");
    let missing = controller(&json!({ "sync": script("a", "a.py"), "customize": script("b", "none.py") }));
    let modules = HookModules::of(None, &missing, &beside()).unwrap();
    assert_eq!(modules.of_hook(&missing, HookName::Customize), None, "sync's file is another hook's");
    let named = HookModules::of(Some(path("c.py")), &documents, &beside()).unwrap();
    assert_eq!(named.of_hook(&documents, HookName::Customize), Some(&python(path("c.py"))));
    let wasm = controller(&json!({ "sync": { "wasm": { "configMap": { "namespace": "n", "name": "m" } } } }));
    std::fs::create_dir_all(path(BUILT[0])).unwrap();
    std::fs::write(path(BUILT[0]).join("hook.wasm"), "").unwrap();
    let built = HookModules::of(None, &wasm, &beside()).unwrap();
    assert_eq!(
        built.of_hook(&wasm, HookName::Sync),
        Some(&HookFile::alone(path(BUILT[0]).join("hook.wasm")))
    );
    let other = json!({ "wasm": { "configMap": { "namespace": "n", "name": "o" } } });
    let sync = json!({ "wasm": { "configMap": { "namespace": "n", "name": "m" } } });
    let two = controller(&json!({ "sync": sync, "customize": other }));
    let modules = HookModules::of(None, &two, &beside()).unwrap();
    assert_eq!(modules.of_hook(&two, HookName::Sync), None, "either could be the one that was built");
    let modules = HookModules::of(None, &[], &beside()).unwrap();
    assert_eq!(
        modules.of_hook(&[], HookName::Sync),
        Some(&HookFile::alone(path(BUILT[0]).join("hook.wasm")))
    );
    let mixed =
        HookModules::of(None, &controller(&json!({ "sync": script("d", "d.py") })), &beside()).unwrap();
    let absent = controller(&json!({ "sync": script("d", "d.py") }));
    assert_eq!(mixed.of_place(&modules_of(&absent[0].value)[0].0), None, "a module is no script");
}
