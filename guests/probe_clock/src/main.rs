//! Knows a hook that asks what time it is.

use std::time::{SystemTime, UNIX_EPOCH};

use metahook_sdk::{Object, SyncRequest, SyncResponse};
use serde_json::json;

fn sync(_: &SyncRequest<Object<'_>>) -> SyncResponse {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    SyncResponse::new().status(json!({ "seconds": since.as_secs() }))
}

fn main() -> std::process::ExitCode {
    metahook_sdk::run(sync)
}
