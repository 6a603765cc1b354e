//! Hooks that are scripts: called, changed, wrong, hostile. One test for each language, since the server compiles its interpreter.

use std::time::Duration;

use acceptance::api::CONFIG_MAP;
use acceptance::fixture::Fixture;
use acceptance::objects::{Hook, config_map, has_condition, is_true, text};
use acceptance::wait::until;
use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use crate::modules::digest;
use crate::pages::symptoms;
use crate::wasm;

/// A quarter of a minute on an idle machine with two cores, and over a minute beside other tests.
const MAX_COMPILATION: Duration = Duration::from_mins(5);

const GOOD: &str = r#"
import random
import sys

sys.path.insert(0, "/lib")

from words import suffix

class Names:
    pass

def child(parent, word):
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": parent["metadata"]["name"]}, "data": {"is": word + suffix()}}

def sync(parent, children):
    print("asked about", parent["metadata"]["name"])
    return {"status": {"children": len(children["ConfigMap.v1"])}, "children": [child(parent, "WORD")]}

def finalize(request):
    return {"status": {}, "children": [], "finalized": True}
"#;

/// As Metacontroller's tutorial has it, with a web server around.
const CLASS: &str = r#"
from BaseHTTPServer import BaseHTTPRequestHandler, HTTPServer
import json

class Controller(BaseHTTPRequestHandler):
  def sync(self, parent, children):
    child = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": parent["metadata"]["name"]}, "data": {"is": "class"}}
    return {"status": {}, "children": [child]}

  def do_POST(self):
    observed = json.loads(self.rfile.read(int(self.headers.getheader("content-length"))))

HTTPServer(("", 80), Controller).serve_forever()
"#;

/// Scripts that fail at a call, and what is said of each.
const WRONG: [(&str, &str); 15] = [
    (
        "def sync(parent, children):\n    return {'status': {'n': [1, float('nan')]}}\n",
        "sync.py:1: ValueError: sync returned nan at status.n[1], which JSON does not have",
    ),
    (
        "import datetime\ndef sync(parent, children):\n    return {'children': [{'d': datetime.date(2024, 5, 1)}]}\n",
        "sync.py:2: TypeError: sync returned a date at children[0].d, which JSON does not have",
    ),
    (
        "def sync(parent, children):\n    a = []\n    a.append(a)\n    return {'children': a}\n",
        "sync.py:1: ValueError: sync returned a list that holds itself at children[0]",
    ),
    (
        "def sync(parent, children):\n    return {'status': {'s': {1}}}\n",
        "sync.py:1: TypeError: sync returned a set at status.s",
    ),
    (
        "def sync(parent, children):\n    return {'status': {'s': '\\ud83d'}}\n",
        "sync.py:1: UnicodeEncodeError: sync returned a str with half of a surrogate pair at status.s",
    ),
    ("def sync(parent, children):\n    name = parent['spec']['none']\n", "sync.py:2: KeyError: 'none'"),
    ("while True:\n    pass\n", "used up its 400000000 instructions at sync.py:"),
    (
        "def sync(parent, children):\n    for n in range(9000):\n        n += 1\n    while True:\n        n += 1\n",
        "used up its 400000000 instructions at sync.py:",
    ),
    ("def other(parent):\n    return {}\n", "sync.py: no function or class method named sync (found: other)"),
    ("def sync(a, b, c, d):\n    return {}\n", "sync.py:1: sync takes 4 parameters"),
    ("def sync(parent, children):\n    return [1]\n", "sync.py:1: sync returned a list, not an object"),
    ("def f(n):\n    return f(n + 1)\n\ndef sync(request):\n    return f(0)\n", "sync.py:2: RecursionError"),
    ("def sync(request):\n    return len(bytearray(50 << 20)) * 'x'\n", "of memory and may have 64Mi"),
    (
        "import socket\n",
        "sync.py:1: ModuleNotFoundError: No module named 'socket'; see \"What a script may import\" in the book's page about Python for how to bring others; there are files that the hook mounts, and base64, ",
    ),
    ("def sync(request):\n    return open('/etc/passwd').read()\n", "sync.py:2: FileNotFoundError"),
];

/// The first script of a server waits until its interpreter is compiled.
pub(crate) async fn until_loaded(test: &Fixture, controller: &str) -> Result<()> {
    until("the script is loaded", MAX_COMPILATION, async || {
        let controller = test.controllers().get(controller).await?;
        Ok(if is_true(&controller, "ModulesLoaded") { Ok(()) } else { Err(controller["status"].to_string()) })
    })
    .await
}

