//! The hooks of [`hostile_hooks`](crate::hostile_hooks) as scripts: a row in both languages for each row of modules that a script
//! can be.
//!
//! These rows of modules have none:
//!
//! | rows | why |
//! |---|---|
//! | `trap`, `table-bomb` | a script has no such instructions |
//! | `socket-flood` | the interpreters offer no such functions |
//! | `huge-random` in JavaScript | a script gets one number at a time |
//! | `exit`, `opens` in JavaScript | the interpreter offers no process and no files |
//! | `spaces`, `half`, `two`, `no-text`, `twice` | the interpreter prints the answer |
//! | `pieces` and its kin | the interpreter writes |
//! | `numbers`, `stdout-flood`, `huge-number`, `mounted-hook` | they are in `children`, `output`, `odd-number`, `looks` |
//! | all that are no hook but `text` | a script is a text |

use std::time::{Duration, Instant};

use acceptance::expected_messages;
use acceptance::fixture::Fixture;
use acceptance::objects::{Hook, config_map};
use acceptance::process::Signal;
use acceptance::wait::PATIENCE;
use anyhow::{Result, bail, ensure};
use serde_json::{Value, json};

use crate::hostile_hooks::{self, MEMORY_FOR_LARGE_ANSWERS, do_no_harm};
use crate::hostile_loops;
use crate::table::{Code, Row};

/// Rows of modules that no script has.
const OF_MODULES: [&str; 16] = [
    "trap",
    "table-bomb",
    "socket-flood",
    "spaces",
    "half",
    "two",
    "no-text",
    "twice",
    "pieces",
    "empty-pieces",
    "pieces-without-end",
    "piece-without-end",
    "numbers",
    "stdout-flood",
    "huge-number",
    "mounted-hook",
];

/// Rows of modules that Python alone has.
const NOT_IN_JAVASCRIPT: [&str; 3] = ["huge-random", "exit", "opens"];

/// How long the server is suspended: longer than a call may take.
const SUSPEND_DURATION: Duration = Duration::from_secs(4);

/// Instructions of rows without an end: those of a call that ends, many times over.
const BUDGET: u64 = 50_000_000;

