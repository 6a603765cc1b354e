//! Declarations of types: the server keeps a record of each for as long as it keeps the module, which is up to a hundred times as
//! large as the declaration.

use wasmparser::Payload;

use super::ModuleError;

/// Bytes of all declarations of a module, or of all modules and components of a component. The interpreter of Python has 17 KB, a
/// program in Go or Rust less than one.
const MAX_BYTES: u64 = 128 << 10;

/// Bytes of the declarations that have been read.
#[derive(Debug, Default)]
pub(super) struct Types(u64);

impl Types {
    /// # Errors
    /// The declarations have more bytes than are allowed.
    pub(super) fn read(&mut self, payload: &Payload<'_>) -> Result<(), ModuleError> {
        let range = match payload {
            Payload::TypeSection(types) => types.range(),
            Payload::CoreTypeSection(types) => types.range(),
            Payload::ComponentTypeSection(types) => types.range(),
            _ => return Ok(()),
        };
        self.0 = self.0.saturating_add(range.len() as u64);
        if self.0 > MAX_BYTES {
            return Err(ModuleError::Types { found: self.0, bound: MAX_BYTES });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::check::inspect;
    use super::super::outline::OutlineBounds;
    use super::*;

    const BOUNDS: OutlineBounds = OutlineBounds { functions: 3, memory: 1 << 20 };
    const BOUND: usize = 128 << 10;

    /// Types of functions in a section of so many bytes.
    fn types(bytes: usize) -> String {
        // The number of types and that of a type's parameters have two bytes, and its other two are its kind and that it returns nothing.
        let with = |params: usize| format!("(type (func (param{})))", " i32".repeat(params));
        let left = bytes - 2 - 130 * 1004;
        with(1000).repeat(130) + &with(left / 2 - 4) + &with(left - left / 2 - 4)
    }

    fn found(text: &str) -> Result<(), ModuleError> {
        inspect(&wat::parse_str(text).unwrap(), BOUNDS).map(drop)
    }

    #[test]
    fn types_of_a_module_up_to_the_bound_are_taken() {
        let own = 3;
        let module = |bytes: usize| format!("(module {} (func (export \"_start\")))", types(bytes - own));
        assert_eq!(found(&module(BOUND)), Ok(()));
        let refused = found(&module(BOUND + 1)).unwrap_err();
        assert_eq!(refused, ModuleError::Types { found: 131_073, bound: 131_072 });
        assert_eq!(
            refused.to_string(),
            "the declarations of types have 131073 bytes, and 131072 are allowed: declare fewer types, or smaller ones"
        );
    }

    #[test]
    fn types_of_all_parts_of_a_component_are_added_up() {
        let sync = r#"(core module $m (func (export "f"))) (core instance $i (instantiate $m))
            (func (export "sync") (canon lift (core func $i "f")))"#;
        let component = |bytes| format!("(component (component (core module {})) {sync})", types(bytes));
        let own = 4 + 5;
        assert_eq!(found(&component(BOUND - own)), Ok(()));
        let refused = Err(ModuleError::Types { found: 131_073, bound: 131_072 });
        assert_eq!(found(&component(BOUND - own + 1)), refused);
    }
}
