//! Outline of a module, checked before it is compiled: it is a hook, and within its bounds.

use wasmparser::{
    CompositeInnerType, Encoding, Export, ExternalKind, FuncType, FunctionSectionReader, MemoryType, Parser,
    Payload, TableType, TypeRef, TypeSectionReader,
};

use metahook_core::text::shorten;

use super::module_error::ModuleError;

/// Bytes of names that a module gives itself.
const MAX_NAMES: usize = 500;

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

/// Bounds of the engine for one module.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct OutlineBounds {
    pub(super) functions: u32,
    pub(super) memory: u64,
    pub(super) table: u64,
}

/// Reads the outline. The bodies of functions are left to the compiler's process.
///
/// *Guarantees*: memory grows with the imports alone; work grows with the number of entries.
pub(super) fn inspect(bytes: &[u8], bounds: OutlineBounds) -> Result<(), ModuleError> {
    if !bytes.starts_with(b"\0asm") {
        let first: Vec<String> = bytes.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
        return Err(ModuleError::NotWasm(if first.is_empty() { "none".to_owned() } else { first.join(" ") }));
    }
    let mut outline = Outline::default();
    for payload in Parser::new(0).parse_all(bytes) {
        outline.read(payload?, bounds)?;
    }
    if outline.unknown_count > 0 {
        return Err(ModuleError::Import(outline.unknown()));
    }
    let start = outline.start.ok_or(ModuleError::NoStart)?;
    let takes_nothing = |start: &FuncType| start.params().is_empty() && start.results().is_empty();
    if outline.function(start)?.is_some_and(|start| takes_nothing(&start)) {
        Ok(())
    } else {
        Err(ModuleError::StartType)
    }
}

#[derive(Default)]
struct Outline<'a> {
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
            Payload::Version { encoding: Encoding::Component, .. } => return Err(ModuleError::Component),
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
                for table in tables {
                    check_table(&table?.ty, bounds)?;
                }
            }
            Payload::MemorySection(memories) => {
                for memory in memories {
                    check_memory(&memory?, bounds)?;
                }
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
        /// Imports that the error names.
        const MAX_NAMED: usize = 5;
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

fn check_table(table: &TableType, bounds: OutlineBounds) -> Result<(), ModuleError> {
    if table.initial <= bounds.table {
        return Ok(());
    }
    Err(ModuleError::Table { found: table.initial, bound: bounds.table })
}

fn check_memory(memory: &MemoryType, bounds: OutlineBounds) -> Result<(), ModuleError> {
    let page = 1_u64.checked_shl(memory.page_size_log2.unwrap_or(16)).unwrap_or(u64::MAX);
    let found = memory.initial.saturating_mul(page);
    if found <= bounds.memory { Ok(()) } else { Err(ModuleError::Memory { found, bound: bounds.memory }) }
}

impl From<wasmparser::BinaryReaderError> for ModuleError {
    fn from(error: wasmparser::BinaryReaderError) -> Self {
        Self::Refused(shorten(&error.to_string(), MAX_NAMES))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUNDS: OutlineBounds = OutlineBounds { functions: 3, memory: 1 << 20, table: 10 };
    const START: &str = "(func (export \"_start\"))";

    fn found(text: &str) -> Result<(), ModuleError> {
        inspect(&wat::parse_str(format!("(module {text})")).unwrap(), BOUNDS)
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
        assert_eq!(
            refused(&wat::parse_str("(component)").unwrap()),
            "this is a component, and hooks are modules: build with --target wasm32-wasip1"
        );
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
        assert_eq!(found(&format!("(table 10 funcref) {START}")), Ok(()));
        assert_eq!(
            refused(&format!("(table 11 funcref) {START}")),
            "the module has a table of 11 elements, and 10 are allowed (--module-functions-max): make it smaller"
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
}
