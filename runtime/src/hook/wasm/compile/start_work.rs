//! Work of the host at the start of each call: it looks up the imports and writes the first data, tables and globals of a program
//! before the first instruction runs, and without giving way. It is counted in steps before the program is compiled.

use wasmparser::{
    BinaryReaderError, ConstExpr, Data, DataKind, ElementItems, ElementKind, ElementSectionReader, Operator,
    Payload, TableInit, TableSectionReader,
};

use super::ModuleError;
use super::outline::WasmKind;

/// Steps that a program may begin with: at most some 25 ms, in which nothing else runs on its thread.
const MAX_STEPS: u64 = 400_000;

/// Steps that cost nothing, as most programs have fewer.
const FREE_STEPS: u64 = 10_000;

/// Instructions of each step beyond those.
const STEP_COST: u64 = 10;

/// Steps of an element of a table or a global that is computed: each is a call of the engine.
const COMPUTED_STEPS: u64 = 5;

/// Steps of a page that is written: the machine finds memory for it, and clears it.
const PAGE_STEPS: u64 = 160;

/// Elements of a table that are cleared in one step.
const ELEMENTS_PER_STEP: u64 = 16;

/// Functions whose records are made in one step, once the program asks for them: 32 bytes each, in each instance, which no
/// limit of memory counts. All instances of a call may have some 24 MiB of them at most.
const FUNCTIONS_PER_STEP: u64 = 2;

/// Bytes of a page of the machine.
const PAGE: u64 = 4096;

/// Steps of the host at the start of each call.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StartWork {
    steps: u64,
}

/// Steps of one core module, as far as it has been read.
#[derive(Debug, Default)]
pub(super) struct ModuleStart {
    steps: u64,
    data: FirstData,
    /// Bytes of its own memory; zero where it has none.
    memory: u64,
    /// Elements of its own table.
    table: u64,
    /// A segment of elements is written by the host at each call, and so are all behind it.
    writes_elements: bool,
}

/// Data that is written first. Where it lies together the engine maps it, and writes nothing.
#[derive(Debug, Default)]
struct FirstData {
    segments: u64,
    bytes: u64,
    pages: u64,
    last_page: Option<u64>,
    /// From its first byte to its last.
    start: u64,
    end: u64,
    /// A place is computed, or lies outside of the memory.
    is_unknown: bool,
}

impl StartWork {
    /// # Errors
    /// There are more steps than a program may have.
    pub(in crate::hook::wasm) fn of(steps: u64) -> Result<Self, ModuleError> {
        if steps > MAX_STEPS {
            return Err(ModuleError::Start { found: steps, bound: MAX_STEPS });
        }
        Ok(Self { steps })
    }

    /// Instructions that each call pays before its first one.
    pub(in crate::hook::wasm) fn cost(self) -> u64 {
        self.steps.saturating_sub(FREE_STEPS) * STEP_COST
    }
}