pub(crate) async fn a_script_in_python_is_a_hook_and_what_is_wrong_with_it_has_a_line(
    test: &mut Fixture,
) -> Result<()> {
    test.define_kind().await?;
    let maps = test.config_maps();
    let map = |script: &str| config_map("hook", json!({}), json!({ "sync.py": script }));
    test.make(&maps, map(&GOOD.replace("WORD", "first"))).await?;
    let library = json!({ "words.py": "def suffix():\n    return ''\n" });
    test.make(&maps, config_map("library", json!({}), library)).await?;
    test.store("neighbour", &wasm::answers(&json!({ "children": [] }))?).await?;
    test.serve()?;
    let hook = || {
        let hook = Hook::script("python", test.name(), "hook", "sync.py");
        // Parents whose hook loops are reconciled again with each script.
        let hook = hook.limited("instructions", 400_000_000);
        hook.mounting("/lib", "configMap", test.name(), "library")
    };
    let controller = test.controller().making(&CONFIG_MAP, "InPlace").synced_by(hook());
    test.host(controller.finalized_by(hook())).await?;
    let has = |word: &'static str| move |child: &Value| child["data"]["is"] == word;
    until_loaded(test, test.name()).await?;
    test.create(test.parent("a")).await?;
    maps.until("a", "made", has("first")).await?;
    test.until_controller("ready", |cc| is_true(cc, "Ready") && is_true(cc, "ModulesLoaded")).await?;
    let parents = test.parents();
    parents.until("a", "counted", |parent| parent["status"]["children"] == 1).await?;

    // What does not compile is a condition, and the last good script goes on.
    maps.merge("hook", &json!({ "data": { "sync.py": "def sync(parent, children):\n    return {\n" } }))
        .await?;
    let says = |cc: &Value| {
        let message = cc["status"]["conditions"].to_string();
        has_condition(cc, "ModulesLoaded", "False", "ModuleInvalid")
            && message.contains("sync.py:2: SyntaxError")
    };
    test.until_controller("ModulesLoaded=False with the line", says).await?;
    test.create(test.parent("b")).await?;
    maps.until("b", "made by the last good one", has("first")).await?;

    for (number, (script, says)) in WRONG.into_iter().enumerate() {
        maps.merge("hook", &json!({ "data": { "sync.py": script } })).await?;
        if number == 0 {
            // What comes before it writes children; those that follow are told often enough.
            is_called(test, script).await?;
        }
        // Of one object the server records so many Events and no more.
        let parent = format!("wrong-{number}");
        test.create(test.parent(&parent)).await?;
        let names_it = |event: &Value| event["type"] == "Warning" && text(event, "/message").contains(says);
        test.until_event(&parent, "SyncError", names_it).await.with_context(|| says.to_owned())?;
        ensure!(maps.find(&parent).await?.is_none(), "{says}: something was written");
        // Events about the scripts that follow take its place.
        if says.contains("ModuleNotFoundError") {
            symptoms::is_shown(test, "ModuleNotFoundError", &symptoms::parent(test, &parent)).await?;
        }
    }
    maps.merge("hook", &json!({ "data": { "sync.py": CLASS } })).await?;
    maps.until("a", "made by the method of a class", has("class")).await?;
    maps.merge("hook", &json!({ "data": { "sync.py": GOOD.replace("WORD", "last") } })).await?;
    maps.until("b", "made by the last script", has("last")).await?;
    let pure = |cc: &Value| is_true(cc, "Pure") && is_true(cc, "Ready");
    test.until_controller("pure", pure).await?;
    let louder = json!({ "data": { "words.py": "def suffix():\n    return '!'\n" } });
    maps.merge("library", &louder).await?;
    maps.until("b", "made with the changed library", has("last!")).await?;
    parents.delete("a").await?;
    parents.until_gone("a").await
}

/// Waits until a script is the one that is called.
async fn is_called(test: &Fixture, script: &str) -> Result<Value> {
    let digest = format!("sha256:{}", digest(script.as_bytes()));
    let is = |cc: &Value| cc["status"]["hooks"]["sync"]["digest"] == *digest;
    test.until_controller("another script", is).await
}

/// Scripts in JavaScript that fail at a call, and what is said of each.
const WRONG_JS: [(&str, &str); 8] = [
    (
        "export function sync(parent) {\n  return parent.spec.none.at;\n}\n",
        "hook.js:2: TypeError: cannot read",
    ),
    ("\nfor (;;) {}\n", "used up its 4000000000 instructions at hook.js:"),
    ("export function other() {}\n", "hook.js: no function or class method named sync (found: other)"),
    ("export function sync(a, b, c, d) {}\n", "hook.js:1: TypeError: sync has 4 parameters"),
    (
        "export function sync(request) { return { status: { id: 9007199254740993 } }; }\n",
        "hook.js:1: RangeError: sync returned the integer 9007199254740992",
    ),
    ("export function sync(request) { return [1]; }\n", "hook.js:1: TypeError: sync returned an array"),
    (
        "function f(n) { return f(n + 1) + 1; }\nexport const sync = (request) => f(0);\n",
        "hook.js:1: RangeError",
    ),
    (
        "export function sync(request) { return fetch('http://x'); }\n",
        "hook.js:1: ReferenceError: fetch is not defined",
    ),
];

