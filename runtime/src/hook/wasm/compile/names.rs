//! Names of imports and exports: the server keeps them as long as it keeps the module, each with a record of its own.

use wasmparser::{ComponentExternName, Payload};

use super::ModuleError;

/// Bytes of all names of a module, or of all modules and components of a component. The interpreter of Python has 150 KB.
const MAX_BYTES: u64 = 1 << 20;

/// Names of a module, or of all modules and components of a component: each takes some 130 bytes besides its text. The interpreter of
/// Python has 6,500.
const MAX_COUNT: u64 = 50_000;

/// The names that have been read.
#[derive(Debug, Default)]
pub(super) struct Names {
    bytes: u64,
    count: u64,
}

impl Names {
    /// # Errors
    /// There are more imports and exports than are allowed, or their names have more bytes.
    pub(super) fn read(&mut self, payload: &Payload<'_>) -> Result<(), ModuleError> {
        match payload {
            Payload::ImportSection(imports) => {
                for import in imports.clone().into_imports() {
                    let import = import?;
                    self.add(&[import.module, import.name]);
                }
            }
            Payload::ExportSection(exports) => {
                for export in exports.clone() {
                    self.add(&[export?.name]);
                }
            }
            Payload::ComponentImportSection(imports) => {
                for import in imports.clone() {
                    self.add_extern(&import?.name);
                }
            }
            Payload::ComponentExportSection(exports) => {
                for export in exports.clone() {
                    self.add_extern(&export?.name);
                }
            }
            _ => return Ok(()),
        }
        if self.bytes > MAX_BYTES {
            return Err(ModuleError::Names { found: self.bytes, bound: MAX_BYTES });
        }
        if self.count > MAX_COUNT {
            return Err(ModuleError::ManyNames { found: self.count, bound: MAX_COUNT });
        }
        Ok(())
    }

    fn add_extern(&mut self, name: &ComponentExternName<'_>) {
        let [implements, suffix, id] =
            [name.implements, name.version_suffix, name.external_id].map(Option::unwrap_or_default);
        self.add(&[name.name, implements, suffix, id]);
    }

    /// Adds the texts of one name.
    fn add(&mut self, names: &[&str]) {
        self.count += 1;
        self.bytes += names.iter().map(|name| name.len() as u64).sum::<u64>();
    }
}

#[cfg(test)]
mod tests {
    use super::super::check::inspect;
    use super::super::outline::OutlineBounds;
    use super::*;

    const BOUNDS: OutlineBounds = OutlineBounds { functions: 3, memory: 1 << 20 };
    const BOUND: u64 = MAX_BYTES;

    /// Exports with names of so many bytes together, ten of them with 100,000 and one with the rest.
    fn exports(bytes: usize, what: &str) -> String {
        let export = |number: usize, len: usize| {
            let number = number.to_string();
            format!("(export \"{number}{}\" {what})", "x".repeat(len - number.len()))
        };
        let names: Vec<String> = (0..10).map(|number| export(number, 100_000)).collect();
        names.concat() + &export(10, bytes - 1_000_000)
    }

    fn found(text: &str) -> Result<(), ModuleError> {
        inspect(&wat::parse_str(text).unwrap(), BOUNDS).map(drop)
    }

    #[test]
    fn names_of_a_module_up_to_the_bound_are_taken() {
        let start = "(func $f (export \"_start\"))";
        let module = |bytes| format!("(module {start} {})", exports(bytes - "_start".len(), "(func $f)"));
        assert_eq!(found(&module(1 << 20)), Ok(()));
        let refused = found(&module((1 << 20) + 1)).unwrap_err();
        assert_eq!(refused, ModuleError::Names { found: BOUND + 1, bound: BOUND });
        assert_eq!(
            refused.to_string(),
            "the names of imports and exports have 1048577 bytes, and 1048576 are allowed: import and export less, or by shorter names"
        );
        let import = r#"(import "wasi_snapshot_preview1" "sched_yield" (func (result i32)))"#;
        let imports = import.repeat((1 << 20) / 33 + 1);
        assert!(matches!(found(&format!("(module {imports} {start})")), Err(ModuleError::Names { .. })));
    }

    #[test]
    fn a_module_may_have_so_many_names() {
        let found = |count: usize| {
            let export = |number: usize| format!("(export \"{number}\" (func $f))");
            let names = (1..count).map(export).collect::<Vec<_>>().concat();
            found(&format!("(module (func $f (export \"_start\")) {names})"))
        };
        assert_eq!(found(50_000), Ok(()));
        let refused = found(50_001).unwrap_err();
        assert_eq!(refused, ModuleError::ManyNames { found: 50_001, bound: 50_000 });
        assert_eq!(
            refused.to_string(),
            "there are 50001 imports and exports, and 50000 are allowed: import and export less"
        );
    }

    #[test]
    fn names_of_all_parts_of_a_component_are_added_up() {
        let part = |bytes| format!("(component (core module (func $f) {}))", exports(bytes, "(func $f)"));
        let sync = r#"(core module $m (func (export "f"))) (core instance $i (instantiate $m))
            (func (export "sync") (canon lift (core func $i "f")))"#;
        let component = |bytes| format!("(component {} {sync})", part(bytes));
        let own = "fsync".len();
        assert_eq!(found(&component((1 << 20) - own)), Ok(()));
        let refused = Err(ModuleError::Names { found: BOUND + 1, bound: BOUND });
        assert_eq!(found(&component((1 << 20) - own + 1)), refused);
    }
}
