//! Messages for hooks that exceed a limit or fail otherwise: as tests expect them, and as the page on limits shows them.

pub fn memory(wanted: &str, budget: &str) -> String {
    format!("the hook wanted {wanted} of memory and may have {budget} (limits.memory)")
}

/// The message about a hook that traps when it does not get its memory.
pub fn memory_then_trap(wanted: &str, budget: &str, function: &str) -> String {
    format!("{}; then {}", memory(wanted, budget), trap(function, UNREACHABLE))
}

/// The message about a hook that traps when it does not get its table.
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

/// Part of the message about a hook that was ended so that calls of other controllers can begin.
pub const CROWDED_OUT: &str = "while calls of other controllers could not begin: it was ended";

pub fn timeout(budget: &str) -> String {
    format!("the hook did not end within {budget} (limits.timeout)")
}

pub fn output(budget: &str) -> String {
    format!("the hook printed more than {budget} (limits.output)")
}

/// Of an object of so many KiB, nearly all of which one part has, once or with the annotation that repeats it.
pub fn too_large(whole: usize, part: &str, kibi: usize) -> String {
    format!(
        "it is too large: {whole}Ki as JSON, of which {part} has {kibi}Ki, and etcd takes 1.5Mi of an object, unless its --max-request-bytes says more: write less, or to several objects (Request entity too large: limit is 3145728)"
    )
}

/// In the server's log.
pub fn log(lines: usize, bytes: usize) -> String {
    format!("{lines} more lines and {bytes} bytes beyond limits.log were cut")
}

pub fn request(bytes: usize) -> String {
    format!(
        "the request has {bytes} bytes, and 33554432 are allowed: the parent has too many or too large related objects"
    )
}

pub fn children(found: usize, max: usize) -> String {
    format!("the hook's answer: children has {found} items, and {max} are allowed (--max-children)")
}

/// The message about too many labels or annotations.
pub fn keys(field: &str, found: usize) -> String {
    format!(
        "the hook's answer: {field} has {found} keys, and 1000 are allowed: name only those that are to change"
    )
}

/// The message about the rules in a customize hook's answer; the flag follows from what there is too much of.
pub fn customize(path: &str, found: usize, what: &str, max: usize) -> String {
    let flag = match what {
        "labels and expressions" => "expressions",
        "values of labels" => "values",
        what => what,
    };
    format!(
        "the hook's answer: {path} brings it to {found} {what}, and {max} are allowed (--customize-{flag}-max): ask by labels that the objects share, or raise the flag"
    )
}

pub fn customize_steps(at: usize, max: usize) -> String {
    format!(
        "the hook's answer: with relatedResources[{at}] a reconcile looks at more than {max} objects and rules to find related objects, and {max} are allowed (--customize-steps-max): ask for fewer objects, by names or labels that few have"
    )
}

pub fn customize_memory(memory: usize, others: usize, max: usize) -> String {
    format!(
        "the hook's answer: remembering relatedResources takes {memory} bytes, the rules of other parents take {others}, and {max} are allowed for all parents (--customize-memory-max): ask by labels instead of names, or raise the flag"
    )
}

pub fn customize_watches(at: usize, kind: &str, max: usize) -> String {
    format!(
        "the hook's answer: relatedResources[{at}] needs a watch of {kind}, and the {max} watches that the related objects of a controller may have are open (--customize-watches-max): ask for fewer kinds and namespaces, or raise the flag"
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

pub fn polls(function: &str, entries: usize) -> String {
    let why = format!("it polls {entries} pollables at once and may poll 1000: poll fewer");
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

pub fn sparse_data(found: usize) -> String {
    format!(
        "the module's first data lies on {found} pages of 4 KiB more than it fills, and 2000 are allowed: lay it together"
    )
}

pub fn gaps(found: usize) -> String {
    format!(
        "the module's first data has {found} bytes of zeros between its pieces, and 67108864 are allowed: lay it together"
    )
}

pub fn names(found: usize) -> String {
    format!(
        "the names of imports and exports have {found} bytes, and 1048576 are allowed: import and export less, or by shorter names"
    )
}

pub fn many_names(found: usize) -> String {
    format!("there are {found} imports and exports, and 50000 are allowed: import and export less")
}

pub fn types(found: usize) -> String {
    format!(
        "the declarations of types have {found} bytes, and 131072 are allowed: declare fewer types, or smaller ones"
    )
}

pub fn nested(found: usize) -> String {
    format!("the component nests components and modules {found} deep, and 100 are allowed: make it flatter")
}

pub fn written_out(found: usize) -> String {
    format!(
        "the module is refused: its imports, exports and instances have {found} bytes when they are written out, and 1048576 are allowed: nest and repeat fewer instances"
    )
}

pub fn start_work(found: usize) -> String {
    format!(
        "each call of the module begins with {found} steps of the host (imports, functions, data, elements of tables, globals), and 400000 are allowed: lay its first data together, write it in the module, or instantiate it less often"
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
    format!(
        "compiling the module takes more than {max} of processor time (--module-compile-timeout): make it smaller"
    )
}

pub fn all_code(module: &str, together: &str, max: &str) -> String {
    format!(
        "with this module's {module}, the code of all loaded modules would take {together}, and {max} are allowed (--module-code-max): raise it where disk and memory have room, or make the modules smaller"
    )
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

/// The condition `ModulesLoaded` about a `ConfigMap` that is mounted at `/etc/greeting`.
pub fn mount_memory(name: &str, bytes: usize, max: &str) -> String {
    format!(
        "the ConfigMap {name}, which is mounted at /etc/greeting, takes {bytes} bytes of memory, and the mounts of all hooks may take {max} (--mount-memory-max), with older versions until the last call that sees them ends: raise the flag, or mount less"
    )
}

pub fn open_files(function: &str) -> String {
    stopped(function, "it has files open with more than 32 MiB together: close what has been read")
}

pub const COMPONENT: &str = "the component exports neither wasi:cli/run nor a function sync, finalize or customize: build a command (fn main), or the world metahook:hook";

pub const HTTP: &str = "the component wants what hooks cannot have: wasi:http/types@0.2.0; a hook has no network, and gets wasi:cli, clocks, filesystem, io and random of preview 2";

pub const MANY_MODULES: &str = "the component is made of more than 128 modules: make it of fewer";

pub const NO_START: &str = "the module has no function _start: build a command (fn main), not a library";
