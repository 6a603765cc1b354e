//! Outline of a component, before it is compiled: what it is made of, what it wants, and how it is called.

use metahook_core::shorten;
use wasmparser::{ComponentExternalKind, ComponentTypeRef, Parser, Payload};

use super::ModuleError;
use super::component_start::ComponentStart;
use super::names::Names;
use super::outline::{
    MAX_NAMED, MAX_NAMES, OutlineBounds, check_gaps, check_memories, check_sparse, check_tables,
};
use super::start_work::StartWork;
use super::types::Types;

/// Modules inside of one component: that of `CPython` has about forty.
const MAX_MODULES: usize = 128;

/// Components and modules in each other, with the outermost one. Those that tools compose are four deep.
pub(super) const MAX_DEPTH: usize = 100;

/// The packages that a component may import from, all of preview 2.
const PACKAGES: [&str; 6] =
    ["wasi:cli/", "wasi:clocks/", "wasi:filesystem/", "wasi:io/", "wasi:random/", "wasi:sockets/"];

/// The export of a command.
pub(in crate::hook::wasm) const RUN: &str = "wasi:cli/run@0.2";

/// The exports of the world `metahook:hook`.
pub(in crate::hook::wasm) const HOOKS: [&str; 3] = ["sync", "finalize", "customize"];

#[derive(Default)]
struct Outline {
    /// How many components and modules the place lies in: the component's own entries are at 1.
    depth: usize,
    modules: usize,
    functions: u32,
    start: ComponentStart,
    names: Names,
    types: Types,
    refused: Vec<String>,
    refused_count: usize,
    is_called: bool,
}

/// Reads the outline of a component and of all that it is made of.
///
/// *Guarantees*: memory grows with the depth alone; work grows with the number of entries.
pub(super) fn inspect(bytes: &[u8], bounds: OutlineBounds) -> Result<StartWork, ModuleError> {
    let mut outline = Outline::default();
    for payload in Parser::new(0).parse_all(bytes) {
        let payload = payload?;
        outline.names.read(&payload)?;
        outline.types.read(&payload)?;
        outline.start.read(&payload)?;
        outline.read(payload, bounds)?;
    }
    if outline.refused_count > 0 {
        return Err(ModuleError::ComponentImport(outline.refused()));
    }
    if !outline.is_called {
        return Err(ModuleError::NoRun);
    }
    StartWork::of(outline.start.steps())
}

