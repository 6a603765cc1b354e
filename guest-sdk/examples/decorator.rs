//! A DecoratorController's hook: each object gets a label, and a ConfigMap that names its owners.

use metahook_sdk::{Decorate, DecorateResponse, Result, owned_name};
use serde_json::json;

fn sync(request: &Decorate<'_>) -> Result<DecorateResponse> {
    let metadata = &request.object.metadata;
    let owners: Vec<_> =
        metadata.owners()?.iter().map(|owner| format!("{} {}", owner.kind, owner.name)).collect();
    Ok(DecorateResponse::new().label("example.com/seen", "true").attachment(json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": { "name": owned_name(&metadata.name, "owners") },
        "data": { "owners": owners.join(", ") },
    })))
}

fn main() -> std::process::ExitCode {
    metahook_sdk::run(sync)
}
