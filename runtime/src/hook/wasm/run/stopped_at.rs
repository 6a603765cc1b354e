//! The line at which a script used up its instructions. The call is repeated, which gives what it gave, and the interpreter stops
//! the script on its way: an endless loop has begun long before.

use super::{COMPILE, Call, CallError, Module, Runtime, Script};

/// Errors by which the interpreters stop a script.
const STOPS: [&str; 2] = [": Stopped", ": InternalError: interrupted"];

impl Runtime {
    /// ` at <file>:<line>`, where the interpreter can tell: it is not asked while a single operation of its own goes on.
    pub(super) async fn stopped_at(
        &self,
        module: &Module,
        script: &Script,
        call: Call<'_>,
    ) -> Option<String> {
        if call.hook == COMPILE {
            return None;
        }
        let script = Script { stop_within: Some(call.limits.instructions.to_string()), ..script.clone() };
        match self.call_once(module, Some(&script), call).await.answer {
            Err(CallError::Script(said)) => place(&said),
            _ => None,
        }
    }
}

fn place(said: &str) -> Option<String> {
    let (at, _) = STOPS.into_iter().find_map(|stop| said.split_once(stop))?;
    Some(format!(" at {at}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_stop_has_a_place() {
        let at = |said| place(said).unwrap_or_default();
        assert_eq!(at("sync.py:2: Stopped; by sync.py:5 in sync: f()"), " at sync.py:2");
        assert_eq!(at("hook.js:3: InternalError: interrupted; by at sync (hook.js:3:9)"), " at hook.js:3");
        assert_eq!(at("sync.py:2: KeyError: 'a'"), "");
    }
}
