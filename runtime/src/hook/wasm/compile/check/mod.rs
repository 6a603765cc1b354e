//! Checks of a module: its outline before it is compiled, its features and its code in the compiler's process.

#[cfg(test)]
mod tests;

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
use super::types::Types;
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
        outline.declared.read(&payload)?;
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
    declared: Types,
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
