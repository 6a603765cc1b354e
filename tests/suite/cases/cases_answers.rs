//! Cases of values in the answers of scripts: those that JSON does not have, or has as others. They are called without a server.

use acceptance::fixture::Fixture;
use anyhow::{Result, ensure};
use metahook_core::api::hook::Language;
use serde_json::json;

use crate::purity::{Probe, request};

/// Answers that Python cannot print as JSON, with what is said of each.
const NO_JSON: [(&str, &str); 13] = [
    ("float('nan')", "sync returned nan at status.v, which JSON does not have"),
    ("datetime.date(2024, 5, 1)", "sync returned a date at status.v, which JSON does not have"),
    ("{1}", "sync returned a set at status.v"),
    ("b'x'", "sync returned a bytes at status.v"),
    ("'\\ud83d'", "sync returned a str with half of a surrogate pair at status.v"),
    (
        "[{8080: 1, '8080': 2}]",
        "TypeError: sync returned a key of type int (8080) at status.v[0], which JSON",
    ),
    ("{1.5: 1}", "TypeError: sync returned a key of type float (1.5) at status.v"),
    ("{-1: 1}", "TypeError: sync returned a key of type int (-1) at status.v"),
    ("{None: 1}", "TypeError: sync returned a key of type NoneType (None) at status.v"),
    ("{True: 1}", "TypeError: sync returned a key of type bool (True) at status.v"),
    ("2 ** 64", "OverflowError: sync returned an integer of more than 64 bits at status.v, which the server"),
    ("[-2 ** 63 - 1]", "OverflowError: sync returned an integer of more than 64 bits at status.v[0]"),
    ("10 ** 5000", "OverflowError: sync returned an integer of more than 64 bits at status.v"),
];

/// C38: what JSON does not have is refused with its line and path.
pub(crate) async fn c38_what_python_cannot_print_as_json_is_refused(_: &mut Fixture) -> Result<()> {
    for (value, says) in NO_JSON {
        let script = format!(
            "import datetime\ndef sync(parent, children):\n    return {{'status': {{'v': {value}}}, 'children': []}}\n"
        );
        let failure =
            Probe::load_script(Language::Python, "sync.py", &script).await?.failure(&request()).await?;
        ensure!(failure.contains("sync.py:2: ") && failure.contains(says), "{failure}\nis not\n{says}");
    }
    let script = "def sync(request):\n    keys = {'8080': 2 ** 64 - 1, 'true': -2 ** 63, '': '9' * 40}\n    return {'status': keys, 'children': []}\n";
    let answer = Probe::load_script(Language::Python, "sync.py", script).await?;
    let status = answer.call(&request(), 1, 1).await?.status;
    ensure!(status == json!({ "8080": u64::MAX, "true": i64::MIN, "": "9".repeat(40) }), "{status}");
    Ok(())
}

/// Values of JavaScript that JSON does not have, or would write as others, and what is said of each.
const NO_JSON_JS: [(&str, &str); 24] = [
    ("NaN", "sync returned NaN at status.v, which JSON does not have"),
    ("-1 / 0", "sync returned an infinite number at status.v"),
    ("10n", "sync returned a BigInt at status.v"),
    ("() => 1", "sync returned a function at status.v"),
    ("Symbol('x')", "sync returned a symbol at status.v"),
    ("[1, undefined]", "sync returned undefined at status.v[1]"),
    ("new Map([['a', 1]])", "sync returned a Map at status.v"),
    ("[{ w: new Set([1]) }]", "sync returned a Set at status.v[0].w"),
    ("new Error('x')", "sync returned an Error at status.v"),
    ("Promise.resolve(1)", "sync returned a Promise at status.v"),
    ("round()", "sync returned an object that holds itself at status.v.round"),
    ("'\\ud83d'", "sync returned a string with half of a surrogate pair at status.v"),
    ("{ w: { '\\ud83d': 1 } }", "sync returned a key with half of a surrogate pair at status.v.w"),
    ("{ [Symbol('x')]: 1 }", "sync returned a key that is a symbol at status.v"),
    ("new Map().values()", "sync returned a Map Iterator at status.v"),
    ("(function* () {})()", "sync returned a Generator at status.v"),
    ("new WeakRef({})", "sync returned a WeakRef at status.v"),
    ("new DataView(new ArrayBuffer(1))", "sync returned a DataView at status.v"),
    ("new Uint8Array([1])", "sync returned a Uint8Array at status.v"),
    ("new (class extends Map {})()", "sync returned a Map at status.v"),
    ("{ toJSON: () => [new Set()] }", "sync returned a Set at status.v[0]"),
    ("new Date(NaN)", "sync returned an invalid Date at status.v"),
    ("new Number(NaN)", "sync returned a Number of NaN at status.v"),
    ("(() => arguments)()", "sync returned an Arguments at status.v"),
];

/// C38 in JavaScript, where JSON.stringify says nothing of most. What a type says itself, and a field that is undefined, hold.
pub(crate) async fn c38_what_javascript_cannot_print_as_json_is_refused(_: &mut Fixture) -> Result<()> {
    let script = |value: &str| {
        format!(
            "const round = () => {{ const o = {{}}; o.round = o; return o; }};\nexport function sync(parent, children) {{\n  return {{ status: {{ v: {value} }}, children: [] }};\n}}\n"
        )
    };
    for (value, says) in NO_JSON_JS {
        let failure = Probe::load_script(Language::JavaScript, "hook.js", &script(value)).await?;
        let failure = failure.failure(&request()).await?;
        ensure!(
            failure.contains("hook.js:2: TypeError: ") && failure.contains(says),
            "{failure}\nis not\n{says}"
        );
    }
    for (value, status) in [
        ("{ left: undefined, kept: null }", json!({ "v": { "kept": null } })),
        ("new Date(0)", json!({ "v": "1970-01-01T00:00:00.000Z" })),
        ("'a \\\\ud83d is no surrogate'", json!({ "v": "a \\ud83d is no surrogate" })),
        ("{ toJSON: () => 7 }", json!({ "v": 7 })),
        ("[{}, [], Object.create(null)]", json!({ "v": [{}, [], {}] })),
        ("new (class { a = 1; #b = 2; })()", json!({ "v": { "a": 1 } })),
        ("[new Proxy({ a: 1 }, {}), new String('b')]", json!({ "v": [{ "a": 1 }, "b"] })),
    ] {
        let answer = Probe::load_script(Language::JavaScript, "hook.js", &script(value)).await?;
        let answer = answer.call(&request(), 1, 1).await?.status;
        ensure!(answer == status, "{answer} is not {status}");
    }
    Ok(())
}
