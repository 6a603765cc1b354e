//! What a user reads when a hook goes over a bound or fails otherwise: what tests expect is what the README shows.

pub fn memory(wanted: &str, budget: &str) -> String {
    format!("the hook wanted {wanted} of memory and may have {budget} (limits.memory)")
}

/// The same of a hook that traps when it does not get its memory.
pub fn memory_then_trap(wanted: &str, budget: &str, function: &str) -> String {
    format!("{}; then {}", memory(wanted, budget), trap(function, UNREACHABLE))
}

/// Of a hook that traps when it does not get its table.
pub fn table_then_trap(wanted: usize, function: &str) -> String {
    let trap = trap(function, UNREACHABLE);
    format!(
        "the hook wanted a table of {wanted} elements and may have 50000 (--module-functions-max); then {trap}"
    )
}

pub fn instructions(budget: u64, function: &str) -> String {
    format!(
        "the hook used up its {budget} instructions in {function} (limits.instructions): it loops, or the limit is too low"
    )
}

pub fn timeout(budget: &str) -> String {
    format!("the hook did not end within {budget} (limits.timeout)")
}

pub fn output(budget: &str) -> String {
    format!("the hook printed more than {budget} (limits.output)")
}

/// In the server's log.
pub fn log(lines: usize, bytes: usize) -> String {
    format!("{lines} more lines and {bytes} bytes beyond limits.log were cut")
}

pub fn request(bytes: usize) -> String {
    format!(
        "the request has {bytes} bytes, and 33554432 are allowed: the parent has too many or too large children"
    )
}

pub fn children(found: usize, max: usize) -> String {
    format!("the hook's answer: children has {found} items, and {max} are allowed (--max-children)")
}

/// Of labels or annotations.
pub fn keys(field: &str, found: usize) -> String {
    format!(
        "the hook's answer: {field} has {found} keys, and 1000 are allowed: name only those that are to change"
    )
}

pub const VALUES: &str = "the hook's answer has so many values that reading it would take more than 128 MiB";

/// Why `{"children":[{"apiVersion":"v1","ki` is no answer.
pub const HALF: &str = "EOF while parsing a string at line 1 column 35";

/// Why `{"children":[]}{"children":[]}` is no answer.
pub const TWO: &str = "trailing characters at line 1 column 16";

/// Why 128 brackets are no answer.
pub const DEEP: &str = "recursion limit exceeded at line 1 column 128";

pub fn no_json(why: &str) -> String {
    format!("the hook's answer is not JSON: {why}")
}

pub const NOTHING: &str = "the hook printed nothing: a sync hook answers with a JSON object on stdout";

pub const UNREACHABLE: &str = "wasm `unreachable` instruction executed";

pub const TOO_DEEP: &str = "call stack exhausted";

pub fn trap(function: &str, trap: &str) -> String {
    format!("the hook trapped in {function}: {trap}")
}

pub fn exit(code: u8) -> String {
    format!("the hook exited with code {code}; 0 is success")
}

fn stopped(function: &str, why: &str) -> String {
    format!("the hook was stopped in {function}: {why}")
}

pub fn random(function: &str, bytes: usize) -> String {
    let why = format!("it wanted {bytes} random bytes at once and may have 16384: ask for less, more often");
    stopped(function, &why)
}

pub fn functions(found: usize, max: usize) -> String {
    format!(
        "the module has {found} functions, and {max} are allowed (--module-functions-max): make it smaller"
    )
}

pub fn table(found: usize) -> String {
    format!(
        "the module has a table of {found} elements, and 50000 are allowed (--module-functions-max): make it smaller"
    )
}

pub fn first_memory(found: &str) -> String {
    format!(
        "the module begins with {found} of memory, and no hook gets more than 512Mi (--hook-memory-max): lower its initial memory"
    )
}

pub fn packed(encoding: &str, found: usize, max: &str) -> String {
    format!(
        "the module has {found} bytes as it is stored ({encoding}), and {max} are allowed (--module-packed-max): make it smaller"
    )
}

pub fn size(max: &str) -> String {
    format!("the module has more than {max} (--module-size-max): strip it, or build it for size")
}

pub const WINDOW: &str =
    "the module is stored as zstd with a window above 8Mi: compress it again without --long and --ultra";

pub fn compile_time(max: &str) -> String {
    format!("the module was not compiled within {max} (--module-compile-timeout): make it smaller")
}

pub fn compile_memory(max: &str) -> String {
    format!("compiling the module takes more than {max} of memory (--module-compile-memory): make it smaller")
}

