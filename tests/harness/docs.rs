//! Comparison of README and book with the code: the examples and messages that they show.

use std::fs;

use crate::paths;
use crate::said;

/// The tables of the page on limits, with the messages under the server's default flags.
fn tables() -> [String; 4] {
    [limits_in_specs(), other_limits_of_calls(), limits_of_modules(), failures()]
}

fn limits_in_specs() -> String {
    let limits = [
        ["`memory`", "64Mi", "512Mi", &code(&said::memory("80Mi", "64Mi"))],
        ["`instructions`", "1000000000", "100000000000", &code(&said::instructions(1_000_000_000, "main"))],
        ["`timeout`", "10s", "60s", &code(&said::timeout("10s"))],
        ["`output` (stdout)", "4Mi", "32Mi", &code(&said::output("4Mi"))],
        [
            "`log` (stderr)",
            "64Ki",
            "1Mi",
            &format!("none; the server's log says {}", code(&said::log(0, 100))),
        ],
    ];
    rows(["limit", "default", "ceiling", "message"], &limits)
}

fn other_limits_of_calls() -> String {
    let bounds = [
        ["size of a request", "32Mi", "", &code(&said::request(33_554_433))],
        ["children in an answer", "10000", "`--max-children`", &code(&said::children(10_001, 10_000))],
        ["labels in an answer; annotations in an answer", "1000", "", &code(&said::keys("labels", 1001))],
        ["memory to read an answer", "128 MiB", "", &code(said::VALUES)],
        ["nesting of an answer", "127", "", &code(&said::no_json(said::DEEP))],
        [
            "elements of a table",
            "50000",
            "`--module-functions-max`",
            &code(&said::table_then_trap(50_001, "main")),
        ],
        ["random bytes at once", "16Ki", "", &code(&said::random("main", 16_385))],
        ["mounts of a hook", "4Mi, 4000 files", "", &code(&said::mounts(5 << 20, 5))],
        [
            "mounts of all hooks",
            "64Mi",
            "`--mount-memory-max`",
            &code(&said::mount_memory("hello/greeting", 1_048_707, "64Mi")),
        ],
        ["open files of a hook", "32Mi, 1000 files", "", &code(&said::open_files("main"))],
        ["lines on stderr", "100", "", &format!("none; the server's log says {}", code(&said::log(1, 0)))],
    ];
    rows(["limit", "value", "flag", "message"], &bounds)
}

fn limits_of_modules() -> String {
    let modules = [
        [
            "size as stored, compressed",
            "16Mi",
            "`--module-packed-max`",
            &code(&said::packed("zstd", 16_777_217, "16Mi")),
        ],
        ["size, unpacked", "64Mi", "`--module-size-max`", &code(&said::size("64Mi"))],
        ["window of zstd", "8Mi", "", &code(said::WINDOW)],
        ["functions", "50000", "`--module-functions-max`", &code(&said::functions(50_001, 50_000))],
        ["elements of the table", "50000", "`--module-functions-max`", &code(&said::table(50_001))],
        ["initial memory", "512Mi", "`--hook-memory-max`", &code(&said::first_memory("513Mi"))],
        ["time to compile", "60s", "`--module-compile-timeout`", &code(&said::compile_time("60s"))],
        ["memory to compile", "1Gi", "`--module-compile-memory`", &code(&said::compile_memory("1Gi"))],
        ["WebAssembly features", "those of WebAssembly 2", "", &code(&said::feature("memory64", "memory64"))],
        ["imports", "WASI preview 1", "", &code(&said::imports("env.launch"))],
        ["kind of module", "a command", "", &format!("{}; {}", code(said::NO_START), code(said::COMPONENT))],
    ];
    rows(["limit", "value", "flag", "message"], &modules)
}

fn failures() -> String {
    let failures = [
        ["traps", &code(&said::trap("main", said::UNREACHABLE))],
        ["recurses without end", &code(&said::trap("main", said::TOO_DEEP))],
        ["exits with 3", &code(&format!("{}; its last words: no greeting today", said::exit(3)))],
        ["prints nothing", &code(said::NOTHING)],
        ["prints half an answer", &code(&said::no_json(said::HALF))],
        ["prints two answers", &code(&said::no_json(said::TWO))],
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
    for file in ["controller.yaml", "src/main.rs"] {
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
