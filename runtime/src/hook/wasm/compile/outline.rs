//! Bounds of what modules and components begin with, before they are compiled.

use metahook_core::shorten;
use wasmparser::{BinaryReaderError, MemorySectionReader, TableSectionReader};

use super::ModuleError;

/// Bytes of names that a module gives itself.
pub(super) const MAX_NAMES: usize = 500;

/// Imports that the error names.
pub(super) const MAX_NAMED: usize = 5;

/// Pages that the first data of a program may lie on, beyond those that its bytes fill. Each call writes them before it gives
/// way for the first time. A program in Go has 40,000 segments on 180 such pages, the interpreter of Python 2,600 on 150.
const MAX_SPARSE_PAGES: u64 = 2000;

/// Zeros between pieces of first data: the engine keeps them with the code, and once more as an image of the memory. The
/// interpreter of Python has 4.4 MB, a program in Go 0.7 MB.
const MAX_GAPS: u64 = 64 << 20;

/// The two kinds of WebAssembly files that hooks are made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WasmKind {
    /// A module of preview 1.
    Module,
    /// A component of preview 2.
    Component,
}

impl WasmKind {
    /// The kind by the layer, which follows the version in the first eight bytes.
    pub fn of(bytes: &[u8]) -> Self {
        if bytes.get(6..8) == Some(&[1, 0]) { Self::Component } else { Self::Module }
    }

    /// Bytes of a memory's first content that the engine maps, however much of it is zeros: that of an interpreter as a component is a few
    /// times ten MiB.
    pub(super) fn dense_image(self) -> u64 {
        match self {
            Self::Module => 16 << 20,
            Self::Component => 64 << 20,
        }
    }
}

/// Bounds of the engine for one module.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OutlineBounds {
    /// Functions, and elements of the table.
    pub functions: u32,
    pub memory: u64,
}

pub(super) fn check_tables(tables: TableSectionReader<'_>, bounds: OutlineBounds) -> Result<(), ModuleError> {
    let bound = bounds.functions.into();
    for table in tables {
        let found = table?.ty.initial;
        if found > bound {
            return Err(ModuleError::Table { found, bound });
        }
    }
    Ok(())
}

pub(super) fn check_memories(
    memories: MemorySectionReader<'_>,
    bounds: OutlineBounds,
) -> Result<(), ModuleError> {
    for memory in memories {
        let memory = memory?;
        let page = 1_u64.checked_shl(memory.page_size_log2.unwrap_or(16)).unwrap_or(u64::MAX);
        let found = memory.initial.saturating_mul(page);
        if found > bounds.memory {
            return Err(ModuleError::Memory { found, bound: bounds.memory });
        }
    }
    Ok(())
}

/// `found`: pages that first data fills in part, of all modules of a program.
pub(super) fn check_sparse(found: u64) -> Result<(), ModuleError> {
    if found > MAX_SPARSE_PAGES {
        return Err(ModuleError::Data { found, bound: MAX_SPARSE_PAGES });
    }
    Ok(())
}

/// `found`: zeros between pieces of first data, of all modules of a program.
pub(super) fn check_gaps(found: u64) -> Result<(), ModuleError> {
    if found > MAX_GAPS {
        return Err(ModuleError::Gaps { found, bound: MAX_GAPS });
    }
    Ok(())
}

impl From<BinaryReaderError> for ModuleError {
    fn from(error: BinaryReaderError) -> Self {
        Self::Refused(shorten(&error.to_string(), MAX_NAMES))
    }
}