pub fn feature(name: &str, target_feature: &str) -> String {
    format!(
        "the module is refused: it uses {name}, which hooks do not have: build with --target wasm32-wasip1 and without the target feature {target_feature}"
    )
}

pub fn imports(names: &str) -> String {
    format!("the module wants what hooks cannot have: {names}; a hook gets WASI preview 1 and nothing else")
}

/// In the condition `ModulesLoaded`.
pub fn mounts(bytes: usize, files: usize) -> String {
    format!(
        "the mounts have {bytes} bytes in {files} files, and a hook may see 4Mi in 4000: mount less, or keep less in the objects"
    )
}

pub fn open_files(function: &str) -> String {
    stopped(function, "it has files open with more than 32 MiB together: close what has been read")
}

pub const COMPONENT: &str = "this is a component, and hooks are modules: build with --target wasm32-wasip1";

pub const NO_START: &str = "the module has no function _start: build a command (fn main), not a library";

/// The README's tables, with what a hook is told that has the server's defaults.
pub fn tables() -> Vec<String> {
    let limits = [
        ["`memory`", "64Mi", "512Mi", &code(&memory("80Mi", "64Mi"))],
        ["`instructions`", "1000000000", "100000000000", &code(&instructions(1_000_000_000, "main"))],
        ["`timeout`", "10s", "60s", &code(&timeout("10s"))],
        ["`output` (stdout)", "4Mi", "32Mi", &code(&output("4Mi"))],
        ["`log` (stderr)", "64Ki", "1Mi", &format!("is cut; in the server's log: {}", code(&log(0, 100)))],
    ];
    let bounds = [
        ["the request", "32Mi", "", &code(&request(33_554_433))],
        ["children of an answer", "10000", "`--max-children`", &code(&children(10_001, 10_000))],
        ["labels, or annotations, of an answer", "1000", "", &code(&keys("labels", 1001))],
        ["an answer once it is read", "128 MiB", "", &code(VALUES)],
        ["lists and objects in each other", "127", "", &code(&no_json(DEEP))],
        ["elements of a table", "50000", "`--module-functions-max`", &code(&table_then_trap(50_001, "main"))],
        ["random bytes at once", "16Ki", "", &code(&random("main", 16_385))],
        ["its mounts", "4Mi, 4000 files", "", &code(&mounts(5 << 20, 5))],
        ["what it has open of them", "32Mi, 1000 files", "", &code(&open_files("main"))],
        ["lines on stderr", "100", "", &format!("are cut; in the server's log: {}", code(&log(1, 0)))],
    ];
    let modules = [
        ["compressed", "16Mi", "`--module-packed-max`", &code(&packed("zstd", 16_777_217, "16Mi"))],
        ["unpacked", "64Mi", "`--module-size-max`", &code(&size("64Mi"))],
        ["the window of zstd", "8Mi", "", &code(WINDOW)],
        ["functions", "50000", "`--module-functions-max`", &code(&functions(50_001, 50_000))],
        ["elements of its table", "50000", "`--module-functions-max`", &code(&table(50_001))],
        ["memory it begins with", "512Mi", "`--hook-memory-max`", &code(&first_memory("513Mi"))],
        ["compiling it", "60s", "`--module-compile-timeout`", &code(&compile_time("60s"))],
        ["memory for that", "1Gi", "`--module-compile-memory`", &code(&compile_memory("1Gi"))],
        ["features", "of WebAssembly 2", "", &code(&feature("memory64", "memory64"))],
        ["imports", "WASI preview 1", "", &code(&imports("env.launch"))],
        ["what it is", "a command", "", &format!("{}; {}", code(NO_START), code(COMPONENT))],
    ];
    let failures = [
        ["traps", &code(&trap("main", UNREACHABLE))],
        ["recurses without end", &code(&trap("main", TOO_DEEP))],
        ["exits with 3", &code(&format!("{}; its last words: no greeting today", exit(3)))],
        ["prints nothing", &code(NOTHING)],
        ["prints half an answer", &code(&no_json(HALF))],
        ["prints two answers", &code(&no_json(TWO))],
    ];
    vec![
        rows(["limit", "default", "ceiling", "a call that goes over it"], &limits),
        rows(["bound", "", "flag", "what goes over it"], &bounds),
        rows(["a module", "", "flag", "one that goes over it"], &modules),
        rows(["a hook that …", ""], &failures),
    ]
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

#[cfg(test)]
mod tests {
    #[test]
    fn the_readme_shows_what_users_read() {
        let readme = std::fs::read_to_string(crate::paths::workspace().join("README.md")).unwrap();
        for table in super::tables() {
            assert!(readme.contains(&table), "README.md does not show this table as it is:\n{table}");
        }
    }
}
