//! Functions that rquickjs lacks, or has for modules alone: scripts and modules to bytecode, and bytecode to values.
#![allow(unsafe_code, reason = "calls of QuickJS that rquickjs does not wrap")]

use rquickjs::{Ctx, Error, Result, Value, qjs};

/// Kind of a source text.
#[derive(Clone, Copy)]
pub(crate) enum SourceKind {
    Module,
    Script,
}

/// Result of running bytecode.
pub(crate) enum Loaded<'js> {
    /// A module's names, and the promise of its top level.
    Module { namespace: Value<'js>, done: Value<'js> },
    /// Value of a script's last expression.
    Script(Value<'js>),
}

/// The bytecode of a source text, which is not executed.
pub(crate) fn compile(ctx: &Ctx<'_>, file: &str, source: &[u8], kind: SourceKind) -> Result<Vec<u8>> {
    let length = source.len();
    let source = terminated(source);
    let file = terminated(file.as_bytes());
    let kind = match kind {
        SourceKind::Module => qjs::JS_EVAL_TYPE_MODULE,
        SourceKind::Script => qjs::JS_EVAL_TYPE_GLOBAL,
    };
    let flags = kind | qjs::JS_EVAL_FLAG_COMPILE_ONLY;
    let raw = ctx.as_raw().as_ptr();
    // SAFETY: both texts end with a zero and live until the call returns, as what is written does until it is copied.
    unsafe {
        let compiled = owned(
            ctx,
            qjs::JS_Eval(raw, source.as_ptr().cast(), size(length), file.as_ptr().cast(), flags.cast_signed()),
        )?;
        let mut written = 0;
        let bytes =
            qjs::JS_WriteObject(raw, &raw mut written, compiled.as_raw(), qjs::JS_WRITE_OBJ_BYTECODE.cast_signed());
        if bytes.is_null() {
            return Err(Error::Exception);
        }
        let code = std::slice::from_raw_parts(bytes, written as usize).to_vec();
        qjs::js_free(raw, bytes.cast());
        Ok(code)
    }
}

/// Runs bytecode that `compile` of this very runner made: other bytes may do anything to this instance.
pub(crate) fn run<'js>(ctx: &Ctx<'js>, code: Vec<u8>) -> Result<Loaded<'js>> {
    // The instructions stay where they are, and the instance ends with the call.
    let code: &'static [u8] = code.leak();
    let raw = ctx.as_raw().as_ptr();
    let flags = qjs::JS_READ_OBJ_BYTECODE | qjs::JS_READ_OBJ_ROM_DATA;
    // SAFETY: the bytes live on; the server gives a runner what the same runner compiled; each value is owned once, and
    // JS_EvalFunction takes one.
    unsafe {
        let read = qjs::JS_ReadObject(raw, code.as_ptr(), size(code.len()), flags.cast_signed());
        let read = owned(ctx, read)?.as_raw_kept();
        if qjs::JS_VALUE_GET_TAG(read) != qjs::JS_TAG_MODULE {
            return Ok(Loaded::Script(owned(ctx, qjs::JS_EvalFunction(raw, read))?));
        }
        if qjs::JS_ResolveModule(raw, read) < 0 {
            return Err(Error::Exception);
        }
        let module = qjs::JS_VALUE_GET_PTR(read).cast();
        let done = owned(ctx, qjs::JS_EvalFunction(raw, read))?;
        let namespace = owned(ctx, qjs::JS_GetModuleNamespace(raw, module))?;
        Ok(Loaded::Module { namespace, done })
    }
}

/// # Safety
/// The value is this context's, and nobody else's.
unsafe fn owned<'js>(ctx: &Ctx<'js>, value: qjs::JSValue) -> Result<Value<'js>> {
    // SAFETY: as the caller says.
    unsafe {
        if qjs::JS_VALUE_GET_TAG(value) == qjs::JS_TAG_EXCEPTION {
            return Err(Error::Exception);
        }
        Ok(Value::from_raw(ctx.clone(), value))
    }
}

/// A value whose owner becomes somebody else.
trait Kept {
    fn as_raw_kept(self) -> qjs::JSValue;
}

impl Kept for Value<'_> {
    fn as_raw_kept(self) -> qjs::JSValue {
        // SAFETY: the duplicate is the one that the caller owns.
        unsafe { qjs::JS_DupValue(self.ctx().as_raw().as_ptr(), self.as_raw()) }
    }
}

fn terminated(text: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(text.len() + 1);
    bytes.extend_from_slice(text);
    bytes.push(0);
    bytes
}

fn size(length: usize) -> qjs::size_t {
    qjs::size_t::try_from(length).unwrap_or(qjs::size_t::MAX)
}