impl ModuleStart {
    pub(super) fn read(&mut self, payload: &Payload<'_>) -> Result<(), BinaryReaderError> {
        match payload {
            Payload::FunctionSection(functions) => {
                self.add(u64::from(functions.count()) / FUNCTIONS_PER_STEP);
            }
            Payload::TableSection(tables) => self.tables(tables.clone())?,
            Payload::MemorySection(memories) => {
                for memory in memories.clone() {
                    self.memory = memory?.initial.saturating_mul(1 << 16);
                }
            }
            Payload::ImportSection(imports) => {
                for import in imports.clone().into_imports() {
                    import?;
                    self.add(1);
                }
            }
            Payload::GlobalSection(globals) => {
                for global in globals.clone() {
                    self.add(if is_number(&global?.init_expr)? { 1 } else { COMPUTED_STEPS });
                }
            }
            Payload::ElementSection(segments) => self.elements(segments.clone())?,
            Payload::DataSection(data) => {
                for segment in data.clone() {
                    self.data.add(&segment?, self.memory)?;
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// `kind`: what the module is, or what it is a part of.
    pub(super) fn steps(&self, kind: WasmKind) -> u64 {
        self.steps.saturating_add(self.data.steps(kind.dense_image()))
    }

    /// Pages that first data fills in part.
    pub(super) fn sparse_pages(&self) -> u64 {
        self.data.sparse_pages()
    }

    /// Zeros that the engine lays between pieces of first data. `kind`: what the module is, or what it is a part of.
    pub(super) fn gaps(&self, kind: WasmKind) -> u64 {
        self.data.gaps(kind.dense_image())
    }

    fn add(&mut self, steps: u64) {
        self.steps = self.steps.saturating_add(steps);
    }

    fn tables(&mut self, tables: TableSectionReader<'_>) -> Result<(), BinaryReaderError> {
        for table in tables {
            let table = table?;
            self.table = table.ty.initial;
            self.add(self.table / ELEMENTS_PER_STEP);
            if let TableInit::Expr(_) = table.init {
                self.add(self.table.saturating_mul(COMPUTED_STEPS));
            }
        }
        Ok(())
    }

    /// The engine writes functions at a fixed place of the table when they are called for the first time, and all others at
    /// the start.
    fn elements(&mut self, segments: ElementSectionReader<'_>) -> Result<(), BinaryReaderError> {
        for segment in segments {
            let segment = segment?;
            let (count, is_functions) = match &segment.items {
                ElementItems::Functions(functions) => (u64::from(functions.count()), true),
                ElementItems::Expressions(_, expressions) => (u64::from(expressions.count()), false),
            };
            match segment.kind {
                ElementKind::Active { offset_expr, .. } => {
                    let place = place(&offset_expr)?;
                    let fits = place.is_some_and(|place| place + count <= self.table);
                    self.writes_elements |= !(fits && is_functions);
                    if self.writes_elements {
                        self.add(1 + count * COMPUTED_STEPS);
                    }
                }
                ElementKind::Passive => self.add(1 + count * COMPUTED_STEPS),
                ElementKind::Declared => {}
            }
        }
        Ok(())
    }
}

impl FirstData {
    fn add(&mut self, segment: &Data<'_>, memory: u64) -> Result<(), BinaryReaderError> {
        let DataKind::Active { offset_expr, .. } = &segment.kind else { return Ok(()) };
        let len = segment.data.len() as u64;
        let place = place(offset_expr)?;
        self.segments += 1;
        self.is_unknown |= place.is_none_or(|place| place + len > memory);
        if len == 0 {
            return Ok(());
        }
        self.bytes += len;
        // Where the place is computed, it may be any.
        let Some(place) = place else {
            self.pages += len / PAGE + 2;
            self.last_page = None;
            return Ok(());
        };
        let (first, last) = (place / PAGE, (place + len - 1) / PAGE);
        self.pages += last - first + u64::from(self.last_page != Some(first));
        self.last_page = Some(last);
        self.start = if self.bytes == len { place } else { self.start.min(place) };
        self.end = self.end.max(place + len);
        Ok(())
    }

    /// The engine's own rule: it maps an image of the data that is not too large, or half of which is data.
    fn is_mapped(&self, dense_image: u64) -> bool {
        let image = self.end - self.start;
        !self.is_unknown && (image < dense_image || image < self.bytes * 2)
    }

    fn steps(&self, dense_image: u64) -> u64 {
        if self.is_mapped(dense_image) { 0 } else { self.segments + self.pages * PAGE_STEPS }
    }

    /// Bytes of the image beyond those of the data: with them the engine takes no more memory for images than the module has bytes.
    fn gaps(&self, dense_image: u64) -> u64 {
        if self.is_mapped(dense_image) { (self.end - self.start).saturating_sub(self.bytes) } else { 0 }
    }

    /// Pages beyond those that the bytes fill.
    fn sparse_pages(&self) -> u64 {
        self.pages.saturating_sub(self.bytes / PAGE)
    }
}

/// The engine writes it as it stands in the module.
fn is_number(expression: &ConstExpr<'_>) -> Result<bool, BinaryReaderError> {
    let mut operators = expression.get_operators_reader();
    let is_number = matches!(
        operators.read()?,
        Operator::I32Const { .. }
            | Operator::I64Const { .. }
            | Operator::F32Const { .. }
            | Operator::F64Const { .. }
            | Operator::V128Const { .. }
            | Operator::RefNull { .. }
    );
    Ok(is_number && matches!(operators.read()?, Operator::End))
}

/// The place of a segment, where it is one number.
fn place(expression: &ConstExpr<'_>) -> Result<Option<u64>, BinaryReaderError> {
    let mut operators = expression.get_operators_reader();
    Ok(match (operators.read()?, operators.read()?) {
        (Operator::I32Const { value }, Operator::End) => Some(value.cast_unsigned().into()),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use wasmparser::Parser;

    use super::*;

    fn steps(text: &str) -> u64 {
        read(text).steps(WasmKind::Module)
    }

    fn read(text: &str) -> ModuleStart {
        let bytes = wat::parse_str(format!("(module {text} (func $f))")).unwrap();
        let mut start = ModuleStart::default();
        for payload in Parser::new(0).parse_all(&bytes) {
            start.read(&payload.unwrap()).unwrap();
        }
        start
    }

    #[test]
    fn gaps_are_the_zeros_that_the_engine_adds_to_data() {
        let far = "(memory 300) (data (i32.const 9) \"xyz\") (data (i32.const 0x1000000) \"x\")";
        assert_eq!(read(far).gaps(WasmKind::Module), 0x100_0000 + 1 - 9 - 4);
        // Where it is mapped no more, each call writes it, and nothing is added.
        let further = far.replace("0x1000000", "0x1000009");
        assert_eq!(
            (read(&further).gaps(WasmKind::Module), read(&further).gaps(WasmKind::Component)),
            (0, 0x100_0001 - 4)
        );
        let computed = format!("(global i32 (i32.const 0)) {far} (data (global.get 0) \"x\")");
        for none in ["(memory 1) (data (i32.const 9) \"xyz\")", "(memory 1) (data \"xyz\")", "", &computed] {
            assert_eq!(read(none).gaps(WasmKind::Module), 0, "{none}");
        }
        let over =
            "(memory 1) (data (i32.const 0) \"xyz\") (data (i32.const 1) \"xyz\") (data (i32.const 6) \"x\")";
        assert_eq!(read(over).gaps(WasmKind::Module), 0, "no more than the bytes of the module");
    }

    #[test]
    fn what_the_engine_prepares_takes_no_steps() {
        for text in [
            "(memory 300) (data (i32.const 9) \"xyz\") (data (i32.const 0x1000000) \"x\")",
            "(table 9 funcref) (elem (i32.const 1) $f $f) (elem (i32.const 8) $f)",
            "(elem declare func $f) (memory 1) (data \"passive\")",
        ] {
            assert_eq!(steps(text), 0, "{text}");
        }
    }

    #[test]
    fn what_each_call_writes_is_counted() {
        for (text, expected) in [
            // The image would be too large, or a place is none of the memory.
            ("(memory 300) (data (i32.const 0) \"x\") (data (i32.const 0x1000001) \"x\")", 2 * 161),
            ("(memory 600) (data (i32.const 4095) \"xy\") (data (i32.const 0x2000001) \"x\")", 2 + 3 * 160),
            ("(memory 1) (data (i32.const 65535) \"xy\")", 1 + 2 * 160),
            ("(memory 1) (global i32 (i32.const 0)) (data (global.get 0) \"x\")", 1 + 1 + 2 * 160),
            (r#"(import "a" "b" (func)) (import "a" "b" (func)) (import "a" "c" (memory 1))"#, 3),
            ("(table 160 funcref)", 10),
            ("(table 16 funcref (ref.func $f))", 1 + 16 * 5),
            // An element that the engine does not prepare, and all behind it.
            ("(table 2 funcref) (elem (i32.const 0) funcref (ref.func $f)) (elem (i32.const 1) $f)", 2 * 6),
            ("(table 2 funcref) (elem (i32.const 1) $f $f)", 11),
            ("(elem func $f $f)", 11),
            ("(global i32 (i32.const 0)) (global funcref (ref.func $f))", 1 + 5),
        ] {
            assert_eq!(steps(text), expected, "{text}");
        }
    }

    #[test]
    fn functions_are_counted_because_each_instance_may_have_records_of_them() {
        assert_eq!(steps(&"(func)".repeat(999)), 500);
        assert_eq!(steps(&format!("{} (elem declare func 0 1)", "(func)".repeat(9_999))), 5_000);
    }

    #[test]
    fn few_steps_are_free_and_too_many_are_refused() {
        let cost = |steps| StartWork::of(steps).map(StartWork::cost);
        for (steps, expected) in [(0, 0), (10_000, 0), (10_001, 10), (400_000, 3_900_000)] {
            assert_eq!(cost(steps), Ok(expected));
        }
        assert_eq!(cost(400_001), Err(ModuleError::Start { found: 400_001, bound: 400_000 }));
    }
}
