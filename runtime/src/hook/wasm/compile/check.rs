//! Checks of a module: its outline before it is compiled, its features and its code in the compiler's process.

use metahook_core::shorten;
use wasmparser::{
    BinaryReaderError, CompositeInnerType, Export, ExternalKind, FuncType, FuncValidatorAllocations,
    FunctionSectionReader, Parser, Payload, TypeRef, TypeSectionReader, ValidPayload, Validator,
    WasmFeatures,
};

use super::names::Names;
use super::outline::{
    MAX_NAMED, MAX_NAMES, OutlineBounds, WasmKind, check_gaps, check_memories, check_sparse, check_tables,
};
use super::start_work::{ModuleStart, StartWork};
use super::{ModuleError, component, tree};

/// The module that hooks may import from.
const WASI: &str = "wasi_snapshot_preview1";

/// The functions of that module.
const WASI_FUNCTIONS: &str = "args_get args_sizes_get clock_res_get clock_time_get environ_get environ_sizes_get \
    fd_advise fd_allocate fd_close fd_datasync fd_fdstat_get fd_fdstat_set_flags fd_fdstat_set_rights \
    fd_filestat_get fd_filestat_set_size fd_filestat_set_times fd_pread fd_prestat_dir_name fd_prestat_get \
    fd_pwrite fd_read fd_readdir fd_renumber fd_seek fd_sync fd_tell fd_write path_create_directory \
    path_filestat_get path_filestat_set_times path_link path_open path_readlink path_remove_directory \
    path_rename path_symlink path_unlink_file poll_oneoff proc_exit proc_raise random_get sched_yield \
    sock_accept sock_recv sock_send sock_shutdown";

/// Reads the outline. The bodies of functions are left to the compiler's process.
///
/// *Guarantees*: memory grows with the imports alone; work grows with the number of entries.
pub fn inspect(bytes: &[u8], bounds: OutlineBounds) -> Result<StartWork, ModuleError> {
    if !bytes.starts_with(b"\0asm") {
        let first: Vec<String> = bytes.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
        return Err(ModuleError::NotWasm(if first.is_empty() { "none".to_owned() } else { first.join(" ") }));
    }
    if WasmKind::of(bytes) == WasmKind::Component {
        return component::inspect(bytes, bounds);
    }
    let mut outline = Outline::default();
    for payload in Parser::new(0).parse_all(bytes) {
        let payload = payload?;
        outline.names.read(&payload)?;
        outline.work.read(&payload)?;
        outline.read(payload, bounds)?;
    }
    if outline.unknown_count > 0 {
        return Err(ModuleError::Import(outline.unknown()));
    }
    let start = outline.function(outline.start.ok_or(ModuleError::NoStart)?)?;
    let takes_nothing = |start: FuncType| start.params().is_empty() && start.results().is_empty();
    if !start.is_some_and(takes_nothing) {
        return Err(ModuleError::StartType);
    }
    StartWork::of(outline.work.steps(WasmKind::Module))
}

#[derive(Default)]
struct Outline<'a> {
    work: ModuleStart,
    names: Names,
    types: Option<TypeSectionReader<'a>>,
    /// Types of imported functions, which are numbered first.
    imported: Vec<u32>,
    functions: Option<FunctionSectionReader<'a>>,
    /// The number of the function that is exported as `_start`.
    start: Option<u32>,
    /// Imports that hooks do not get: the first few, and how many.
    unknown: Vec<String>,
    unknown_count: usize,
}

