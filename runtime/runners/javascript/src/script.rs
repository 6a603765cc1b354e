//! Tasks of a runner: the bytecode of a script, and the answer of one of its hooks.

use rquickjs::{Ctx, Error, Function, Object, Promise, Result, Value};

use crate::bytecode::{self, Loaded, SourceKind};
use crate::engine;
use crate::integers::{self, Rounded};
use crate::misfit::{self, Look, Misfit};

/// The bytecode of a script, or where its syntax is wrong.
pub(crate) fn compile(file: &str, source: Vec<u8>) -> std::result::Result<Vec<u8>, String> {
    let source = String::from_utf8(source).map_err(|error| not_text(file, &error))?;
    let text = source.strip_prefix('\u{feff}').unwrap_or(&source).as_bytes();
    engine::with(|ctx, driver| {
        // `export` and `await` outside of functions are no syntax of a script: what is no script is a module.
        let script = match bytecode::compile(ctx, file, text, SourceKind::Script) {
            Ok(code) => return Ok(code),
            Err(_) => ctx.catch(),
        };
        let module = match bytecode::compile(ctx, file, text, SourceKind::Module) {
            Ok(code) => return Ok(code),
            Err(_) => ctx.catch(),
        };
        let told: Result<String> = driver
            .get("refuse")
            .and_then(|refuse: Function<'_>| refuse.call((script, module, file, source.as_str())));
        Err(told.unwrap_or_else(|error| format!("{file}:1: SyntaxError: {error}")))
    })?
}

fn not_text(file: &str, error: &std::string::FromUtf8Error) -> String {
    let valid = error.as_bytes().get(..error.utf8_error().valid_up_to()).unwrap_or_default();
    let line = valid.iter().filter(|byte| **byte == b'\n').count() + 1;
    format!("{file}:{line}: SyntaxError: the script is not UTF-8")
}

/// The answer of a hook, as JSON.
pub(crate) fn call(hook: &str, file: &str, request: Vec<u8>) -> std::result::Result<Vec<u8>, String> {
    let code =
        std::fs::read("/hook/.code").map_err(|error| format!("{file}: cannot read /hook/.code: {error}"))?;
    engine::with(|ctx, driver| {
        answer(ctx, driver, (hook, file), code, request).map_err(|error| report(ctx, driver, file, &error))
    })?
}

fn answer<'js>(
    ctx: &Ctx<'js>,
    driver: &Object<'js>,
    (hook, file): (&str, &str),
    code: Vec<u8>,
    request: Vec<u8>,
) -> Result<Vec<u8>> {
    driver.get::<_, Function<'_>>("begin")?.call::<_, ()>((hook, file))?;
    let namespace = match bytecode::run(ctx, code)? {
        Loaded::Script(_) => Value::new_undefined(ctx.clone()),
        Loaded::Module { namespace, done } => {
            settled(done)?;
            namespace
        }
    };
    let mut rounded = Rounded::default();
    rounded.read(&request);
    let request = ctx.json_parse(request)?;
    let called: Value<'_> = driver.get::<_, Function<'_>>("call")?.call((namespace, request))?;
    let answer = settled(called)?;
    let answer: Value<'_> = driver.get::<_, Function<'_>>("check")?.call((answer,))?;
    fits(driver, &answer, Look::default())?;
    match ctx.json_stringify(answer.clone())? {
        Some(json) => {
            let json = json.to_string()?;
            // Half of a surrogate pair is written so, and so is a text that says it.
            if json.contains("\\ud") {
                fits(driver, &answer, Look { strings: true, ..Look::default() })?;
            }
            if !integers::has_large(&json) {
                return Ok(json.into_bytes());
            }
            // Where the script writes such a number itself, JavaScript has rounded it before the script runs.
            rounded.read(engine::source(file).as_bytes());
            match integers::exact(&json, &rounded) {
                Ok(json) => Ok(json.into_bytes()),
                Err(number) => {
                    let look = Look { rounded: Some(&rounded), ..Look::default() };
                    let place = misfit::find(driver, &answer, look)?.map(|misfit| misfit.path);
                    let place = place.unwrap_or_default();
                    driver.get::<_, Function<'_>>("rounded")?.call::<_, ()>((number, place))?;
                    Ok(Vec::new()) // not reached: it throws
                }
            }
        }
        None => driver.get::<_, Function<'_>>("nothing")?.call::<_, ()>(()).map(|()| Vec::new()),
    }
}

/// Refuses an answer with a value that JSON does not have.
fn fits<'js>(driver: &Object<'js>, answer: &Value<'js>, look: Look<'_>) -> Result<()> {
    match misfit::find(driver, answer, look)? {
        None => Ok(()),
        Some(Misfit { what, path }) => driver.get::<_, Function<'_>>("unfit")?.call((what, path)),
    }
}

/// Result of a promise, once all jobs are done; any other value is itself.
fn settled(value: Value<'_>) -> Result<Value<'_>> {
    match value.as_promise().map(Promise::finish) {
        Some(finished) => finished,
        None => Ok(value),
    }
}

fn report<'js>(ctx: &Ctx<'js>, driver: &Object<'js>, file: &str, error: &Error) -> String {
    let told: Result<String> = match error {
        Error::Exception => {
            let thrown = ctx.catch();
            driver.get("report").and_then(|report: Function<'_>| report.call((thrown,)))
        }
        Error::WouldBlock => driver.get("pending").and_then(|pending: Function<'_>| pending.call(())),
        other => Ok(format!("{file}:1: InternalError: {other}")),
    };
    told.unwrap_or_else(|_| format!("{file}:1: InternalError: out of memory"))
}
