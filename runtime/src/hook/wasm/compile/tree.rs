//! Names and types that the engine makes of a component: it writes them out in full wherever one is used, also where instances nest and
//! repeat. So a few hundred bytes can become many MiB, which the server would keep.

use std::collections::HashMap;
use std::hash::Hash;

use wasmparser::component_types::{
    ComponentAnyTypeId, ComponentCoreModuleTypeId, ComponentEntityType, ComponentInstanceTypeId,
    ComponentItem, ComponentTypeId,
};
use wasmparser::types::TypesRef;
use wasmparser::{ComponentExternalKind, ComponentInstance, Parser, Payload, Validator, WasmFeatures};

use super::component::MAX_DEPTH;
use super::component_start::ComponentStart;

/// Bytes of all that is written out. The interpreter of Python has 29 KB, a hook in Rust 6 to 22 KB.
const MAX_BYTES: u64 = 1 << 20;

/// Bytes of a name besides its text.
const ENTRY: u64 = 100;

/// A component's instances, imports and exports, each written out.
#[derive(Default)]
struct Tree {
    /// Bytes of each component count as often as it is instantiated.
    made: ComponentStart,
    known: HashMap<Node, Extent>,
}

/// A type that has entries.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Node {
    Instance(ComponentInstanceTypeId),
    Component(ComponentTypeId),
    Module(ComponentCoreModuleTypeId),
}

/// A type that is written out.
#[derive(Clone, Copy, Default)]
struct Extent {
    bytes: u64,
    /// Levels of entries.
    depth: usize,
}

/// Checks a component that has been validated.
///
/// *Guarantees*: each type is looked at once, however often it is written out.
pub(super) fn check(bytes: &[u8], features: WasmFeatures) -> Result<(), String> {
    let found = extent(bytes, features)?;
    if found > MAX_BYTES {
        return Err(format!(
            "its imports, exports and instances have {found} bytes when they are written out, and {MAX_BYTES} are allowed: nest and repeat fewer instances"
        ));
    }
    Ok(())
}

fn extent(bytes: &[u8], features: WasmFeatures) -> Result<u64, String> {
    let mut validator = Validator::new_with_features(features);
    let mut tree = Tree::default();
    for payload in Parser::new(0).parse_all(bytes) {
        let payload = payload.map_err(|error| error.to_string())?;
        let before = validator.types(0).map_or(0, |types| types.component_instance_count());
        validator.payload(&payload).map_err(|error| error.to_string())?;
        tree.read(&payload, &validator, before)?;
    }
    Ok(tree.made.steps())
}

impl Tree {
    /// `before`: instances that the component had before this section.
    fn read(&mut self, payload: &Payload<'_>, validator: &Validator, before: u32) -> Result<(), String> {
        if let Payload::Version { .. }
        | Payload::End(_)
        | Payload::ComponentAliasSection(_)
        | Payload::ComponentInstanceSection(_)
        | Payload::ComponentExportSection(_) = payload
        {
            self.made.read(payload).map_err(|error| error.to_string())?;
        }
        let Some(types) = validator.types(0) else { return Ok(()) };
        let is_root = validator.types(1).is_none();
        let bytes = match payload {
            Payload::ComponentInstanceSection(instances) => {
                let mut bytes = 0_u64;
                for instance in instances.clone() {
                    let instance = instance.map_err(|error| error.to_string())?;
                    bytes = bytes.saturating_add(self.arguments(&instance, types)?);
                }
                for index in before..types.component_instance_count() {
                    let node = Node::Instance(types.component_instance_at(index));
                    bytes = bytes.saturating_add(ENTRY).saturating_add(self.node(node, types, 1)?.bytes);
                }
                bytes
            }
            Payload::ComponentImportSection(imports) if is_root => {
                let imports = imports.clone().into_iter().flatten();
                let items = imports.filter_map(|import| {
                    Some((import.name.name, types.component_item_for_import(import.name.name)?))
                });
                self.items(items, types, 0)?.bytes
            }
            Payload::ComponentExportSection(exports) if is_root => {
                let exports = exports.clone().into_iter().flatten();
                let items = exports.filter_map(|export| {
                    Some((export.name.name, types.component_item_for_export(export.name.name)?))
                });
                self.items(items, types, 0)?.bytes
            }
            _ => 0,
        };
        self.made.add(bytes);
        Ok(())
    }