impl<'a> Outline<'a> {
    fn read(&mut self, payload: Payload<'a>, bounds: OutlineBounds) -> Result<(), ModuleError> {
        match payload {
            Payload::TypeSection(types) => self.types = Some(types),
            Payload::ImportSection(imports) => {
                for import in imports.into_imports() {
                    let import = import?;
                    self.import(import.module, import.name, import.ty);
                }
            }
            Payload::FunctionSection(functions) => {
                let found = functions.count();
                if found > bounds.functions {
                    return Err(ModuleError::Functions { found, bound: bounds.functions });
                }
                self.functions = Some(functions);
            }
            Payload::TableSection(tables) => {
                if tables.count() > 1 {
                    return Err(ModuleError::Tables(tables.count()));
                }
                check_tables(tables, bounds)?;
            }
            Payload::MemorySection(memories) => check_memories(memories, bounds)?,
            Payload::DataSection(_) => {
                check_sparse(self.work.sparse_pages())?;
                check_gaps(self.work.gaps(WasmKind::Module))?;
            }
            Payload::ExportSection(exports) => {
                for export in exports {
                    if let Export { name: "_start", kind: ExternalKind::Func, index } = export? {
                        self.start = Some(index);
                    }
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn import(&mut self, module: &str, name: &str, ty: TypeRef) {
        if module == WASI
            && let TypeRef::Func(ty) = ty
            && WASI_FUNCTIONS.split_ascii_whitespace().any(|known| known == name)
        {
            self.imported.push(ty);
            return;
        }
        self.unknown_count += 1;
        if self.unknown.len() < MAX_NAMED {
            self.unknown.push(shorten(&format!("{module}.{name}"), MAX_NAMES / MAX_NAMED));
        }
    }

    fn unknown(&self) -> String {
        let named = self.unknown.join(", ");
        match self.unknown_count - self.unknown.len() {
            0 => named,
            more => format!("{named} and {more} more"),
        }
    }

    /// The type of a function; none where no function has the number.
    fn function(&self, index: u32) -> Result<Option<FuncType>, ModuleError> {
        let index = usize::try_from(index).unwrap_or(usize::MAX);
        let ty = match (self.imported.get(index), &self.functions) {
            (Some(ty), _) => Some(*ty),
            (None, None) => None,
            (None, Some(own)) => own.clone().into_iter().nth(index - self.imported.len()).transpose()?,
        };
        let (Some(ty), Some(types)) = (ty, &self.types) else { return Ok(None) };
        let mut before = usize::try_from(ty).unwrap_or(usize::MAX);
        for group in types.clone() {
            let group = group?;
            let count = group.types().len();
            if let Some(found) = group.types().nth(before) {
                return Ok(match &found.composite_type.inner {
                    CompositeInnerType::Func(function) => Some(function.clone()),
                    _ => None,
                });
            }
            before -= count;
        }
        Ok(None)
    }
}

/// The features that toolchains use for wasm32-wasip1; any other would be attack surface.
pub(super) const ALLOWED: WasmFeatures =
    WasmFeatures::WASM2.difference(WasmFeatures::GC_TYPES).union(WasmFeatures::FLOATS);

/// Features that components may use: libraries that are linked at run time begin with constants that are computed.
pub(super) const ALLOWED_IN_COMPONENTS: WasmFeatures =
    ALLOWED.union(WasmFeatures::COMPONENT_MODEL).union(WasmFeatures::EXTENDED_CONST);

/// The other features: their common name, and the target feature of compilers that brings them.
const NAMES: [(WasmFeatures, &str, &str); 14] = [
    (WasmFeatures::MEMORY64, "memory64", "memory64"),
    (WasmFeatures::THREADS, "threads (shared memory, atomics)", "atomics"),
    (WasmFeatures::SHARED_EVERYTHING_THREADS, "shared-everything threads", "shared-everything"),
    (WasmFeatures::MULTI_MEMORY, "several memories", "multimemory"),
    (WasmFeatures::RELAXED_SIMD, "relaxed SIMD", "relaxed-simd"),
    (WasmFeatures::TAIL_CALL, "tail calls", "tail-call"),
    (WasmFeatures::EXCEPTIONS, "exceptions", "exception-handling"),
    (WasmFeatures::LEGACY_EXCEPTIONS, "exceptions", "exception-handling"),
    (WasmFeatures::EXTENDED_CONST, "extended constant expressions", "extended-const"),
    (WasmFeatures::GC, "garbage collection", "gc"),
    (WasmFeatures::GC_TYPES, "garbage collected types", "gc"),
    (WasmFeatures::FUNCTION_REFERENCES, "typed function references", "gc"),
    (WasmFeatures::CUSTOM_PAGE_SIZES, "custom page sizes", "custom-page-sizes"),
    (WasmFeatures::WIDE_ARITHMETIC, "wide arithmetic", "wide-arithmetic"),
];

/// Validates a whole module. The error names the feature, where one is missing.
pub(super) fn validate(bytes: &[u8]) -> Result<(), String> {
    let kind = WasmKind::of(bytes);
    let (allowed, target) = match kind {
        WasmKind::Module => (ALLOWED, "wasm32-wasip1"),
        WasmKind::Component => (ALLOWED_IN_COMPONENTS, "wasm32-wasip2"),
    };
    let Err(error) = check(bytes, allowed) else {
        return match kind {
            WasmKind::Module => Ok(()),
            WasmKind::Component => tree::check(bytes, allowed),
        };
    };
    // Some errors do not name their feature: with it they are gone, or come later.
    let goes_with = |feature: WasmFeatures| {
        check(bytes, allowed | feature).err().is_none_or(|other| other.offset() > error.offset())
    };
    let known = NAMES.iter().find(|(feature, ..)| match error.missing_wasm_feature() {
        Some(missing) => *feature == missing,
        None => goes_with(*feature),
    });
    Err(match (known, error.missing_wasm_feature()) {
        (Some((_, name, target_feature)), _) => format!(
            "it uses {name}, which hooks do not have: build with --target {target} and without the target feature {target_feature}"
        ),
        (None, Some(_)) => {
            format!("it uses a feature that hooks do not have: {error}; build with --target {target}")
        }
        (None, None) => error.to_string(),
    })
}

fn check(bytes: &[u8], features: WasmFeatures) -> Result<(), BinaryReaderError> {
    let mut validator = Validator::new_with_features(features);
    let mut allocations = FuncValidatorAllocations::default();
    for payload in Parser::new(0).parse_all(bytes) {
        if let ValidPayload::Func(function, body) = validator.payload(&payload?)? {
            let mut function = function.into_validator(allocations);
            function.validate(&body)?;
            allocations = function.into_allocations();
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUNDS: OutlineBounds = OutlineBounds { functions: 3, memory: 1 << 20 };
    const START: &str = "(func (export \"_start\"))";

    fn found(text: &str) -> Result<(), ModuleError> {
        inspect(&wat::parse_str(format!("(module {text})")).unwrap(), BOUNDS).map(drop)
    }

    fn refused(text: &str) -> String {
        found(text).unwrap_err().to_string()
    }

    #[test]
    fn a_command_is_a_hook() {
        assert_eq!(found(START), Ok(()));
        let imports =
            r#"(import "wasi_snapshot_preview1" "fd_write" (func (param i32 i32 i32 i32) (result i32)))"#;
        assert_eq!(found(&format!("{imports} (func) {START}")), Ok(()));
        assert_eq!(
            found("(rec (type (func (param i32))) (type $t (func))) (func (export \"_start\") (type $t))"),
            Ok(())
        );
    }

    #[test]
    fn bytes_that_are_no_module_are_described() {
        let refused = |bytes: &[u8]| inspect(bytes, BOUNDS).unwrap_err().to_string();
        assert_eq!(
            refused(b"hello"),
            "this is not a WebAssembly module: its first bytes are 68 65 6c 6c 6f, not 00 61 73 6d"
        );
        assert!(refused(b"").contains("its first bytes are none"));
        assert!(refused(b"\0asm\x02\0\0\0").starts_with("the module is refused: unknown binary version"));
        assert!(refused(b"\0asm\x01\0\0\0\xff").starts_with("the module is refused: "));
    }

    #[test]
    fn a_module_without_start_is_no_hook() {
        for text in ["", "(func (export \"start\"))", "(memory (export \"_start\") 1)"] {
            assert_eq!(found(text), Err(ModuleError::NoStart), "{text}");
        }
        for text in ["(param i32)", "(result i32) (i32.const 1)"] {
            assert_eq!(
                found(&format!("(func (export \"_start\") {text})")),
                Err(ModuleError::StartType),
                "{text}"
            );
        }
    }

    #[test]
    fn functions_up_to_the_bound_are_taken() {
        assert_eq!(found(&format!("(func) (func) {START}")), Ok(()));
        assert_eq!(
            refused(&format!("(func) (func) (func) {START}")),
            "the module has 4 functions, and 3 are allowed (--module-functions-max): make it smaller"
        );
    }

    #[test]
    fn a_table_up_to_the_bound_is_taken() {
        assert_eq!(found(&format!("(table 3 funcref) {START}")), Ok(()));
        assert_eq!(
            refused(&format!("(table 4 funcref) {START}")),
            "the module has a table of 4 elements, and 3 are allowed (--module-functions-max): make it smaller"
        );
    }

    #[test]
    fn a_first_memory_up_to_the_ceiling_is_taken() {
        assert_eq!(found(&format!("(memory 16) {START}")), Ok(()));
        assert_eq!(
            refused(&format!("(memory 17) {START}")),
            "the module begins with 1088Ki of memory, and no hook gets more than 1Mi (--hook-memory-max): lower its initial memory"
        );
    }

    #[test]
    fn data_may_lie_on_so_many_pages_that_it_does_not_fill() {
        let data = |pages: u32, apart: u32, bytes: &str| {
            let segment = |page| format!("(data (i32.const {}) \"{bytes}\")", page * apart);
            (0..pages).map(segment).collect::<Vec<_>>().concat()
        };
        let found = |text: &str| {
            let text = format!("(module (memory 200) {text} {START})");
            inspect(&wat::parse_str(text).unwrap(), OutlineBounds { memory: 16 << 20, ..BOUNDS }).map(drop)
        };
        assert_eq!(found(&data(2000, 4096, "x")), Ok(()));
        assert_eq!(found(&data(2001, 4096, "x")), Err(ModuleError::Data { found: 2001, bound: 2000 }));
        // What fills its pages has no bound but the module's size, in one piece or in many.
        assert_eq!(found(&format!("(data (i32.const 0) \"{}\")", "x".repeat(9 << 20))), Ok(()));
        assert_eq!(found(&data(20_000, 4, "xyz")), Ok(()));
        // A place that is computed may be any; data without a place is written when the hook asks for it.
        let computed = "(global i32 (i32.const 0))".to_owned() + &"(data (global.get 0) \"x\")".repeat(1001);
        assert_eq!(found(&computed), Err(ModuleError::Data { found: 2002, bound: 2000 }));
        assert_eq!(found(&"(data \"x\")".repeat(3000)), Ok(()));
    }

    #[test]
    fn unknown_imports_are_named() {
        let import = |module: &str, name: &str| format!("(import \"{module}\" \"{name}\" (func))");
        let two = import("env", "launch") + &import(WASI, "fd_launch");
        assert_eq!(
            refused(&format!("{two} {START}")),
            "the module wants what hooks cannot have: env.launch, wasi_snapshot_preview1.fd_launch; a hook gets WASI preview 1 and nothing else"
        );
        let seven: String = (0..7).map(|number| import("env", &number.to_string())).collect();
        assert!(refused(&format!("{seven} {START}")).contains("env.4 and 2 more;"));
        assert!(refused(&format!("(import \"env\" \"memory\" (memory 1)) {START}")).contains("env.memory;"));
    }

    proptest::proptest! {
        #[test]
        fn no_bytes_make_the_outline_panic(bytes: Vec<u8>, place: usize, value: u8) {
            drop(inspect(&[b"\0asm\x01\0\0\0", bytes.as_slice()].concat(), BOUNDS));
            let mut module = wat::parse_str(format!("(module (table 1 funcref) (memory 1) {START})")).unwrap();
            let place = place % module.len();
            module[place] = value;
            drop(inspect(&module, BOUNDS));
        }
    }

    fn error(text: &str) -> String {
        validate(&wat::parse_str(format!("(module {text})")).unwrap()).unwrap_err()
    }

    #[test]
    fn the_features_of_toolchains_are_allowed() {
        let text = r#"(module
            (memory 1) (table 1 funcref) (global (mut i32) (i32.const 0)) (data "x") (elem declare func $f)
            (func $f (param f64) (result i32 i32)
              (memory.copy (i32.const 0) (i32.const 1) (i32.const 1))
              (memory.init 0 (i32.const 0) (i32.const 0) (i32.const 1))
              (drop (i32x4.splat (i32.const 1)))
              (drop (ref.func $f))
              (i32.trunc_sat_f64_s (local.get 0))
              (i32.extend8_s (i32.const 1))))"#;
        assert_eq!(validate(&wat::parse_str(text).unwrap()), Ok(()));
    }

    #[test]
    fn a_feature_that_is_off_is_named() {
        for (text, name) in [
            ("(memory i64 1)", "memory64"),
            ("(table i64 1 funcref)", "memory64"),
            ("(memory 1 1 shared)", "threads (shared memory, atomics)"),
            ("(memory 1) (func (drop (i32.atomic.load (i32.const 0))))", "threads (shared memory, atomics)"),
            ("(memory 1) (memory 1)", "several memories"),
            ("(func (return_call 0))", "tail calls"),
            ("(tag)", "exceptions"),
            ("(func (try_table))", "exceptions"),
            ("(type (struct))", "garbage collection"),
            ("(func (param externref))", "garbage collected types"),
            ("(func (param (ref func)))", "typed function references"),
            ("(memory 1 (pagesize 1))", "custom page sizes"),
            ("(global i32 (i32.add (i32.const 1) (i32.const 1)))", "extended constant expressions"),
            ("(func (param v128) (drop (i32x4.relaxed_trunc_f32x4_s (local.get 0))))", "relaxed SIMD"),
            (
                "(func (param i64) (result i64 i64) (i64.mul_wide_s (local.get 0) (local.get 0)))",
                "wide arithmetic",
            ),
        ] {
            let said = error(text);
            assert!(
                said.starts_with(&format!("it uses {name}, which hooks do not have: build with")),
                "{text}: {said}"
            );
        }
        assert_eq!(
            error("(func (return_call 0))"),
            "it uses tail calls, which hooks do not have: build with --target wasm32-wasip1 and without the target feature tail-call"
        );
    }

    #[test]
    fn wrong_code_is_refused_with_its_offset() {
        assert_eq!(
            error("(func (result i32))"),
            "type mismatch: expected i32 but nothing on stack (at offset 0x18)"
        );
    }
}
