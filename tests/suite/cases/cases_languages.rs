//! Cases of hooks as authors write them: scripts, and modules that write much or fail loudly. They are called without a server.

use acceptance::fixture::Fixture;
use anyhow::{Context, Result, ensure};
use metahook_core::api::hook::Language;
use serde_json::{Value, json};

use crate::purity::{Probe, request, with_settings};

/// The first integer that a double cannot hold.
const ODD: u64 = (1 << 53) + 1;

fn with_id(id: &Value) -> Value {
    let mut request = request();
    request["parent"]["spec"] = json!({ "id": id });
    request
}

const COPIES_PY: &str = "
def sync(parent, children):
    id = parent['spec']['id']
    return {'status': {'spec': parent['spec'], 'text': str(id)}, 'children': []}
";

const COPIES_JS: &str = "
export function sync({ parent }) {
  const id = parent.spec.id;
  return { status: { spec: parent.spec, text: String(id), own: 1e18, power: 2 ** 60 }, children: [] };
}
";

/// C14: integers beyond 2^53 arrive as they were.
pub(crate) async fn c14_an_integer_is_copied_exactly_in_python_and_rust(_: &mut Fixture) -> Result<()> {
    let python = Probe::load_script(Language::Python, "sync.py", COPIES_PY).await?;
    for probe in [python, Probe::load("probe_answers").await?] {
        for id in [ODD, i64::MAX.unsigned_abs()] {
            let answer = probe.call(&with_id(&id.into()), 1, 1).await?;
            let expected = json!({ "spec": { "id": id }, "text": id.to_string() });
            ensure!(answer.status == expected, "{}", answer.status);
        }
    }
    Ok(())
}

/// C14: JavaScript rounds what came in, and what it rounded is refused; what a script writes itself is exact.
pub(crate) async fn c14_an_integer_that_javascript_rounds_is_refused_and_no_other(
    _: &mut Fixture,
) -> Result<()> {
    let probe = Probe::load_script(Language::JavaScript, "hook.js", COPIES_JS).await?;
    for id in [ODD, i64::MAX.unsigned_abs()] {
        let failure = probe.failure(&with_id(&id.into())).await?;
        ensure!(failure.contains("hook.js:2: RangeError: sync returned the integer 9"), "{failure}");
        ensure!(failure.contains(" at status.spec.id, "), "{failure}");
    }
    for id in [1, ODD - 2, ODD - 1, 1_000_000_000_000_000_000, 1 << 61] {
        let status = probe.call(&with_id(&id.into()), 1, 1).await?.status;
        ensure!(status["spec"]["id"] == id && status["own"] == 1_000_000_000_000_000_000_u64, "{status}");
        ensure!(status["power"] == 1_u64 << 60, "{status}");
    }
    let text = json!(ODD.to_string());
    let copied = probe.call(&with_id(&text), 1, 1).await?.status;
    ensure!(copied["spec"]["id"] == text, "{copied}");
    Ok(())
}

const HABITS: &str = r#"
from __future__ import annotations

import json
import logging
import sys
from collections import Counter, defaultdict
from dataclasses import asdict, dataclass, field
from datetime import datetime, timezone
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any, Optional

try:
    import requests
except ImportError:
    requests = None

logging.basicConfig(level=logging.INFO)
CACHE: dict[str, Any] = {}


@dataclass(frozen=True)
class Child:
    name: str
    labels: dict[str, str] = field(default_factory=dict)

    def render(self) -> dict:
        return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": asdict(self)}


def kind_of(spec: dict) -> str:
    match spec:
        case {"numbers": [first, *rest]} if rest:
            return f"{first=} and {len(rest)} more"
        case _:
            return "none"


def sync(parent: dict, children: dict) -> dict:
    name: Optional[str] = parent["metadata"].get("name")
    CACHE[name] = CACHE.get(name, 0) + 1
    for other in range(10):
        CACHE[f"{name}-{other}-{len(CACHE)}"] = "x" * 100
    logging.info("asked about %s", name)
    print("ü✓", file=sys.stderr)
    for line in range(200):
        print(f"line {line}")
    if (count := len(parent["spec"]["numbers"])) > 2:
        print(f"{count=}")
    by_letter = defaultdict(list)
    for word in ["b", "a", "b"]:
        by_letter[word].append(1)
    status = {
        "kind": kind_of(parent["spec"]),
        "seen": CACHE[name],
        "cached": len(CACHE),
        "sorted": sorted(set(["b", "a", "b"])),
        "counted": Counter("abab").most_common(),
        "order": list({"z": 1, "a": 2}),
        "requests": requests is None,
    }
    if parent["spec"]["text"] == "time":
        status["time"] = datetime.now(timezone.utc).isoformat()
    return {"status": status, "children": [Child(name, {"n": f"{count:03}"}).render()]}


