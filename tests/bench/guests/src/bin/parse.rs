//! A hook that reads its request as `guests/hello` does, and answers nothing.

use std::hint::black_box;
use std::process::ExitCode;

use metahook_sdk::{Object, SyncRequest, SyncResponse};
use serde::Deserialize;

#[derive(Default, Deserialize)]
struct Spec {
    who: Option<String>,
}

fn sync(request: &SyncRequest<Object<'_, Spec>>) -> SyncResponse {
    black_box((&request.parent.spec.who, &request.children));
    #[expect(clippy::exit, reason = "after this a hook would answer")]
    std::process::exit(0)
}

fn main() -> ExitCode {
    metahook_sdk::run(sync)
}
