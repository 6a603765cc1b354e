//! SDK for hooks in Rust: you write a function from a request to an answer, and the SDK reads and writes the JSON.
//!
//! A hook decides for a metahook server what should exist for a parent object. The server calls it once per process.
//! The hook reads one request from stdin and writes one answer to stdout. It sees nothing else.
//!
//! | hook of a controller | request | answer |
//! |---|---|---|
//! | sync, finalize of a `CompositeController` | [`Sync`] | [`SyncResponse`] |
//! | sync, finalize of a `DecoratorController` | [`Decorate`] | [`DecorateResponse`] |
//! | customize of both | [`Customize`] | [`CustomizeResponse`] |
//!
//! # Sync of a `CompositeController`
//!
//! One `ConfigMap` for each parent, with the parent's text. The status counts the `ConfigMaps` that exist:
//!
//! ```no_run
//! use metahook_sdk::{Sync, SyncResponse};
//! use serde::Deserialize;
//! use serde_json::json;
//!
//! #[derive(Deserialize, Default)]
//! struct Spec {
//!     text: Option<String>,
//! }
//!
//! fn sync(request: &Sync<'_, Spec>) -> SyncResponse {
//!     let parent = &request.parent;
//!     SyncResponse::new()
//!         .status(json!({ "maps": request.children.group("ConfigMap.v1").len() }))
//!         .child(json!({
//!             "apiVersion": "v1",
//!             "kind": "ConfigMap",
//!             "metadata": { "name": parent.metadata.name },
//!             "data": { "text": parent.spec.text.as_deref().unwrap_or("none") },
//!         }))
//! }
//!
//! fn main() -> std::process::ExitCode {
//!     metahook_sdk::run(sync)
//! }
//! ```
//!
//! # Sync of a `DecoratorController`
//!
//! Each object that has the label `team` gets an annotation. Other labels and annotations stay as they are:
//!
//! ```no_run
//! use metahook_sdk::{Decorate, DecorateResponse};
//!
//! fn sync(request: &Decorate<'_>) -> DecorateResponse {
//!     match request.object.metadata.labels.get("team") {
//!         Some(team) => DecorateResponse::new().annotation("example.com/owner", format!("team {team}")),
//!         None => DecorateResponse::new().remove_annotation("example.com/owner"),
//!     }
//! }
//!
//! fn main() -> std::process::ExitCode {
//!     metahook_sdk::run(sync)
//! }
//! ```
//!
//! # Finalize
//!
//! The server calls finalize in place of sync when the parent is being deleted. Here the parent waits until its Pod is
//! gone. The controller names the module in `hooks.sync` and in `hooks.finalize`:
//!
//! ```no_run
//! use metahook_sdk::{Sync, SyncResponse};
//! use serde_json::json;
//!
//! fn sync(request: &Sync<'_>) -> SyncResponse {
//!     let name = &request.parent.metadata.name;
//!     SyncResponse::new().child(json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": name } /* … */ }))
//! }
//!
//! fn finalize(request: &Sync<'_>) -> SyncResponse {
//!     let answer = SyncResponse::new(); // no children: the server deletes the Pod
//!     if request.children.group("Pod.v1").is_empty() { answer.finalized() } else { answer }
//! }
//!
//! fn main() -> std::process::ExitCode {
//!     metahook_sdk::run(|request: &Sync<'_>| if request.finalizing { finalize(request) } else { sync(request) })
//! }
//! ```
//!
//! # Customize
//!
//! The customize hook selects related objects, here one `ConfigMap` in the parent's namespace. The sync hook sees it:
//!
//! ```no_run
//! use metahook_sdk::{Customize, CustomizeResponse, Hook, RelatedRule, Sync, SyncResponse};
//! use serde_json::json;
//!
//! fn customize(request: &Customize<'_>) -> CustomizeResponse {
//!     let namespace = &*request.parent.metadata.namespace;
//!     CustomizeResponse::new().related(RelatedRule::new("v1", "configmaps").namespace(namespace).name("settings"))
//! }
//!
//! fn sync(request: &Sync<'_>) -> SyncResponse {
//!     let is_configured = !request.related.group("ConfigMap.v1").is_empty();
//!     SyncResponse::new().status(json!({ "configured": is_configured }))
//! }
//!
//! fn main() -> std::process::ExitCode {
//!     match metahook_sdk::hook() {
//!         Hook::Customize => metahook_sdk::run(customize),
//!         Hook::Sync | Hook::Finalize => metahook_sdk::run(sync),
//!     }
//! }
//! ```
//!
//! # Build and test
//!
//! `cargo build --target wasm32-wasip1 --release` makes the module. When a hook fails, it writes one line to stderr and
//! exits with code 1. The server then writes and deletes nothing, and tries again.
//!
//! [`testing`] calls the same function in a unit test, through the JSON of a real call:
//!
//! ```
//! use metahook_sdk::{Sync, SyncResponse, testing::Request};
//! use serde_json::json;
//!
//! fn sync(request: &Sync<'_>) -> SyncResponse {
//!     SyncResponse::new().status(json!({ "name": request.parent.metadata.name }))
//! }
//!
//! let answer = Request::of(json!({ "metadata": { "name": "a" } })).call(sync).unwrap();
//! assert_eq!(answer.status, json!({ "name": "a" }));
//! ```
#![warn(missing_docs)]