class Handler(BaseHTTPRequestHandler):
    def do_POST(self):
        observed = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.wfile.write(json.dumps(sync(observed["parent"], observed["children"])).encode())


if __name__ == "__main__":
    HTTPServer(("", 8080), Handler).serve_forever()
"#;

/// C39: what people write in Python works, and only the clock makes it impure.
pub(crate) async fn c39_habits_of_python_work_and_no_state_is_left(_: &mut Fixture) -> Result<()> {
    let probe = Probe::load_script(Language::Python, "sync.py", HABITS).await?;
    let expected = json!({
        "kind": "first=1 and 2 more", "seen": 1, "cached": 11, "sorted": ["a", "b"],
        "counted": [["a", 2], ["b", 2]], "order": ["z", "a"], "requests": true,
    });
    for seconds in [1, 2_000_000_000] {
        let answer = probe.call(&request(), 1, seconds).await?;
        ensure!(answer.status == expected, "{}", answer.status);
        ensure!(answer.pure, "it did not ask for the time");
        let lines: Vec<_> = answer.log.lines().collect();
        for line in ["\u{fc}\u{2713}", "line 0", "line 199", "count=3"] {
            ensure!(lines.contains(&line), "{line} is not in {}", answer.log);
        }
        ensure!(answer.log.contains("asked about a") && lines.len() == 203, "{}", answer.log);
    }
    let mut timed = request();
    timed["parent"]["spec"]["text"] = json!("time");
    let answer = probe.call(&timed, 1, 1_000_000).await?;
    let time = answer.status["time"].as_str().unwrap_or_default();
    ensure!(time.starts_with("1970-01-12T13:46:40") && !answer.pure, "{}", answer.status);
    Ok(())
}

/// C40: an answer arrives whole, in whatever pieces it is written, or is refused.
pub(crate) async fn c40_a_large_answer_arrives_whole_however_it_is_written(_: &mut Fixture) -> Result<()> {
    for probe in [Probe::load("probe_answers").await?, Probe::load_component("probe_answers").await?] {
        let large = 3 << 20;
        let letters: String = ('a'..='z').cycle().take(large).collect();
        let behind = "behind all of it";
        for (way, bytes, text) in [
            ("pieces", large, letters.as_str()),
            ("exit", large, &letters),
            ("bytes", BYTES, behind),
            ("stdio", large, behind),
            ("stdio", 1000, behind),
        ] {
            let settings = json!({ "way": way, "bytes": bytes });
            let answer = probe.call(&with_settings(settings), 1, 1).await.with_context(|| way.to_owned())?;
            ensure!(answer.status["text"] == *text, "{way} of {bytes} is another answer");
        }
        for way in ["pieces", "exit", "stdio"] {
            let failure = probe.failure(&with_settings(json!({ "way": way, "bytes": 5 << 20 }))).await?;
            ensure!(failure.contains("printed more than 4Mi (limits.output)"), "{way}: {failure}");
        }
    }
    Ok(())
}

/// Bytes of an answer that is written byte by byte: three megabytes take a minute of a server that is not optimized,
/// and longer on a busy machine.
const BYTES: usize = 50_000;

/// C41: the error has the panic's own words, of Go as it is.
pub(crate) async fn c41_the_words_of_a_panic_in_go_are_in_the_error(_: &mut Fixture) -> Result<()> {
    let probe = Probe::load("probe_go").await?;
    for (way, words) in [
        ("words", "panic: no colour for \"a\""),
        ("error", "panic: no colour"),
        ("index", "panic: runtime error: index out of range [2] with length 0"),
        ("nil", "panic: runtime error: invalid memory address or nil pointer dereference"),
        ("map", "panic: assignment to entry in nil map"),
        ("marshal", "panic: no JSON of it"),
        ("goroutine", "panic: no colour in a goroutine"),
        ("deadlock", "fatal error: all goroutines are asleep - deadlock!"),
        ("long", "panic: no colour no colour"),
    ] {
        let failure = probe.failure(&with_settings(json!({ "panic": way }))).await?;
        ensure!(failure.contains(&format!("last stderr output: {words}")), "{way}: {failure}");
        ensure!(failure.len() < 2000 && !failure.contains('\n'), "{way}: {failure}");
    }
    Ok(())
}

