//! Comparison of README and book with the code: the examples and messages that they show.

use std::fs;

use crate::expected_messages;
use crate::paths;

/// The tables of the page on limits, with the messages under the server's default flags.
fn tables() -> [String; 5] {
    [limits_in_specs(), other_limits_of_calls(), limits_of_customize_hooks(), limits_of_modules(), failures()]
}

fn limits_in_specs() -> String {
    let limits = [
        ["`memory`", "64Mi", "512Mi", &code(&expected_messages::memory("80Mi", "64Mi"))],
        [
            "`instructions`",
            "1000000000",
            "100000000000",
            &code(&expected_messages::instructions(1_000_000_000, "main")),
        ],
        ["`timeout`", "10s", "60s", &code(&expected_messages::timeout("10s"))],
        ["`output` (stdout)", "4Mi", "32Mi", &code(&expected_messages::output("4Mi"))],
        [
            "`log` (stderr)",
            "64Ki",
            "1Mi",
            &format!(
                "none; the server's log says {}, and an error still has the last words",
                code(&expected_messages::log(0, 100))
            ),
        ],
    ];
    rows(["limit", "default", "ceiling", "message"], &limits)
}

fn other_limits_of_calls() -> String {
    let bounds = [
        ["size of a request", "32Mi", "", &code(&expected_messages::request(33_554_433))],
        [
            "children in an answer",
            "10000",
            "`--max-children`",
            &code(&expected_messages::children(10_001, 10_000)),
        ],
        [
            "children in a request",
            "50000",
            "`--max-observed-children`",
            "none; the Event [`ChildrenLeftOut`](composite.md#more-children-than-a-hook-is-shown)",
        ],
        [
            "labels in an answer; annotations in an answer",
            "1000",
            "",
            &code(&expected_messages::keys("labels", 1001)),
        ],
        ["memory to read an answer", "128 MiB", "", &code(expected_messages::VALUES)],
        ["nesting of an answer", "127", "", &code(&expected_messages::no_json(expected_messages::DEEP))],
        [
            "elements of a table",
            "50000",
            "`--module-functions-max`",
            &code(&expected_messages::table_then_trap(50_001, "main")),
        ],
        ["random bytes at once", "16Ki", "", &code(&expected_messages::random("main", 16_385))],
        ["entries of a component's poll", "1000", "", &code(&expected_messages::polls("main", 1001))],
        ["mounts of a hook", "4Mi, 4000 files", "", &code(&expected_messages::mounts(5 << 20, 5))],
        [
            "mounts of all hooks",
            "64Mi",
            "`--mount-memory-max`",
            &code(&expected_messages::mount_memory("hello/greeting", 1_048_707, "64Mi")),
        ],
        ["open files of a hook", "32Mi, 1000 files", "", &code(&expected_messages::open_files("main"))],
        [
            "lines on stderr",
            "100",
            "",
            &format!("none; the server's log says {}", code(&expected_messages::log(1, 0))),
        ],
    ];
    rows(["limit", "value", "flag", "message"], &bounds)
}

fn limits_of_customize_hooks() -> String {
    let bounds = [
        [
            "bytes of an answer",
            "2Mi",
            "`--customize-bytes-max`",
            &code(&expected_messages::customize("relatedResources", 2_097_153, "bytes", 2_097_152)),
        ],
        [
            "names",
            "10000",
            "`--customize-names-max`",
            &code(&expected_messages::customize("relatedResources[0].names", 10_001, "names", 10_000)),
        ],
        [
            "labels and expressions",
            "10000",
            "`--customize-expressions-max`",
            &code(&expected_messages::customize(
                "relatedResources[0]",
                10_001,
                "labels and expressions",
                10_000,
            )),
        ],
        [
            "values of labels",
            "10000",
            "`--customize-values-max`",
            &code(&expected_messages::customize("relatedResources[0]", 10_001, "values of labels", 10_000)),
        ],
        [
            "objects and rules that a reconcile looks at",
            "500000",
            "`--customize-steps-max`",
            &code(&expected_messages::customize_steps(7, 500_000)),
        ],
        [
            "memory for rules of a controller",
            "128Mi",
            "`--customize-memory-max`",
            &code(&expected_messages::customize_memory(1_952_914, 133_000_000, 134_217_728)),
        ],
        [
            "watches for rules of a controller",
            "256",
            "`--customize-watches-max`",
            &code(&expected_messages::customize_watches(7, "v1 Pod", 256)),
        ],
    ];
    rows(["limit", "value", "flag", "message"], &bounds)
}

