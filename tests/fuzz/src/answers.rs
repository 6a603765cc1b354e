//! Answers of hooks: of every kind of hook, read in every way.

use metahook_core::api::ControllerKind;
use metahook_core::api::customize::CustomizeBounds;
use metahook_core::api::hook::HookTransport;
use metahook_core::hook::read::ReadOptions;
use metahook_core::hook::response::{self, Mode};
use metahook_core::hook::{MAX_ANSWER_MEMORY, ResponseError, customize};
use serde_json::Value;

const MAX_CHILDREN: usize = 3;

/// The bytes are an answer.
pub(crate) fn check(bytes: &[u8]) {
    for via in [HookTransport::Wasm, HookTransport::Webhook] {
        for kind in [ControllerKind::Composite, ControllerKind::Decorator] {
            for deletes in [false, true] {
                sync(bytes, |mode| ReadOptions {
                    kind,
                    via,
                    mode,
                    max_children: MAX_CHILDREN,
                    max_memory: MAX_ANSWER_MEMORY,
                    deletes,
                });
            }
        }
        let [loose, strict] = [Mode::Loose, Mode::Strict]
            .map(|mode| customize::rules(bytes, via, mode, &CustomizeBounds::default()));
        if let Ok(strict) = &strict {
            assert_eq!(loose.as_ref().ok(), Some(strict), "what is read strictly is read loosely");
        }
        for error in [loose.err(), strict.err()].into_iter().flatten() {
            assert!(!error.to_string().is_empty());
        }
    }
}

fn sync(bytes: &[u8], options: impl Fn(Mode) -> ReadOptions) {
    let [loose, strict] = [Mode::Loose, Mode::Strict].map(|mode| response::sync(bytes, options(mode)));
    if let Ok(strict) = &strict {
        assert_eq!(loose.as_ref().ok(), Some(strict), "what is read strictly is read loosely");
        assert!(strict.warnings.is_empty());
    }
    if let Ok(loose) = &loose {
        assert!(options(Mode::Loose).via.follows_metacontroller() || loose.children.len() <= MAX_CHILDREN);
        assert!(loose.children.iter().all(|child| child.get("kind").is_some_and(Value::is_string)));
        assert!(loose.events.len() <= 10);
        assert!(loose.resync_after.is_none_or(|after| !after.is_zero()), "{:?}", loose.resync_after);
    }
    for error in [loose.err(), strict.err()].into_iter().flatten() {
        assert!(!error.to_string().is_empty());
        if let ResponseError::Type { path, .. }
        | ResponseError::Value { path, .. }
        | ResponseError::TooManyKeys { path, .. } = error
        {
            assert!(!path.is_empty(), "the error says where");
        }
    }
}
