//! One module for two hooks: customize asks for the ConfigMaps with the parent's label, sync counts them.

use metahook_sdk::{Customize, CustomizeResponse, Hook, RelatedRule, Sync, SyncResponse};
use serde_json::json;

fn customize(request: &Customize<'_>) -> CustomizeResponse {
    let metadata = &request.parent.metadata;
    let rule =
        RelatedRule::new("v1", "configmaps").namespace(&*metadata.namespace).label("for", &*metadata.name);
    CustomizeResponse::new().related(rule)
}

fn sync(request: &Sync<'_>) -> SyncResponse {
    SyncResponse::new().status(json!({ "maps": request.related.group("ConfigMap.v1").len() }))
}

fn main() -> std::process::ExitCode {
    match metahook_sdk::hook() {
        Hook::Customize => metahook_sdk::run(customize),
        Hook::Sync | Hook::Finalize => metahook_sdk::run(sync),
    }
}