mod alias;
mod body;
mod borrow;
mod clock;
mod condition;
mod customize;
mod decode;
mod decorate;
mod json;
mod keep;
#[cfg(feature = "log")]
mod log_lines;
mod names;
mod object;
mod place;
mod request;
mod response;
pub mod testing;

pub use alias::{Customize, Decorate, Error, Result, Sync};
pub use borrow::{Map, Raw, Str};
pub use clock::now;
pub use condition::{Condition, Conditions};
pub use customize::{CustomizeRequest, CustomizeResponse, LabelSelector, Operator, RelatedRule, Requirement};
pub use decorate::{DecorateRequest, DecorateResponse};
#[cfg(feature = "log")]
pub use log_lines::log_to_stderr;
pub use names::{hash, owned_name};
pub use object::{Object, ObjectMeta, OwnerReference};
pub use request::{Children, SyncRequest};
pub use response::{IntoResponse, Reference, SyncResponse};
pub use serde::de::IgnoredAny;

use serde::Deserialize;
use std::hint::black_box;
use std::io::{ErrorKind, Read, Write, stderr, stdin, stdout};
use std::mem::ManuallyDrop;
use std::process::ExitCode;
use std::result::Result as StdResult;
use std::sync::Mutex;

/// Room for a request; most fit. It lies in the memory that a module starts with, and only what is used
/// of it costs anything; memory that has to grow costs calls into the host and the kernel.
const ROOM: usize = 128 * 1024;

static INPUT: Mutex<[u8; ROOM]> = Mutex::new([0; ROOM]);

/// The most by which the room for a larger request grows at once.
const STEP: usize = 4 * 1024 * 1024;

/// A hook of a controller. [`hook`] says which one a call is for, in a module that serves several hooks:
///
/// ```no_run
/// use metahook_sdk::{Customize, CustomizeResponse, Hook, RelatedRule, Sync, SyncResponse};
///
/// fn customize(_: &Customize<'_>) -> CustomizeResponse {
///     CustomizeResponse::new().related(RelatedRule::new("v1", "nodes"))
/// }
///
/// fn sync(request: &Sync<'_>) -> SyncResponse {
///     SyncResponse::new().status(serde_json::json!({ "nodes": request.related.group("Node.v1").len() }))
/// }
///
/// fn main() -> std::process::ExitCode {
///     match metahook_sdk::hook() {
///         Hook::Customize => metahook_sdk::run(customize),
///         Hook::Sync | Hook::Finalize => metahook_sdk::run(sync),
///     }
/// }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hook {
    /// Decides what should exist.
    Sync,
    /// Takes the place of `Sync` when the parent is being deleted.
    Finalize,
    /// Decides which related objects the other hooks see.
    Customize,
}

