//! QuickJS as it is before a call: its context, the driver, and the functions that the driver has from here.

use std::cell::Cell;
use std::io::Write;

use rquickjs::context::intrinsic::{
    Date, Eval, Json, MapSet, Promise, Proxy, RegExp, RegExpCompiler, TypedArrays, WeakRef,
};
use rquickjs::{Context, Ctx, Error, Function, Object, Persistent, Result, Runtime, Value};

use crate::bytecode::{self, Loaded, SourceKind};
use crate::misfit::{self, Look};

/// No `performance`: it has the clock's time at its start.
type Intrinsics = (Date, Eval, RegExpCompiler, RegExp, Json, Proxy, MapSet, TypedArrays, Promise, WeakRef);

/// Bytes of the stack in linear memory. The stack outside of it, of which the server gives 512 KiB, grows faster: this
/// ends first, and a script sees an error where the instance would end. The tests have the functions that need most.
const STACK: usize = 48 << 10;

/// Bytes that a call allocates before rings of values are looked for: seldom as many.
const COLLECT: usize = 8 << 20;

/// Instructions between two questions of the engine whether it goes on, of which each has 10,000 jumps and calls: of few
/// scripts they are more.
const INSTRUCTIONS: u64 = 3_000_000;

const DRIVER: &str = include_str!("driver.js");

pub(crate) struct Engine {
    context: Context,
    driver: Persistent<Object<'static>>,
}

thread_local! {
    static ENGINE: Cell<Option<&'static Engine>> = const { Cell::new(None) };
    /// The state of `Math.random`: nothing before its first call.
    static RANDOM: Cell<Option<u64>> = const { Cell::new(None) };
}

/// Starts the engine, once. In the snapshot it has begun.
pub(crate) fn start() {
    if ENGINE.get().is_none() {
        match Engine::new() {
            Ok(engine) => ENGINE.set(Some(Box::leak(Box::new(engine)))),
            Err(error) => say(&format!("cannot start the engine: {error}")),
        }
    }
}

/// The engine; without a snapshot it begins here.
pub(crate) fn with<R>(
    act: impl for<'js> FnOnce(&Ctx<'js>, &Object<'js>) -> R,
) -> std::result::Result<R, String> {
    start();
    let engine = ENGINE.get().ok_or("no engine")?;
    engine.context.with(|ctx| {
        let driver = engine.driver.clone().restore(&ctx).map_err(|error| error.to_string())?;
        Ok(act(&ctx, &driver))
    })
}

impl Engine {
    fn new() -> Result<Self> {
        let runtime = Runtime::new()?;
        runtime.set_max_stack_size(STACK);
        runtime.set_gc_threshold(COLLECT);
        let context = Context::custom::<Intrinsics>(&runtime)?;
        let driver = context.with(|ctx| {
            let code = bytecode::compile(&ctx, "driver.js", DRIVER.as_bytes(), SourceKind::Script)?;
            let Loaded::Script(make) = bytecode::run(&ctx, code)? else { return Err(Error::Unknown) };
            let driver: Object<'_> = Function::from_value(make)?.call((
                Function::new(ctx.clone(), |line: String| say(&line))?,
                Function::new(ctx.clone(), random)?,
                Function::new(ctx.clone(), |file: String| source(&file))?,
            ))?;
            warm(&ctx, &driver)?;
            Ok::<_, Error>(Persistent::save(&ctx, driver))
        })?;
        Ok(Self { context, driver })
    }
}

/// A call as any other, so that what is made at the first one is in the snapshot.
fn warm<'js>(ctx: &Ctx<'js>, driver: &Object<'js>) -> Result<()> {
    let request =
        ctx.json_parse(r#"{"controller":{},"parent":{"metadata":{},"spec":{}},"children":{},"related":{}}"#)?;
    let warm: Function<'_> = driver.get("warm")?;
    let answer: Value<'_> = warm.call((request,))?;
    misfit::find(driver, &answer, Look { strings: true, rounded: None })?;
    ctx.json_stringify(answer)?;
    Ok(())
}

/// Stops a script that goes on for long: it is an uncatchable error where the script is then. `budget`: instructions.
pub(crate) fn stop_within(budget: u64) {
    start();
    if let Some(engine) = ENGINE.get() {
        let mut left = budget / INSTRUCTIONS;
        engine.context.runtime().set_interrupt_handler(Some(Box::new(move || {
            left = left.wrapping_sub(1);
            left == 0
        })));
    }
}

/// A line of the log.
pub(crate) fn say(line: &str) {
    _ = std::io::stderr().write_all(format!("{line}\n").as_bytes());
}

/// The script's text, where a name of it has to be looked for.
pub(crate) fn source(file: &str) -> String {
    std::fs::read(format!("/hook/{file}"))
        .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
        .unwrap_or_default()
}

/// From 0 to below 1. The call's own random numbers seed it, so that no two parents share a sequence.
fn random() -> f64 {
    let mut state = RANDOM.get().unwrap_or_else(|| {
        let mut seed = [0; 8];
        _ = getrandom::fill(&mut seed);
        u64::from_le_bytes(seed).max(1)
    });
    state ^= state >> 12;
    state ^= state << 25;
    state ^= state >> 27;
    RANDOM.set(Some(state));
    // xorshift64*: its upper 52 bits are a number's fraction.
    let bits = state.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 12;
    f64::from_bits(bits | 1.0_f64.to_bits()) - 1.0
}
