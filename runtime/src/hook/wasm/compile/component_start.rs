//! Work of the host at the start of a component: that of all its modules, each as often as it is instantiated.

use wasmparser::{
    ComponentAlias, ComponentExternalKind, ComponentInstance, ComponentOuterAliasKind, ComponentTypeRef,
    Encoding, Instance, Payload,
};

use super::ModuleError;
use super::outline::WasmKind;
use super::start_work::ModuleStart;

/// Modules or components that one component can name; the engine takes no more either.
const MAX_NUMBERED: usize = 1000;

/// Refusal of modules or components that are handed over, as those are known only where they are instantiated.
const HANDED_OVER: &str = "modules or components are imported in it: build its parts as one component";

/// Steps of a component, as far as it has been read.
#[derive(Debug, Default)]
pub(super) struct ComponentStart {
    /// The component or module that is being read, behind those that it lies in.
    open: Vec<OpenSection>,
    /// Steps of the whole.
    steps: u64,
    /// Steps of the module or component with the most.
    max: u64,
    /// Sparse pages of all modules that have been read.
    sparse_pages: u64,
    gaps: u64,
}

#[derive(Debug)]
enum OpenSection {
    Module(ModuleStart),
    Component(Numbered),
}

/// Modules and components that a component can instantiate, with the steps of each, and the steps of its own instances.
#[derive(Debug, Default)]
struct Numbered {
    modules: Vec<u64>,
    components: Vec<u64>,
    steps: u64,
}

impl ComponentStart {
    pub(super) fn read(&mut self, payload: &Payload<'_>) -> Result<(), ModuleError> {
        match payload {
            Payload::Version { encoding, .. } => self.open.push(match encoding {
                Encoding::Module => OpenSection::Module(ModuleStart::default()),
                Encoding::Component => OpenSection::Component(Numbered::default()),
            }),
            Payload::End(_) => return self.close(),
            _ => {}
        }
        match (self.open.last_mut(), payload) {
            (Some(OpenSection::Module(module)), payload) => module.read(payload)?,
            (Some(OpenSection::Component(component)), Payload::InstanceSection(instances)) => {
                for instance in instances.clone() {
                    if let Instance::Instantiate { module_index, .. } = instance? {
                        let steps = find(&component.modules, module_index);
                        component.instantiate(steps);
                    }
                }
            }
            (Some(OpenSection::Component(component)), Payload::ComponentInstanceSection(instances)) => {
                for instance in instances.clone() {
                    if let ComponentInstance::Instantiate { component_index, .. } = instance? {
                        let steps = find(&component.components, component_index);
                        component.instantiate(steps);
                    }
                }
            }
            (Some(OpenSection::Component(_)), Payload::ComponentImportSection(imports)) => {
                for import in imports.clone() {
                    if let ComponentTypeRef::Module(_) | ComponentTypeRef::Component(_) = import?.ty {
                        return Err(ModuleError::Refused(HANDED_OVER.to_owned()));
                    }
                }
            }
            (Some(OpenSection::Component(component)), Payload::ComponentExportSection(exports)) => {
                for export in exports.clone() {
                    let export = export?;
                    component.number(export.kind, |numbered| find(numbered, export.index))?;
                }
            }
            (Some(OpenSection::Component(_)), Payload::ComponentAliasSection(aliases)) => {
                for alias in aliases.clone() {
                    self.alias(&alias?)?;
                }
            }
            _ => {}
        }
        Ok(())
    }

    pub(super) fn steps(&self) -> u64 {
        self.steps
    }

    /// Pages that first data fills in part, of all modules.
    pub(super) fn sparse_pages(&self) -> u64 {
        let open = match self.open.last() {
            Some(OpenSection::Module(module)) => module.sparse_pages(),
            Some(OpenSection::Component(_)) | None => 0,
        };
        self.sparse_pages.saturating_add(open)
    }

    /// Zeros between pieces of first data, of all modules.
    pub(super) fn gaps(&self) -> u64 {
        let open = match self.open.last() {
            Some(OpenSection::Module(module)) => module.gaps(WasmKind::Component),
            Some(OpenSection::Component(_)) | None => 0,
        };
        self.gaps.saturating_add(open)
    }

    /// Adds to the component that is being read.
    pub(super) fn add(&mut self, steps: u64) {
        if let Some(OpenSection::Component(component)) = self.open.last_mut() {
            component.instantiate(steps);
        }
    }

    /// A module or component ends, which the one around it can instantiate.
    fn close(&mut self) -> Result<(), ModuleError> {
        let (steps, is_module) = match self.open.pop() {
            Some(OpenSection::Module(module)) => {
                self.sparse_pages = self.sparse_pages.saturating_add(module.sparse_pages());
                self.gaps = self.gaps.saturating_add(module.gaps(WasmKind::Component));
                (module.steps(WasmKind::Component), true)
            }
            Some(OpenSection::Component(component)) => (component.steps, false),
            None => return Ok(()),
        };
        self.max = self.max.max(steps);
        match self.open.last_mut() {
            Some(OpenSection::Component(around)) if is_module => push(&mut around.modules, steps),
            Some(OpenSection::Component(around)) => push(&mut around.components, steps),
            Some(OpenSection::Module(_)) | None => {
                self.steps = steps;
                Ok(())
            }
        }
    }

    fn alias(&mut self, alias: &ComponentAlias<'_>) -> Result<(), ModuleError> {
        let (kind, steps) = match alias {
            // The instance is one of a component that has been read.
            ComponentAlias::InstanceExport { kind, .. } => (*kind, self.max),
            ComponentAlias::Outer { kind, count, index } => {
                let count = usize::try_from(*count).unwrap_or(usize::MAX);
                let Some(OpenSection::Component(around)) = self.open.iter().rev().nth(count) else {
                    return Ok(());
                };
                match kind {
                    ComponentOuterAliasKind::CoreModule => {
                        (ComponentExternalKind::Module, find(&around.modules, *index))
                    }
                    ComponentOuterAliasKind::Component => {
                        (ComponentExternalKind::Component, find(&around.components, *index))
                    }
                    _ => return Ok(()),
                }
            }
            ComponentAlias::CoreInstanceExport { .. } => return Ok(()),
        };
        match self.open.last_mut() {
            Some(OpenSection::Component(component)) => component.number(kind, |_| steps),
            Some(OpenSection::Module(_)) | None => Ok(()),
        }
    }
}

impl Numbered {
    /// Another name of a module or component.
    fn number(
        &mut self,
        kind: ComponentExternalKind,
        steps: impl Fn(&[u64]) -> u64,
    ) -> Result<(), ModuleError> {
        let numbered = match kind {
            ComponentExternalKind::Module => &mut self.modules,
            ComponentExternalKind::Component => &mut self.components,
            _ => return Ok(()),
        };
        let steps = steps(numbered);
        push(numbered, steps)
    }

    fn instantiate(&mut self, steps: u64) {
        self.steps = self.steps.saturating_add(steps);
    }
}

/// The steps under a number. One that nothing has is refused by the compiler.
fn find(numbered: &[u64], index: u32) -> u64 {
    usize::try_from(index).ok().and_then(|index| numbered.get(index)).copied().unwrap_or_default()
}

fn push(numbered: &mut Vec<u64>, steps: u64) -> Result<(), ModuleError> {
    if numbered.len() >= MAX_NUMBERED {
        return Err(ModuleError::Modules(MAX_NUMBERED));
    }
    numbered.push(steps);
    Ok(())
}