/// One attack in each language, and how the error of each begins.
struct Attack {
    name: &'static str,
    python: &'static str,
    javascript: &'static str,
    fails: [&'static str; 2],
}

const USED_UP: [&str; 2] = ["the hook used up its 50000000 instructions"; 2];

/// Scripts that loop until the server ends them.
const LOOPS: [&str; 2] = [
    "def sync(request):\n    while True:\n        pass\n",
    "export function sync(request) { for (;;) {} }\n",
];

/// Attacks that use up their instructions.
const ENDLESS: [Attack; 5] = [
    Attack { name: "endless-loop", python: LOOPS[0], javascript: LOOPS[1], fails: USED_UP },
    Attack {
        name: "endless-import",
        python: "while True:\n    pass\n",
        javascript: "for (;;) {}\n",
        fails: USED_UP,
    },
    Attack {
        name: "stderr-flood",
        python: "def sync(request):\n    while True:\n        print('x' * 60000)\n",
        javascript: "export function sync(request) { for (;;) console.log('x'.repeat(60000)); }\n",
        fails: USED_UP,
    },
    Attack {
        name: "random-flood",
        python: "import os\n\ndef sync(request):\n    while True:\n        os.urandom(16384)\n",
        javascript: "export function sync(request) { for (;;) Math.random(); }\n",
        fails: USED_UP,
    },
    Attack {
        name: "sleeping-loop",
        python: "import time\n\ndef sync(request):\n    while True:\n        time.sleep(3600)\n",
        javascript: "export function sync(request) { const again = () => Promise.resolve().then(again); return again(); }\n",
        fails: USED_UP,
    },
];

/// Attacks that end by themselves.
const FAILING: [Attack; 9] = [
    Attack {
        name: "memory-bomb",
        python: "def sync(request):\n    all = []\n    while True:\n        all.append(b'x' * (1 << 20))\n",
        javascript: "export function sync(request) { const all = []; for (;;) all.push(new Uint8Array(1 << 20)); }\n",
        fails: ["the hook wanted "; 2],
    },
    Attack {
        name: "recursion",
        python: "def f(n):\n    return f(n + 1)\n\ndef sync(request):\n    return f(0)\n",
        javascript: "function f(n) { return f(n + 1) + 1; }\nexport const sync = (request) => f(0);\n",
        fails: ["the script failed: hook:2: RecursionError", "the script failed: hook:1: RangeError"],
    },
    Attack {
        name: "last-words",
        python: "def sync(request):\n    raise ValueError('no more')\n",
        javascript: "export function sync(request) { throw new Error('no more'); }\n",
        fails: [
            "the script failed: hook:2: ValueError: no more",
            "the script failed: hook:1: Error: no more",
        ],
    },
    Attack {
        name: "nothing",
        python: "def sync(request):\n    pass\n",
        javascript: "export function sync(request) {}\n",
        fails: [
            "the script failed: hook:1: sync returned None",
            "the script failed: hook:1: TypeError: sync returned undefined",
        ],
    },
    Attack {
        name: "deep",
        python: "def sync(request):\n    a = []\n    for _ in range(10000):\n        a = [a]\n    return {'status': {'a': a}}\n",
        javascript: "export function sync(request) { let a = []; for (let i = 0; i < 200; i += 1) a = [a]; return { children: [], status: { a } }; }\n",
        fails: ["the hook trapped", "the hook's answer is not JSON: recursion limit exceeded"],
    },
    Attack {
        name: "odd-number",
        python: "def sync(request):\n    return {'children': [], 'status': {'n': float('inf')}}\n",
        javascript: "export function sync(request) { return { children: [], status: { n: 1n } }; }\n",
        fails: [
            "the script failed: hook:1: ValueError: sync returned inf",
            "the script failed: hook:1: TypeError: sync returned a BigInt at status.n",
        ],
    },
    Attack {
        name: "surrogate",
        python: "def sync(request):\n    return {'children': [], 'status': {'is': '\\ud800'}}\n",
        javascript: "export function sync(request) { return { children: [], status: { is: '\\ud800' } }; }\n",
        fails: [
            "the script failed: hook:1: UnicodeEncodeError",
            "the script failed: hook:1: TypeError: sync returned a string with half of a surrogate pair at status.is",
        ],
    },
    Attack {
        name: "children",
        python: "def sync(request):\n    return {'children': [0] * 200001, 'status': {}}\n",
        javascript: "export function sync(request) { return { children: Array(200001).fill(0), status: {} }; }\n",
        fails: ["the hook's answer: children has 200001 items, and 10000 are allowed"; 2],
    },
    Attack {
        name: "output",
        python: "def sync(request):\n    return {'children': [], 'status': {'is': 'a' * 100000}}\n",
        javascript: "export function sync(request) { return { children: [], status: { is: 'a'.repeat(100000) } }; }\n",
        fails: ["the hook printed more than 64Ki"; 2],
    },
];

/// Answers of more values than may be read.
const VALUES: [&str; 2] = [
    "def sync(request):\n    return {'children': [], 'status': {'all': [{'is': 0}] * 200000}}\n",
    "export function sync(request) { return { children: [], status: { all: Array(200000).fill({ is: 0 }) } }; }\n",
];

/// Answers with a child that is too large for etcd.
const CHILD: [&str; 2] = [
    "def sync(request):
    child = {'apiVersion': 'v1', 'kind': 'ConfigMap', 'metadata': {'name': 'large'}, 'data': {'is': 'a' * 3200000}}
    return {'children': [child]}
",
    "export function sync(request) {
  const data = { is: 'a'.repeat(3200000) };
  return { children: [{ apiVersion: 'v1', kind: 'ConfigMap', metadata: { name: 'large' }, data }] };
}
",
];

/// Ends its process.
const EXIT: &str = "import os\n\ndef sync(request):\n    os._exit(3)\n";

/// Wants more random bytes than it may have memory.
const HUGE_RANDOM: &str = "import os\n\ndef sync(request):\n    while True:\n        os.urandom(500000000)\n";

/// Opens the one file of its mount again and again.
const OPENS: &str =
    "import os\n\ndef sync(request):\n    while True:\n        os.open('/mnt/mounted/text', os.O_RDONLY)\n";