    /// Types that are handed to a component are written out, and nothing else that is.
    fn arguments(&mut self, instance: &ComponentInstance<'_>, types: TypesRef<'_>) -> Result<u64, String> {
        let ComponentInstance::Instantiate { args, .. } = instance else { return Ok(0) };
        let mut bytes = 0_u64;
        for argument in args {
            if argument.kind == ComponentExternalKind::Type
                && let Some(node) = Node::of_type(types.component_any_type_at(argument.index))
            {
                bytes = bytes.saturating_add(self.node(node, types, 1)?.bytes);
            }
        }
        Ok(bytes)
    }

    /// `depth`: of the type that has them.
    fn items<'a>(
        &mut self,
        items: impl IntoIterator<Item = (&'a str, &'a ComponentItem)>,
        types: TypesRef<'_>,
        depth: usize,
    ) -> Result<Extent, String> {
        let mut all = Extent::default();
        for (name, item) in items {
            let more = [&item.implements, &item.version_suffix, &item.external_id];
            let more: usize = more.into_iter().flatten().map(String::len).sum();
            all.add(entry(name.len() + more));
            if let Some(node) = Node::of(item.ty) {
                all.add(self.node(node, types, depth + 1)?);
            }
        }
        Ok(all)
    }

    fn node(&mut self, node: Node, types: TypesRef<'_>, depth: usize) -> Result<Extent, String> {
        let below = match self.known.get(&node) {
            Some(known) => *known,
            None if depth > MAX_DEPTH => return Err(too_deep()),
            None => {
                let below = self.entries(node, types, depth)?;
                self.known.insert(node, below);
                below
            }
        };
        if depth + below.depth > MAX_DEPTH {
            return Err(too_deep());
        }
        Ok(Extent { depth: below.depth + 1, ..below })
    }

    #[expect(
        clippy::indexing_slicing,
        reason = "the validator made the number of the type, and has no other way to it"
    )]
    fn entries(&mut self, node: Node, types: TypesRef<'_>, depth: usize) -> Result<Extent, String> {
        match node {
            Node::Instance(id) => {
                self.items(types[id].exports.iter().map(|(n, i)| (n.as_str(), i)), types, depth)
            }
            Node::Component(id) => {
                let all = types[id].imports.iter().chain(&types[id].exports);
                self.items(all.map(|(n, i)| (n.as_str(), i)), types, depth)
            }
            Node::Module(id) => {
                let imports = types[id].imports.keys().map(|(module, name)| module.len() + name.len());
                let exports = types[id].exports.keys().map(String::len);
                let mut all = Extent::default();
                imports.chain(exports).for_each(|len| all.add(entry(len)));
                Ok(all)
            }
        }
    }
}

impl Node {
    fn of(ty: ComponentEntityType) -> Option<Self> {
        match ty {
            ComponentEntityType::Instance(id) => Some(Self::Instance(id)),
            ComponentEntityType::Component(id) => Some(Self::Component(id)),
            ComponentEntityType::Module(id) => Some(Self::Module(id)),
            ComponentEntityType::Type { created, .. } => Self::of_type(created),
            ComponentEntityType::Func(_) | ComponentEntityType::Value(_) => None,
        }
    }

    fn of_type(ty: ComponentAnyTypeId) -> Option<Self> {
        match ty {
            ComponentAnyTypeId::Instance(id) => Some(Self::Instance(id)),
            ComponentAnyTypeId::Component(id) => Some(Self::Component(id)),
            ComponentAnyTypeId::Resource(_)
            | ComponentAnyTypeId::Defined(_)
            | ComponentAnyTypeId::Func(_) => None,
        }
    }
}

impl Extent {
    fn add(&mut self, other: Self) {
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.depth = self.depth.max(other.depth);
    }
}

fn entry(name: usize) -> Extent {
    Extent { bytes: ENTRY + name as u64, depth: 0 }
}