/// The hook that this call is for, in a module that serves several hooks: see [the example](crate#customize).
///
/// The server passes the name of the hook as the second argument of the program. Without it this is [`Hook::Sync`].
///
/// ```
/// assert_eq!(metahook_sdk::hook(), metahook_sdk::Hook::Sync); // a test has no second argument
/// ```
pub fn hook() -> Hook {
    match std::env::args().nth(1).as_deref() {
        Some("finalize") => Hook::Finalize,
        Some("customize") => Hook::Customize,
        Some(_) | None => Hook::Sync,
    }
}

/// Runs the hook once: reads a request from stdin and writes its answer to stdout. This is the whole `main` of a hook:
///
/// ```no_run
/// use metahook_sdk::{Sync, SyncResponse};
///
/// fn sync(request: &Sync<'_>) -> SyncResponse {
///     SyncResponse::new().status(serde_json::json!({ "name": request.parent.metadata.name }))
/// }
///
/// fn main() -> std::process::ExitCode {
///     metahook_sdk::run(sync)
/// }
/// ```
///
/// # Errors
/// When the request cannot be decoded (the line names the field), when the hook returns `Err`, or when the answer cannot
/// be encoded, it writes one line to stderr and nothing to stdout, and the exit code is 1.
pub fn run<R, A>(hook: impl FnOnce(&R) -> A) -> ExitCode
where
    R: Deserialize<'static>,
    A: IntoResponse,
{
    match read(stdin().lock(), room())
        .and_then(|input| call(hook, input))
        .and_then(|output| write(stdout().lock(), &output))
    {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            let line = why.replace('\n', "; ") + "\n";
            drop(stderr().write_all(line.as_bytes())); // nowhere else to say that this failed
            ExitCode::FAILURE
        }
    }
}

/// All of one call but the pipes. The request lives as long as the process: what is decoded may borrow from it, and
/// nothing of it is freed piece by piece before the memory goes as a whole.
pub(crate) fn call<R, A>(hook: impl FnOnce(&R) -> A, input: &'static [u8]) -> StdResult<Vec<u8>, String>
where
    R: Deserialize<'static>,
    A: IntoResponse,
{
    if input.is_empty() {
        return Err("nothing came on stdin: a hook reads its request there, as JSON".to_owned());
    }
    let request = ManuallyDrop::new(decode::decode::<R>("request", input)?);
    hook(&request).into_response()
}

/// The room, for the first caller.
fn room() -> &'static mut [u8] {
    match INPUT.try_lock() {
        Ok(room) => Box::leak(Box::new(room)).as_mut_slice(),
        Err(_taken) => &mut [],
    }
}

