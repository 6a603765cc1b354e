//! Bounds of what modules and components begin with, before they are compiled.

use metahook_core::shorten;
use wasmparser::{
    BinaryReaderError, Data, DataKind, DataSectionReader, MemorySectionReader, Operator, TableSectionReader,
};

use super::ModuleError;

/// Bytes of names that a module gives itself.
pub(super) const MAX_NAMES: usize = 500;

/// Imports that the error names.
pub(super) const MAX_NAMED: usize = 5;

/// Pages that the first data of a program may lie on, beyond those that its bytes fill. Each call writes them before it gives
/// way for the first time. A program in Go has 40,000 segments on 180 such pages, the interpreter of Python 2,600 on 150.
const MAX_SPARSE_PAGES: u64 = 2000;

/// Bytes of a page of the machine.
const PAGE: u64 = 4096;

/// The two kinds of WebAssembly files that hooks are made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Of preview 1.
    Module,
    /// Of preview 2.
    Component,
}

impl Kind {
    /// By the layer, which follows the version in the first eight bytes.
    pub(crate) fn of(bytes: &[u8]) -> Self {
        if bytes.get(6..8) == Some(&[1, 0]) { Self::Component } else { Self::Module }
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

/// Adds the pages that data fills in part to those of the program's other modules.
pub(super) fn check_data(data: DataSectionReader<'_>, sparse: &mut u64) -> Result<(), ModuleError> {
    let (mut bytes, mut pages, mut last) = (0_u64, 0_u64, None);
    for segment in data {
        let segment = segment?;
        let len = segment.data.len() as u64;
        let DataKind::Active { .. } = segment.kind else { continue };
        if len == 0 {
            continue;
        }
        bytes += len;
        // Where the place is computed, it may be any.
        let Some(start) = start(&segment)? else {
            pages += len / PAGE + 2;
            last = None;
            continue;
        };
        let (first, end) = (start / PAGE, (start + len - 1) / PAGE);
        pages += end - first + u64::from(last != Some(first));
        last = Some(end);
    }
    *sparse += pages.saturating_sub(bytes / PAGE);
    if *sparse > MAX_SPARSE_PAGES {
        return Err(ModuleError::Data { found: *sparse, bound: MAX_SPARSE_PAGES });
    }
    Ok(())
}

/// The place of a segment, where it is one number.
fn start(segment: &Data<'_>) -> Result<Option<u64>, ModuleError> {
    let DataKind::Active { offset_expr, .. } = &segment.kind else { return Ok(None) };
    let mut operators = offset_expr.get_operators_reader();
    Ok(match (operators.read()?, operators.read()?) {
        (Operator::I32Const { value }, Operator::End) => Some(value.cast_unsigned().into()),
        _ => None,
    })
}

impl From<BinaryReaderError> for ModuleError {
    fn from(error: BinaryReaderError) -> Self {
        Self::Refused(shorten(&error.to_string(), MAX_NAMES))
    }
}