/// The interpreter is a component, whose table of resources has a bound.
const NO_FREE_KEYS: &str =
    "the hook was stopped in filesystem_method_descriptor_open_at: resource table has no free keys";

/// Scripts that look around, with their mounts.
const LOOKS: [&str; 2] = [
    r#"import os

def look(at):
    try:
        return str(at())
    except BaseException as error:
        return type(error).__name__

LOOKS = {
    "variables": lambda: len(os.environ),
    "own": lambda: open("/mnt/mounted/text").read(),
    "passwd": lambda: open("/etc/passwd"),
    "up": lambda: open("/mnt/mounted/../../etc/passwd"),
    "write": lambda: open("/mnt/mounted/text", "w"),
    "make": lambda: os.mkdir("/mnt/mounted/made"),
    "remove": lambda: os.remove("/mnt/mounted/text"),
    "script": lambda: open("/hook/made", "w"),
}

def sync(request):
    return {"children": [], "status": {name: look(at) for name, at in LOOKS.items()}}
"#,
    r#"const names = ["process", "require", "fetch", "WebSocket", "std", "os", "Worker", "WebAssembly"];
export function sync(request) {
  return { children: [], status: Object.fromEntries(names.map((name) => [name, typeof globalThis[name]])) };
}
"#,
];

fn found() -> [Value; 2] {
    let python = json!({
        "variables": "0", "own": "Hello!", "passwd": "FileNotFoundError", "up": "PermissionError",
        "write": "OSError", "make": "OSError", "remove": "OSError", "script": "OSError",
    });
    let javascript = json!({
        "process": "undefined", "require": "undefined", "fetch": "undefined", "WebSocket": "undefined",
        "std": "undefined", "os": "undefined", "Worker": "undefined", "WebAssembly": "undefined",
    });
    [python, javascript]
}

fn script(language: &'static str, text: &str) -> Code {
    Code::Script { language, text: text.to_owned() }
}

/// The rows of one language, of which the number is that of its place in each attack.
fn rows(test: &Fixture, language: &'static str, number: usize) -> Vec<Row> {
    let of = |attack: &Attack| {
        let source = [attack.python, attack.javascript][number];
        Row::fails(attack.name, script(language, source), attack.fails[number])
    };
    let no_script = ["def sync(request):\n    return {\n", "export function sync(request) {\n"][number];
    let refused =
        ["the script cannot be used: hook:2: SyntaxError", "the script cannot be used: hook:2: SyntaxError"]
            [number];
    let mut rows: Vec<Row> =
        ENDLESS.iter().map(|attack| of(attack).limited("instructions", BUDGET)).collect();
    rows.extend(FAILING.iter().map(|attack| match attack.name {
        "output" => of(attack).limited("output", "64Ki"),
        _ => of(attack),
    }));
    rows.extend(large_answers(test, language, number));
    rows.push(Row::is_refused("text", script(language, no_script), refused));
    rows.push(
        Row::answers("looks", script(language, LOOKS[number]), found()[number].clone()).mounting("mounted"),
    );
    if language == "python" {
        rows.push(Row::fails("huge-random", script(language, HUGE_RANDOM), "the hook wanted "));
        rows.push(Row::fails("exit", script(language, EXIT), "the script failed: it said nothing"));
        rows.push(Row::fails("opens", script(language, OPENS), NO_FREE_KEYS).mounting("mounted"));
    }
    rows
}

fn large_answers(test: &Fixture, language: &'static str, number: usize) -> [Row; 3] {
    let large = [
        "def sync(request):\n    return {'children': [], 'status': {'is': 'a' * 3200000}}\n",
        "export function sync(request) { return { children: [], status: { is: 'a'.repeat(3200000) } }; }\n",
    ][number];
    let status = expected_messages::too_large(3126, "status.is", 3126);
    let status = format!("status {} {}/status: {status}", test.kind().kind, test.name());
    let child = expected_messages::too_large(6251, "data.is", 3126);
    let child = format!("create ConfigMap {}/large: {child}", test.name());
    [
        Row::is_rejected("status", script(language, large), &status),
        Row::is_rejected("child", script(language, CHILD[number]), &child),
        Row::fails("values", script(language, VALUES[number]), expected_messages::VALUES)
            .limited("instructions", 10_000_000_000_u64),
    ]
}