fn too_deep() -> String {
    format!("its instances nest more than {MAX_DEPTH} deep: make it flatter")
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use wasmtime::Engine;

    use super::super::check::ALLOWED_IN_COMPONENTS;
    use super::super::{CodeTarget, WasmKind, engine_config};
    use super::*;

    /// Instances, each of which exports the one before twice.
    fn doubling(levels: usize) -> String {
        let mut text = "(instance $i0)".to_owned();
        for level in 1..=levels {
            let below = level - 1;
            write!(
                text,
                r#"(instance $i{level} (export "a" (instance $i{below})) (export "b" (instance $i{below})))"#
            )
            .unwrap();
        }
        text
    }

    fn bytes(text: &str) -> Vec<u8> {
        wat::parse_str(format!("(component {text})")).unwrap()
    }

    fn found(text: &str) -> u64 {
        extent(&bytes(text), ALLOWED_IN_COMPONENTS).unwrap()
    }

    #[test]
    fn what_is_written_out_is_counted_as_often() {
        assert_eq!(found(""), 0);
        assert_eq!(found("(instance)"), 100);
        assert_eq!(found(r#"(import "wasi:io/a" (instance (export "bc" (func))))"#), 109 + 102);
        // Each instance, and the export.
        assert_eq!(found(&doubling(1)), 100 + 100 + 202);
        assert_eq!(found(&doubling(2)), 402 + 100 + 202 + 2 * 202);
        assert_eq!(found(&(doubling(1) + r#"(export "x" (instance $i1))"#)), 402 + 101 + 202);
        // A component is written out where it is instantiated.
        let inner = format!("(component $c {})", doubling(1));
        assert_eq!(found(&inner), 0);
        assert_eq!(found(&(inner.clone() + &"(instance (instantiate $c))".repeat(3))), 3 * (402 + 100));
        let outer = format!("(component $d {inner} {})", "(instance (instantiate $c))".repeat(2));
        assert_eq!(found(&(outer + &"(instance (instantiate $d))".repeat(3))), 3 * (2 * 502 + 100));
        // A type of an instance that is handed over, and the type of a module.
        let taker =
            r#"(component $c (import "t" (type (eq $t)))) (instance (instantiate $c (with "t" (type $t))))"#;
        let ty = r#"(type $t (instance (export "abc" (func))))"#;
        let taker = taker.replace(
            "(import \"t\" (type (eq $t)))",
            "(alias outer 1 $t (type $u)) (import \"t\" (type (eq $u)))",
        );
        assert_eq!(found(&(ty.to_owned() + &taker)), 103 + 100);
        let module = r#"(core module $m (import "a" "b" (func)) (func (export "cd")))"#;
        assert_eq!(found(&format!(r#"{module} (export "m" (core module $m))"#)), 101 + 102 + 102);
    }

    /// Each byte of the artifact is some bytes of the server.
    #[test]
    fn the_engine_writes_out_no_more_than_is_counted() {
        let engine = Engine::new(&engine_config(WasmKind::Component, CodeTarget::Machine)).unwrap();
        let artifact = |levels| {
            let text = doubling(levels) + &format!(r#"(export "x" (instance $i{levels}))"#);
            (engine.precompile_component(&bytes(&text)).unwrap().len() as u64, found(&text))
        };
        let ((few, few_counted), (many, many_counted)) = (artifact(4), artifact(11));
        assert!(many - few > 10_000, "it grows: {few} to {many}");
        assert!(many - few < many_counted - few_counted, "{few} to {many}, {few_counted} to {many_counted}");
    }

    #[test]
    fn a_component_may_be_written_out_up_to_the_bound() {
        let import = |number: usize, name: usize| {
            format!(r#"(import "wasi:io/n{number}{}" (instance))"#, "a".repeat(name))
        };
        let with = |name: usize| doubling(11) + &import(1, 80_000) + &import(2, 80_000) + &import(3, name);
        let left = (1 << 20) - found(&with(1)) + 1;
        let check = |name: u64| check(&bytes(&with(usize::try_from(name).unwrap())), ALLOWED_IN_COMPONENTS);
        assert!(left < 100_000, "a name has no more");
        assert_eq!(check(left), Ok(()));
        assert_eq!(
            check(left + 1),
            Err("its imports, exports and instances have 1048577 bytes when they are written out, and 1048576 are allowed: nest and repeat fewer instances".to_owned())
        );
    }

    /// Parts that double thirty times would take minutes and GiB, were they walked through.
    #[test]
    fn what_repeats_is_looked_at_once() {
        let component = format!("(component $c {})", doubling(10));
        let many = (0..40).fold(component, |inner, _| {
            format!("(component $c {inner} {})", "(instance (instantiate $c))".repeat(2))
        });
        assert!(found(&(many + "(instance (instantiate $c))")) > 1 << 58);
    }

    #[test]
    fn instances_nest_up_to_the_bound() {
        let nested = |levels: usize| {
            let instance =
                |level: usize| format!(r#"(instance $i{level} (export "a" (instance $i{})))"#, level - 1);
            let chain = (1..levels).map(instance).collect::<Vec<_>>().concat();
            let text = format!(r#"(instance $i0) {chain} (export "x" (instance $i{}))"#, levels - 1);
            check(&bytes(&text), ALLOWED_IN_COMPONENTS)
        };
        assert_eq!(nested(100), Ok(()));
        assert_eq!(nested(101), Err("its instances nest more than 100 deep: make it flatter".to_owned()));
    }
}
