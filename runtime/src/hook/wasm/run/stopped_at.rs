//! The line at which a script used up its instructions. The call is repeated, which gives what it gave, and the interpreter stops
//! the script on its way: in Python it names the line that ran most often until then, in JavaScript the one that runs then. Of each script
//! one call in some minutes is repeated, so that who writes an endless loop costs no more by it.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use crate::sync::lock;

use super::{COMPILE, Call, CallError, Module, Runtime, Script};

/// Errors by which the interpreters stop a script.
const STOPS: [&str; 2] = [": Stopped", ": InternalError: interrupted"];

/// A place is told for this long before it is looked for anew.
const KNOWN: Duration = Duration::from_mins(5);

/// The place of a script's last stop, and when it was looked for.
#[derive(Debug, Default)]
pub(super) struct LastStop(Mutex<Option<(Instant, Option<String>)>>);

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
        let now = Instant::now();
        {
            let mut last = lock(&module.last_stop.0);
            if let Some((_, place)) = last.as_ref().filter(|(then, _)| now.duration_since(*then) < KNOWN) {
                return place.clone();
            }
            // Others that fail meanwhile do not look for it, too.
            *last = Some((now, None));
        }
        let script = Script { stop_within: Some(call.limits.instructions.to_string()), ..script.clone() };
        let place = match self.call_once(module, Some(&script), call).await.answer {
            Err(CallError::Script(said)) => place(&said),
            _ => None,
        };
        *lock(&module.last_stop.0) = Some((now, place.clone()));
        place
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
        assert_eq!(at("sync.py:2: Stopped"), " at sync.py:2");
        assert_eq!(at("hook.js:3: InternalError: interrupted; by sync (hook.js:3:9)"), " at hook.js:3");
        assert_eq!(at("sync.py:2: KeyError: 'a'"), "");
    }
}