fn limits_of_modules() -> String {
    use expected_messages as says;

    let modules = [
        [
            "size as stored, compressed",
            "16Mi",
            "`--module-packed-max`",
            &code(&says::packed("zstd", 16_777_217, "16Mi")),
        ],
        ["size, unpacked", "64Mi", "`--module-size-max`", &code(&says::size("64Mi"))],
        ["window of zstd", "8Mi", "", &code(says::WINDOW)],
        ["functions", "50000", "`--module-functions-max`", &code(&says::functions(50_001, 50_000))],
        ["elements of the table", "50000", "`--module-functions-max`", &code(&says::table(50_001))],
        ["initial memory", "512Mi", "`--hook-memory-max`", &code(&says::first_memory("513Mi"))],
        ["pages of initial data, half empty", "2000", "", &code(&says::sparse_data(2001))],
        ["zeros between pieces of initial data", "64Mi", "", &code(&says::gaps(67_108_865))],
        ["work before the first instruction", "400000", "", &code(&says::start_work(400_001))],
        ["processor time to compile", "60s", "`--module-compile-timeout`", &code(&says::compile_time("60s"))],
        ["memory to compile", "1Gi", "`--module-compile-memory`", &code(&says::compile_memory("1Gi"))],
        ["code of all modules", "1Gi", "`--module-code-max`", &code(&says::all_code("2Mi", "1025Mi", "1Gi"))],
        ["WebAssembly features", "those of WebAssembly 2", "", &code(&says::feature("memory64", "memory64"))],
        ["imports", "WASI preview 1", "", &code(&says::imports("env.launch"))],
        ["kind of module", "a command", "", &code(says::NO_START)],
        ["imports of a component", "WASI preview 2 without http", "", &code(says::HTTP)],
        [
            "exports of a component",
            "`wasi:cli/run`, or `sync`, `finalize`, `customize`",
            "",
            &code(says::COMPONENT),
        ],
        ["modules in a component", "128", "", &code(says::MANY_MODULES)],
        ["components in each other", "100", "", &code(&says::nested(101))],
        ["names of imports and exports", "1Mi", "", &code(&says::names(1_048_577))],
        ["imports and exports", "50000", "", &code(&says::many_names(50_001))],
        ["declarations of types", "128Ki", "", &code(&says::types(131_073))],
        [
            "imports, exports and instances of a component, written out",
            "1Mi",
            "",
            &code(&says::written_out(1_048_577)),
        ],
    ];
    rows(["limit", "value", "flag", "message"], &modules)
}

fn failures() -> String {
    let failures = [
        ["traps", &code(&expected_messages::trap("main", expected_messages::UNREACHABLE))],
        ["recurses without end", &code(&expected_messages::trap("main", expected_messages::TOO_DEEP))],
        [
            "exits with 3",
            &code(&format!("{}; last stderr output: no greeting today", expected_messages::exit(3))),
        ],
        ["prints nothing", &code(expected_messages::NOTHING)],
        ["prints half an answer", &code(&expected_messages::no_json(expected_messages::HALF))],
        ["prints two answers", &code(&expected_messages::no_json(expected_messages::TWO))],
    ];
    rows(["the hook …", "message"], &failures)
}

fn rows<const N: usize>(head: [&str; N], rows: &[[&str; N]]) -> String {
    let line = |cells: &[&str]| format!("| {} |\n", cells.join(" | ")).replace("|  |", "| |");
    let rule = format!("|{}\n", "---|".repeat(N));
    let rows = rows.iter().map(|row| line(row));
    [line(&head), rule].into_iter().chain(rows).collect()
}

/// As Markdown shows it word by word.
fn code(text: &str) -> String {
    if text.contains('`') { format!("`` {text} ``") } else { format!("`{text}`") }
}

fn read(file: &str) -> String {
    fs::read_to_string(paths::workspace().join(file)).unwrap()
}

fn assert_shown(page: &str, example: &str) {
    let text = read(example);
    let example_without_tests = text.split("#[cfg(test)]").next().unwrap().trim();
    assert!(read(page).contains(example_without_tests), "{page} does not show {example} as it is");
}

#[test]
fn tutorial_shows_its_example_as_it_is() {
    for file in ["crd.yaml", "controller.yaml", "hello.yaml", "src/main.rs"] {
        assert_shown("runtime/docs/src/tutorial.md", &format!("guests/hello/{file}"));
    }
}

#[test]
fn readme_shows_hook_and_controller_as_they_are() {
    for file in ["python/hook.py", "python/controller.yaml"] {
        assert_shown("README.md", &format!("guests/hello/{file}"));
    }
}

#[test]
fn page_on_limits_shows_the_messages_that_users_read() {
    let page = read("runtime/docs/src/limits.md");
    for table in tables() {
        assert!(page.contains(&table), "limits.md does not show this table as it is:\n{table}");
    }
}

#[test]
fn readme_has_at_most_150_lines() {
    assert!(read("README.md").lines().count() <= 150);
}