/// Errors of Python, with what is said of each.
const RAISED: [(&str, &str); 8] = [
    // Both print more than is kept of the log.
    (
        "def sync(parent, children):\n    [print(n) for n in range(20000)]\n    raise ValueError('no colour')\n",
        "sync.py:3: ValueError: no colour",
    ),
    (
        "def sync(parent, children):\n    print('x' * (128 << 10))\n    raise ValueError('no colour')\n",
        "sync.py:3: ValueError: no colour",
    ),
    (
        "def sync(parent, children):\n    raise ValueError('no colour ' * 100_000)\n",
        "sync.py:2: ValueError: no colour no",
    ),
    ("def sync(parent, children):\n    raise ValueError('no\\ncolour')\n", "sync.py:2: ValueError: no"),
    (
        "class Odd(Exception):\n    def __str__(self):\n        return 1 / 0\n\ndef sync(parent, children):\n    raise Odd()\n",
        "sync.py:6: ",
    ),
    (
        "def sync(parent):\n    raise ExceptionGroup('many', [ValueError('no colour'), KeyError('k')] * 3)\n",
        "sync.py:2: ExceptionGroup: many (6 sub-exceptions): ValueError: no colour; KeyError: 'k'; ",
    ),
    (
        "def sync(parent):\n    try:\n        {}['k']\n    except KeyError as error:\n        raise ValueError('no colour') from error\n",
        "sync.py:5: ValueError: no colour (from KeyError: 'k')",
    ),
    (
        "import sys\ndef sync(parent):\n    sys.exit('no colour')\n",
        "sync.py:3: SystemExit: the script ended itself",
    ),
];

/// C41: the error of a script has its words and its line, and a bound.
pub(crate) async fn c41_the_error_of_a_script_in_python_has_words_and_line(_: &mut Fixture) -> Result<()> {
    says_of_each(Language::Python, "sync.py", &RAISED).await
}

/// Scripts in JavaScript that throw, with the error of each.
const THROWN: [(&str, &str); 12] = [
    // Both print more than is kept of the log.
    (
        "export function sync() {\n  for (let n = 0; n < 20000; n++) console.log(n);\n  throw new Error('no colour');\n}\n",
        "hook.js:3: Error: no colour",
    ),
    (
        "export function sync() {\n  console.log('x'.repeat(128 << 10));\n  throw new Error('no colour');\n}\n",
        "hook.js:3: Error: no colour",
    ),
    (
        "export function sync(request) {\n  throw { not: 'an Error' };\n}\n",
        "hook.js:1: Uncaught: {\"not\":\"an Error\"}",
    ),
    (
        "export const sync = (request) => Promise.reject(new Error('no colour'));\n",
        "hook.js:1: Error: no colour",
    ),
    (
        "export async function sync(request) {\n  throw new Error('no colour');\n}\n",
        "hook.js:2: Error: no colour",
    ),
    (
        "export function sync(request) {\n  throw new Error('no colour '.repeat(100000));\n}\n",
        "hook.js:2: Error: no colour no",
    ),
    (
        "export function sync(request) {\n  return new Promise(() => {});\n}\n",
        "hook.js:1: Error: sync waits for a promise",
    ),
    (
        "class Odd extends Error {\n  constructor(m, o) { super(m, o); this.name = 'Odd'; }\n}\nexport function sync(request) {\n  throw new Odd('no colour', { cause: new TypeError('k') });\n}\n",
        "hook.js:5: Odd: no colour (from TypeError: k)",
    ),
    (
        "export function sync(request) {\n  throw Object.defineProperty(new Error(''), 'message', { get() { throw 1; } });\n}\n",
        "hook.js:2: Error: its message cannot be read",
    ),
    ("export function sync() {\n  throw undefined;\n}\n", "hook.js:1: Uncaught: undefined"),
    (
        "export const sync = (request) => Promise.any([Promise.reject(new Error('no')), Promise.reject(5)]);\n",
        "hook.js:1: AggregateError: Error: no; 5",
    ),
    (
        "export function sync() {\n  throw new Proxy({}, { get() { throw 1; } });\n}\n",
        "hook.js:1: Uncaught: [object]",
    ),
];

pub(crate) async fn c41_what_a_script_in_javascript_throws_has_words_and_line(_: &mut Fixture) -> Result<()> {
    says_of_each(Language::JavaScript, "hook.js", &THROWN).await
}

async fn says_of_each(language: Language, file: &str, all: &[(&str, &str)]) -> Result<()> {
    for (script, says) in all {
        let failure = Probe::load_script(language, file, script).await?.failure(&request()).await?;
        ensure!(failure.starts_with(&format!("the script failed: {says}")), "{failure}\nis not\n{says}");
        ensure!(failure.len() < 2000 && !failure.contains('\n'), "{} bytes: {failure}", failure.len());
    }
    Ok(())
}