const GOOD_JS: &str = r#"
export default {
  async sync({ parent, children }) {
    console.log("asked about", parent.metadata.name);
    const child = { apiVersion: "v1", kind: "ConfigMap", metadata: { name: parent.metadata.name }, data: { is: "WORD" } };
    return { status: { children: Object.keys(children["ConfigMap.v1"]).length }, children: [child] };
  },
};
"#;

pub(crate) async fn a_script_in_javascript_is_a_hook_and_what_is_wrong_with_it_has_a_line(
    test: &mut Fixture,
) -> Result<()> {
    test.define_kind().await?;
    let maps = test.config_maps();
    let stored = |script: &str| json!({ "data": { "hook.js": script } });
    let good = |word: &str| GOOD_JS.replace("WORD", word);
    test.make(&maps, config_map("hook", json!({}), json!({ "hook.js": good("first") }))).await?;
    test.serve()?;
    let hook = Hook::script("javascript", test.name(), "hook", "hook.js");
    test.host(test.controller().making(&CONFIG_MAP, "InPlace").synced_by(hook)).await?;
    let has = |word: &'static str| move |child: &Value| child["data"]["is"] == word;
    test.create(test.parent("a")).await?;
    maps.until("a", "made", has("first")).await?;
    test.parents().until("a", "counted", |parent| parent["status"]["children"] == 1).await?;

    maps.merge("hook", &stored("export function sync(parent) {\n  return {\n")).await?;
    let says = |cc: &Value| {
        let message = cc["status"]["conditions"].to_string();
        has_condition(cc, "ModulesLoaded", "False", "ModuleInvalid")
            && message.contains("hook.js:3: SyntaxError")
    };
    test.until_controller("ModulesLoaded=False with the line", says).await?;
    for (number, (script, says)) in WRONG_JS.into_iter().enumerate() {
        maps.merge("hook", &stored(script)).await?;
        let parent = format!("wrong-{number}");
        test.create(test.parent(&parent)).await?;
        let names_it = |event: &Value| event["type"] == "Warning" && text(event, "/message").contains(says);
        test.until_event(&parent, "SyncError", names_it).await.with_context(|| says.to_owned())?;
    }
    maps.merge("hook", &stored(&good("last"))).await?;
    maps.until("a", "made by the last script", has("last")).await?;
    let pure = |cc: &Value| is_true(cc, "Pure") && is_true(cc, "Ready");
    test.until_controller("pure", pure).await.map(drop)
}

/// Answers what its settings say, or goes on without an end.
const SETTINGS_JS: &str = r#"
export function sync({ parent, settings }) {
  while (parent.spec.who === "endless") {}
  const metadata = { name: parent.metadata.name };
  return { children: [{ apiVersion: "v1", kind: "ConfigMap", metadata, data: { is: settings.word } }] };
}
"#;

pub(crate) async fn a_script_has_a_pin_settings_and_limits_as_a_module_has(test: &mut Fixture) -> Result<()> {
    test.define_kind().await?;
    let maps = test.config_maps();
    let map = config_map("hook", json!({}), json!({ "hook.js": SETTINGS_JS }));
    test.make(&maps, map).await?;
    test.serve()?;
    let hook = |word: &str, pin: &str| {
        let hook = Hook::script("javascript", test.name(), "hook", "hook.js").pinned_to(pin);
        hook.with_settings(json!({ "word": word })).limited("instructions", 50_000_000)
    };
    let controller =
        |word: &str, pin: &str| test.controller().making(&CONFIG_MAP, "InPlace").synced_by(hook(word, pin));
    let (wrong, right) = (digest(b"another script"), digest(SETTINGS_JS.as_bytes()));
    let (pinned_to_another, first, second) =
        (controller("none", &wrong), controller("first", &right), controller("second", &right));
    test.host(pinned_to_another).await?;
    let refused = |cc: &Value| has_condition(cc, "ModulesLoaded", "False", "DigestMismatch");
    test.until_controller("another digest", refused).await?;
    test.create(test.parent("a")).await?;
    test.controllers().merge(test.name(), &first.json()).await?;
    let has = |word: &'static str| move |child: &Value| child["data"]["is"] == word;
    maps.until("a", "made by the pinned script", has("first")).await?;
    let called = is_called(test, SETTINGS_JS).await?;
    let hook = &called["status"]["hooks"]["sync"];
    ensure!(text(hook, "/runner").starts_with("sha256:") && hook["runner"] != hook["digest"], "{hook:#}");
    test.controllers().merge(test.name(), &second.json()).await?;
    maps.until("a", "made with other settings", has("second")).await?;
    test.create(test.parent("b").greeting("endless")).await?;
    let says = |event: &Value| text(event, "/message").contains("used up its 50000000 instructions");
    test.until_event("b", "SyncError", says).await.map(drop)
}