pub(crate) async fn scripts_in_python_do_no_harm(test: &mut Fixture) -> Result<()> {
    scripts_do_no_harm(test, "python", 0).await
}

pub(crate) async fn scripts_in_javascript_do_no_harm(test: &mut Fixture) -> Result<()> {
    scripts_do_no_harm(test, "javascript", 1).await
}

async fn scripts_do_no_harm(test: &mut Fixture, language: &'static str, number: usize) -> Result<()> {
    hostile_hooks::mounts(test).await?;
    let rows = rows(test, language, number);
    each_row_of_modules_is_there(test, &rows, language)?;
    do_no_harm(test, &rows, MEMORY_FOR_LARGE_ANSWERS).await
}

fn each_row_of_modules_is_there(test: &Fixture, rows: &[Row], language: &str) -> Result<()> {
    let of_modules = [
        hostile_hooks::wild()?,
        hostile_hooks::busy_host()?,
        hostile_hooks::no_answers()?,
        hostile_hooks::large_answers(test)?,
        hostile_hooks::looks_around(&[])?,
        hostile_hooks::reads_mounts()?,
    ];
    for name in of_modules.iter().flatten().map(|row| row.name) {
        let is_there = rows.iter().any(|row| row.name == name);
        let has_none =
            OF_MODULES.contains(&name) || (language == "javascript" && NOT_IN_JAVASCRIPT.contains(&name));
        ensure!(is_there != has_none, "{name}: modules have this row; in {language} it is there: {is_there}");
    }
    Ok(())
}

pub(crate) async fn many_scripts_in_python_that_loop_at_their_ceilings_take_turns(
    test: &mut Fixture,
) -> Result<()> {
    take_turns(test, "python", LOOPS[0]).await
}

pub(crate) async fn many_scripts_in_javascript_that_loop_at_their_ceilings_take_turns(
    test: &mut Fixture,
) -> Result<()> {
    take_turns(test, "javascript", LOOPS[1]).await
}

async fn take_turns(test: &mut Fixture, language: &'static str, loops: &str) -> Result<()> {
    test.make(&test.config_maps(), config_map("loops", json!({}), json!({ "hook": loops }))).await?;
    let hook = Hook::script(language, test.name(), "loops", "hook");
    hostile_loops::take_turns(test, hook).await
}

/// It times out, which is no fault of the script: it is loaded again without an edit.
pub(crate) async fn a_script_whose_loading_times_out_is_loaded_later(test: &mut Fixture) -> Result<()> {
    // Bytecode of as many functions takes long enough to be stopped at.
    let functions = "function f(x) { return x + 1; }\n".repeat(20_000);
    let source = functions + "function sync() { return { children: [] }; }";
    test.define_kind().await?;
    test.make(&test.config_maps(), config_map("large", json!({}), json!({ "hook": source }))).await?;
    let hook = Hook::script("javascript", test.name(), "large", "hook");
    test.host(test.controller().synced_by(hook)).await?;
    for flag in ["--hook-timeout", "--hook-timeout-max"] {
        test.server().flag(&format!("{flag}={}s", SUSPEND_DURATION.as_secs() - 1));
    }
    test.serve()?;
    for _ in 0..5 {
        suspend_after(test, "module loaded").await?;
        let is_loaded = |log: &str| log.contains("script loaded");
        if test.server().until_log("the script is loaded", is_loaded).await?.contains("did not end within") {
            return Ok(());
        }
        test.server().stop().await?;
        std::fs::write(test.server().log(), "")?;
        test.server().start()?;
    }
    bail!("the script was never being loaded when the machine stood still")
}

/// Stops the server as soon as it has logged something, and lets it go on.
async fn suspend_after(test: &mut Fixture, message: &str) -> Result<()> {
    let start = Instant::now();
    while !std::fs::read_to_string(test.server().log())?.contains(message) {
        ensure!(start.elapsed() < PATIENCE, "{message:?} is not in the log");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    test.server().signal(Signal::Stop)?;
    tokio::time::sleep(SUSPEND_DURATION).await;
    test.server().signal(Signal::Continue)
}
