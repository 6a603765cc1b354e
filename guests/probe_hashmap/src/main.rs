//! Knows a hook whose answer depends on random numbers: the order of a `HashMap`.

use std::collections::HashMap;

use metahook_sdk::{Object, SyncRequest, SyncResponse};
use serde_json::json;

fn sync(_: &SyncRequest<Object<'_>>) -> SyncResponse {
    let letters: HashMap<char, usize> = ('a'..='z').zip(0..).collect();
    #[allow(clippy::iter_over_hash_type, reason = "the order is what this hook is for")]
    let order = letters.into_keys().collect::<String>();
    SyncResponse::new().status(json!({ "order": order }))
}

fn main() -> std::process::ExitCode {
    metahook_sdk::run(sync)
}