/// The whole input, in one piece.
fn read(mut from: impl Read, room: &'static mut [u8]) -> StdResult<&'static [u8], String> {
    let mut came = 0;
    while let Some(free) = room.get_mut(came..).filter(|free| !free.is_empty()) {
        match from.read(free) {
            Ok(0) => return Ok(room.get(..came).unwrap_or_default()),
            Ok(more) => came += more,
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            Err(e) => return Err(broken(&e)),
        }
    }
    let mut input = Vec::with_capacity(4 * ROOM);
    input.extend_from_slice(room);
    loop {
        let room = input.capacity() - input.len();
        let came = from.by_ref().take(room as u64).read_to_end(&mut input);
        if came.map_err(|e| broken(&e))? < room {
            return Ok(input.leak());
        }
        // The input is the last block of the heap. With free memory behind it the allocator lets it grow where it
        // is; otherwise it would move it, at each step, and take twice the pages.
        let more = input.len().saturating_mul(3).min(STEP);
        drop(black_box(Vec::<u8>::with_capacity(more)));
        input.reserve_exact(more);
    }
}

fn broken(why: &std::io::Error) -> String {
    format!("reading the request: {why}")
}

fn write(mut to: impl Write, output: &[u8]) -> StdResult<(), String> {
    to.write_all(output).and_then(|()| to.flush()).map_err(|e| format!("writing the response: {e}"))
}

/// Entry for the fuzz target of the SDK's JSON in `tests/fuzz`.
#[doc(hidden)]
pub mod fuzzing {
    /// The value in `text`, or one line that says what is wrong, and where.
    ///
    /// # Errors
    /// The text is no JSON of this type.
    pub fn decode<'a, T: serde::Deserialize<'a>>(text: &'a [u8]) -> Result<T, String> {
        crate::decode::decode("value", text)
    }
}

/// The book's pages on hooks, so that their examples are compiled.
#[cfg(doctest)]
mod book {
    #[doc = include_str!("../../runtime/docs/src/decorator.md")]
    struct Decorator;
    #[doc = include_str!("../../runtime/docs/src/hooks.md")]
    struct Hooks;
    #[doc = include_str!("../../runtime/docs/src/sdk.md")]
    struct Sdk;
}

#[cfg(test)]
mod doc_examples;

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};
    use std::io::{Cursor, Result as IoResult};

    /// Gives what it has in pieces of this size, and between them says that it was interrupted.
    struct Pieces(Cursor<Vec<u8>>, usize, bool);

    impl Read for Pieces {
        fn read(&mut self, into: &mut [u8]) -> IoResult<usize> {
            self.2 = !self.2;
            if self.2 {
                return Err(ErrorKind::Interrupted.into());
            }
            let most = into.len().min(self.1);
            self.0.read(&mut into[..most])
        }
    }

    #[test]
    fn a_request_of_any_size_is_read_whole_however_it_comes() {
        for size in [0, 1, 15, 16, 17, 4 * ROOM - 1, 4 * ROOM, 4 * ROOM + 1, 5 * ROOM, STEP + 17, 2 * STEP] {
            let sent: Vec<u8> = (0_u8..=255).cycle().take(size).collect();
            for piece in [1000, 8192, usize::MAX] {
                let from = Pieces(Cursor::new(sent.clone()), piece, false);
                let got = read(from, vec![0; 16].leak()).unwrap();
                assert!(got == sent, "{size} in pieces of {piece}");
            }
        }
    }

    #[test]
    fn the_room_set_aside_is_given_away_once() {
        assert_eq!((room().len(), room().len()), (ROOM, 0));
    }

    #[test]
    fn a_broken_pipe_is_named() {
        struct Broken;
        impl Read for Broken {
            fn read(&mut self, _: &mut [u8]) -> IoResult<usize> {
                Err(ErrorKind::BrokenPipe.into())
            }
        }
        for room in [0, 16] {
            let why = read(Broken, vec![0; room].leak()).unwrap_err();
            assert_eq!(why, "reading the request: broken pipe");
        }
        assert_eq!(
            write(&mut [0_u8; 2][..], b"{}!").unwrap_err(),
            "writing the response: failed to write whole buffer"
        );
    }

    fn answer(_: &SyncRequest<Value>) -> SyncResponse {
        SyncResponse::new().status(json!({ "ok": true }))
    }

    #[test]
    fn a_call_goes_from_bytes_to_bytes() {
        let output = call(answer, br#"{"parent":{}}"#).unwrap();
        assert_eq!(str::from_utf8(&output).unwrap(), r#"{"children":[],"status":{"ok":true}}"#);
    }

    #[test]
    fn what_is_no_request_is_refused_with_the_reason() {
        let refused = |input| call(answer, input).unwrap_err();
        assert_eq!(refused(b""), "nothing came on stdin: a hook reads its request there, as JSON");
        assert_eq!(refused(b" "), "request: ends where a request should be (at byte 1 of 1)");
        assert_eq!(refused(b"[]"), "request: a list where a request should be (at byte 0 of 2)");
        assert_eq!(refused(b"{}"), "request: missing field `parent` (at byte 2 of 2)");
        assert_eq!(refused(b"{\"parent\":{}} x"), "request: 'x' where the end should be (at byte 14 of 15)");
        assert_eq!(
            refused(b"{\"parent\":{}}\0"),
            "request: '\\x00' where the end should be (at byte 13 of 14)"
        );
    }

    #[test]
    fn the_error_of_a_hook_is_the_error_of_the_call() {
        let fails = |_: &SyncRequest<Value>| Err::<SyncResponse, _>("no such size");
        assert_eq!(call(fails, br#"{"parent":{}}"#).unwrap_err(), "no such size");
    }
}
