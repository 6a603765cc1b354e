//! One hook of a controller as it is hosted: a module that is followed, or a webhook.

use std::sync::Arc;

use metahook_core::api::policy::Limits;

use crate::hook::wasm::source::HookSource;
use crate::hook::web::Webhook;

/// A hook that runs as long as its controller does.
pub(crate) enum Hook {
    Wasm { source: Arc<HookSource>, limits: Limits },
    Webhook(Arc<Webhook>),
}