impl Outline {
    fn read(&mut self, payload: Payload<'_>, bounds: OutlineBounds) -> Result<(), ModuleError> {
        match payload {
            Payload::Version { .. } => {
                self.depth += 1;
                if self.depth > MAX_DEPTH {
                    return Err(ModuleError::Depth { found: self.depth, bound: MAX_DEPTH });
                }
            }
            Payload::End(_) => self.depth -= 1,
            Payload::ModuleSection { .. } => {
                self.modules += 1;
                if self.modules > MAX_MODULES {
                    return Err(ModuleError::Modules(MAX_MODULES));
                }
            }
            Payload::FunctionSection(functions) => {
                self.functions = self.functions.saturating_add(functions.count());
                if self.functions > bounds.functions {
                    return Err(ModuleError::Functions { found: self.functions, bound: bounds.functions });
                }
            }
            Payload::TableSection(tables) => check_tables(tables, bounds)?,
            Payload::MemorySection(memories) => check_memories(memories, bounds)?,
            Payload::DataSection(_) => {
                check_sparse(self.start.sparse_pages())?;
                check_gaps(self.start.gaps())?;
            }
            Payload::ComponentImportSection(imports) if self.depth == 1 => {
                for import in imports {
                    let import = import?;
                    self.import(import.name.name, import.ty);
                }
            }
            Payload::ComponentExportSection(exports) if self.depth == 1 => {
                for export in exports {
                    let export = export?;
                    self.is_called |= match export.kind {
                        ComponentExternalKind::Instance => export.name.name.starts_with(RUN),
                        ComponentExternalKind::Func => HOOKS.contains(&export.name.name),
                        _ => false,
                    };
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn import(&mut self, name: &str, ty: ComponentTypeRef) {
        // Types without an interface bring nothing to call.
        if matches!(ty, ComponentTypeRef::Type(_)) || PACKAGES.iter().any(|package| name.starts_with(package))
        {
            return;
        }
        self.refused_count += 1;
        if self.refused.len() < MAX_NAMED {
            self.refused.push(shorten(name, MAX_NAMES / MAX_NAMED));
        }
    }

    fn refused(&self) -> String {
        let named = self.refused.join(", ");
        match self.refused_count - self.refused.len() {
            0 => named,
            more => format!("{named} and {more} more"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUNDS: OutlineBounds = OutlineBounds { functions: 3, memory: 1 << 20 };
    const SYNC: &str = r#"(core module $own (func (export "f") unreachable)) (core instance $i (instantiate $own))
        (func (export "sync") (canon lift (core func $i "f")))"#;

    fn found(text: &str) -> Result<(), ModuleError> {
        inspect(&wat::parse_str(format!("(component {text})")).unwrap(), BOUNDS).map(drop)
    }

    /// A component with another one before all that it has itself.
    fn around(inner: &[u8], own: &[u8]) -> Vec<u8> {
        let (header, own) = own.split_at(8);
        let mut len = inner.len();
        let mut bytes = [header, &[4]].concat();
        while len > 127 {
            bytes.push(128 | u8::try_from(len % 128).unwrap());
            len /= 128;
        }
        bytes.push(u8::try_from(len).unwrap());
        [bytes.as_slice(), inner, own].concat()
    }

    fn refused(text: &str) -> String {
        found(text).unwrap_err().to_string()
    }

    #[test]
    fn a_component_is_a_hook_by_its_exports() {
        assert_eq!(found(SYNC), Ok(()));
        let run = r#"(instance $run) (export "wasi:cli/run@0.2.6" (instance $run))"#;
        assert_eq!(found(run), Ok(()));
        for other in ["", r#"(instance $run) (export "wasi:cli/ran@0.2.6" (instance $run))"#] {
            assert_eq!(found(other), Err(ModuleError::NoRun), "{other}");
        }
        let inner = format!("(component {SYNC})");
        assert_eq!(found(&inner), Err(ModuleError::NoRun), "an export of an inner component");
    }

    #[test]
    fn imports_of_other_packages_are_named() {
        let import = |name: &str| format!(r#"(import "{name}" (instance))"#);
        for known in ["wasi:io/streams@0.2.0", "wasi:sockets/tcp@0.2.6", "wasi:cli/stdin@0.2.12"] {
            assert_eq!(found(&(import(known) + SYNC)), Ok(()), "{known}");
        }
        assert_eq!(
            refused(&(import("wasi:http/outgoing-handler@0.2.0") + &import("my:own/thing") + SYNC)),
            "the component wants what hooks cannot have: wasi:http/outgoing-handler@0.2.0, my:own/thing; a hook has no network, and gets wasi:cli, clocks, filesystem, io and random of preview 2"
        );
        let seven: String = (0..7).map(|number| import(&format!("my:own/n{number}"))).collect();
        assert!(refused(&(seven + SYNC)).contains("my:own/n4 and 2 more;"));
    }

    #[test]
    fn what_a_component_is_made_of_has_bounds() {
        let functions = "(core module (func) (func))".to_owned();
        assert_eq!(found(&(functions.clone() + SYNC)), Ok(()));
        assert!(refused(&(functions.repeat(2) + SYNC)).starts_with("the module has 4 functions, and 3"));
        assert!(
            refused(&format!("(core module (table 4 funcref)) {SYNC}")).contains("a table of 4 elements")
        );
        assert!(refused(&format!("(core module (memory 17)) {SYNC}")).contains("1088Ki of memory"));
        let modules = |count| "(core module)".repeat(count) + SYNC;
        assert_eq!(found(&modules(MAX_MODULES - 1)), Ok(()));
        assert_eq!(found(&modules(MAX_MODULES)), Err(ModuleError::Modules(MAX_MODULES)));
    }

    #[test]
    fn gaps_of_all_modules_are_added_up() {
        let half = |more: u32| {
            let end = (32 << 20) + 1 + more;
            format!("(core module (memory 600) (data (i32.const 0) \"x\") (data (i32.const {end}) \"x\"))")
        };
        let found = |text: &str| {
            let bytes = wat::parse_str(format!("(component {text} {SYNC})")).unwrap();
            inspect(&bytes, OutlineBounds { memory: 64 << 20, ..BOUNDS }).map(drop)
        };
        assert_eq!(found(&half(0).repeat(2)), Ok(()));
        let refused = found(&(half(0) + &half(1))).unwrap_err();
        assert_eq!(refused, ModuleError::Gaps { found: (64 << 20) + 1, bound: 64 << 20 });
        assert_eq!(
            refused.to_string(),
            "the module's first data has 67108865 bytes of zeros between its pieces, and 67108864 are allowed: lay it together"
        );
        assert!(matches!(
            found(&format!("{} (component {})", half(0), half(1))),
            Err(ModuleError::Gaps { .. })
        ));
    }

    #[test]
    fn components_nest_up_to_the_bound() {
        let parse = |text: &str| wat::parse_str(format!("(component {text})")).unwrap();
        // The text format itself nests less deep.
        let nested = |levels: usize| {
            let inner = (2..levels).fold(parse(""), |inner, _| around(&inner, &parse("")));
            inspect(&around(&inner, &parse(SYNC)), BOUNDS).map(drop)
        };
        assert_eq!(nested(100), Ok(()));
        let refused = nested(101).unwrap_err();
        assert_eq!(refused, ModuleError::Depth { found: 101, bound: 100 });
        assert_eq!(
            refused.to_string(),
            "the component nests components and modules 101 deep, and 100 are allowed: make it flatter"
        );
    }

    #[test]
    fn a_module_of_a_component_counts_as_often_as_it_is_instantiated() {
        let module = format!("(core module $m {})", "(global i32 (i32.const 0))".repeat(10_000));
        let with = |text: &str| {
            let bytes = wat::parse_str(format!("(component {module} {text} {SYNC})")).unwrap();
            inspect(&bytes, BOUNDS).map(StartWork::cost)
        };
        let once = "(core instance (instantiate $m))";
        assert_eq!(with(""), Ok(0));
        assert_eq!(with(once), Ok(0));
        assert_eq!(with(&once.repeat(3)), Ok(200_000));
        assert_eq!(with(&once.repeat(41)), Err(ModuleError::Start { found: 410_000, bound: 400_000 }));
        let imports = |count: usize| {
            let imports = r#"(import "a" "b" (func))"#.repeat(count);
            let text =
                format!("(core module $i {imports}) {}", "(core instance (instantiate $i))".repeat(100));
            let bytes = wat::parse_str(format!("(component {text} {SYNC})")).unwrap();
            inspect(&bytes, BOUNDS).map(StartWork::cost)
        };
        assert_eq!(imports(4000), Ok(3_900_000));
        assert_eq!(imports(4001), Err(ModuleError::Start { found: 400_100, bound: 400_000 }));
        let inner = format!(
            "(component $c (alias outer 1 $m (core module $n)) {})",
            "(core instance (instantiate $n))".repeat(2)
        );
        assert_eq!(with(&inner), Ok(0), "it is not instantiated");
        assert_eq!(with(&(inner.clone() + "(instance (instantiate $c))")), Ok(100_000));
        let outer = format!("(component $d {inner} {})", "(instance (instantiate $c))".repeat(2));
        let outer = outer.replace("outer 1", "outer 2");
        assert_eq!(with(&(outer + &"(instance (instantiate $d))".repeat(2))), Ok(700_000));
        let handed = r#"(component (import "m" (core module)) (core instance (instantiate 0)))"#;
        assert!(with(handed).unwrap_err().to_string().contains("build its parts as one component"));
    }

    proptest::proptest! {
        #[test]
        fn no_bytes_make_the_outline_panic(bytes: Vec<u8>, place: usize, value: u8) {
            drop(inspect(&[b"\0asm\x0d\0\x01\0", bytes.as_slice()].concat(), BOUNDS));
            let mut component = wat::parse_str(format!("(component {SYNC})")).unwrap();
            let place = place % component.len();
            component[place] = value;
            drop(inspect(&component, BOUNDS));
        }
    }
}
