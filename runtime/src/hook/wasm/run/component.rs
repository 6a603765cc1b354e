//! A call of a component: a command with pipes, or a function of the world `metahook:hook`, which takes and returns text.

use std::collections::BTreeMap;

use metahook_core::shorten;
use wasmtime::component::types::ComponentItem;
use wasmtime::component::{ComponentExportIndex, InstancePre, Type};
use wasmtime::{Store, WasmBacktrace, bail, format_err};
use wasmtime_wasi::I32Exit;

use super::call_error::{Failure, MAX_ERROR};
use super::{begin, slices};
use crate::hook::wasm::compile::ModuleError;
use crate::hook::wasm::compile::component::{HOOKS, RUN};
use crate::hook::wasm::wasi::{Charge, ComponentState, Exit, charge_copied, is_too_much};

/// A component with everything it imports, and its exports.
#[derive(Clone)]
pub(super) struct ReadyComponent {
    ready: InstancePre<ComponentState>,
    /// Entry of a command.
    run: Option<ComponentExportIndex>,
    /// Functions of the world `metahook:hook`, by hook.
    hooks: BTreeMap<&'static str, ComponentExportIndex>,
}

impl ReadyComponent {
    pub(super) fn new(ready: InstancePre<ComponentState>) -> Result<Self, ModuleError> {
        let component = ready.component();
        let ty = component.component_type();
        let mut hooks = BTreeMap::new();
        for name in HOOKS {
            if let Some(index) = component.get_export_index(None, name) {
                check(name, ty.get_export(component.engine(), name).map(|export| export.ty))?;
                hooks.insert(name, index);
            }
        }
        let run =
            ty.exports(component.engine()).find(|(name, _)| name.starts_with(RUN)).and_then(|(name, _)| {
                let instance = component.get_export_index(None, name)?;
                component.get_export_index(Some(&instance), "run")
            });
        if run.is_none() && hooks.is_empty() {
            return Err(ModuleError::NoRun);
        }
        Ok(Self { ready, run, hooks })
    }

    /// Runs it once: the function of the hook where it has one, else the command.
    pub(super) async fn run(
        &self,
        store: &mut Store<ComponentState>,
        (hook, request): (&str, &[u8]),
        instructions: u64,
        start_cost: u64,
    ) -> Result<(), Failure> {
        let ready = async {
            begin(store, instructions, start_cost)?;
            store.call_hook_async(Charge);
            let instance = self.ready.instantiate_async(&mut *store).await?;
            if start_cost > 0 {
                slices::end_turn().await;
            }
            Ok(instance)
        };
        let instance = ready.await.map_err(Failure::Starting)?;
        let ended = match (self.hooks.get(hook), &self.run) {
            (Some(function), _) => self.ask(store, &instance, function, request).await,
            (None, Some(run)) => command(store, &instance, run).await,
            (None, None) => {
                return Err(Failure::Starting(format_err!(
                    "the component exports no function {hook}, and no wasi:cli/run"
                )));
            }
        };
        match ended {
            Err(error) => match error.downcast_ref() {
                Some(I32Exit(0)) => Ok(()),
                Some(I32Exit(code)) => Err(Failure::Running(Exit(*code).into())),
                None => Err(Failure::Running(error)),
            },
            Ok(()) => Ok(()),
        }
    }

    async fn ask(
        &self,
        store: &mut Store<ComponentState>,
        instance: &wasmtime::component::Instance,
        function: &ComponentExportIndex,
        request: &[u8],
    ) -> wasmtime::Result<()> {
        type Answer = Result<String, String>;
        let function = instance.get_typed_func::<(&str,), (Answer,)>(&mut *store, function)?;
        let request = std::str::from_utf8(request)?;
        charge_copied(store, request.len())?;
        let returned = function.call_async(&mut *store, (request,)).await;
        if returned.as_ref().is_err_and(is_too_long) {
            store.data_mut().answer_too_long();
        }
        match returned?.0 {
            Ok(answer) => {
                charge_copied(store, answer.len())?;
                store.data_mut().answer(answer)
            }
            Err(message) => {
                charge_copied(store, message.len())?;
                bail!("it returned an error: {}", shorten(&message, MAX_ERROR))
            }
        }
    }
}

async fn command(
    store: &mut Store<ComponentState>,
    instance: &wasmtime::component::Instance,
    run: &ComponentExportIndex,
) -> wasmtime::Result<()> {
    let run = instance.get_typed_func::<(), (Result<(), ()>,)>(&mut *store, run)?;
    match run.call_async(store, ()).await?.0 {
        Ok(()) => Ok(()),
        Err(()) => Err(Exit(1).into()),
    }
}

/// The component returned more than the host takes over. Wasmtime has no type for this error, and the error of a host function
/// that is handed too much is the same, but with a backtrace.
fn is_too_long(error: &wasmtime::Error) -> bool {
    error.downcast_ref::<WasmBacktrace>().is_none() && is_too_much(error)
}

/// Checks the type of a function of the world `metahook:hook`.
fn check(name: &'static str, found: Option<ComponentItem>) -> Result<(), ModuleError> {
    let wrong = |found: &str| Err(ModuleError::HookType { name, found: found.to_owned() });
    let Some(ComponentItem::ComponentFunc(function)) = found else { return wrong("no function") };
    let takes: Vec<Type> = function.params().map(|(_, ty)| ty).collect();
    let gives: Vec<Type> = function.results().collect();
    let text = |ty: Option<Type>| ty == Some(Type::String);
    match (takes.as_slice(), gives.as_slice()) {
        ([Type::String], [Type::Result(result)]) if text(result.ok()) && text(result.err()) => Ok(()),
        _ => wrong("a function with other parameters or another result"),
    }
}
