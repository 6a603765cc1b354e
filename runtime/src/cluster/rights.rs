//! Refusals of the API server in one line: of requests and of watches, and what to do where a right is missing.

use std::error::Error;
use std::time::Duration;

use kube::runtime::watcher;
use metahook_core::api::ControllerKind;
use metahook_core::one_line;

use crate::telemetry::error_chain;

/// A right may be granted at any time: what needs it is tried again this much later at the latest.
pub(crate) const UNGRANTED_DELAY: Duration = Duration::from_secs(4);

/// Advice to the user: how to grant a right.
pub(super) const ROLES: &str =
    "grant it: `metahook rbac --controller NAME` prints the roles that a controller needs";

/// Whether a refusal is one of RBAC, which names account, verb and resource. Quotas and admission refuse with the same status.
pub(crate) fn is_ungranted(status: u16, message: &str) -> bool {
    status == 403 && message.contains("User \"") && message.contains(" cannot ")
}

/// A refusal in one line. The status is shown only where the API server says no more than that.
pub(crate) fn refusal(status: u16, message: &str) -> String {
    let message = one_line(message);
    if message.trim().is_empty() {
        format!("HTTP status {status}")
    } else if is_ungranted(status, &message) {
        format!("{message}; {ROLES}")
    } else {
        message.into_owned()
    }
}

/// A message whose advice names the controller.
pub(crate) fn naming(message: &str, kind: ControllerKind, name: &str) -> String {
    message.replace("--controller NAME", &format!("--controller {}/{name}", kind.as_str().to_lowercase()))
}

/// Why a watch broke.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct WatchFailure {
    pub(crate) why: String,
    /// A right is missing.
    pub(crate) is_ungranted: bool,
}

impl WatchFailure {
    /// Kube prints the API server's refusal three times, once in the form of its own code.
    pub(crate) fn of(error: &watcher::Error) -> Self {
        let status = match error {
            watcher::Error::InitialListFailed(kube::Error::Api(status))
            | watcher::Error::WatchStartFailed(kube::Error::Api(status))
            | watcher::Error::WatchFailed(kube::Error::Api(status))
            | watcher::Error::WatchError(status) => status,
            watcher::Error::InitialListFailed(error)
            | watcher::Error::WatchStartFailed(error)
            | watcher::Error::WatchFailed(error) => return Self::other(error),
            watcher::Error::NoResourceVersion => return Self::other(error),
        };
        Self {
            why: refusal(status.code, &status.message),
            is_ungranted: is_ungranted(status.code, &status.message),
        }
    }

    fn other(error: &dyn Error) -> Self {
        Self { why: error_chain(error), is_ungranted: false }
    }
}

#[cfg(test)]
mod tests {
    use kube::core::Status;

    use super::*;

    const FORBIDDEN: &str = "pods is forbidden: User \"system:serviceaccount:m:m\" cannot list resource \"pods\" in API group \"\" at the cluster scope";

    fn status(code: u16, message: &str) -> Box<Status> {
        Box::new(Status { code, message: message.to_owned(), ..Status::default() })
    }

    #[test]
    fn a_missing_right_is_told_once_with_what_to_do() {
        let error = watcher::Error::InitialListFailed(kube::Error::Api(status(403, FORBIDDEN)));
        let WatchFailure { why, is_ungranted } = WatchFailure::of(&error);
        assert!(is_ungranted);
        assert_eq!(why, format!("{FORBIDDEN}; {ROLES}"));
        let named = naming(&why, ControllerKind::Composite, "hello");
        assert!(named.contains("`metahook rbac --controller compositecontroller/hello` prints"), "{named}");
        assert_eq!(WatchFailure::of(&watcher::Error::WatchError(status(403, FORBIDDEN))).why, why);
    }

    #[test]
    fn other_refusals_are_one_line_too() {
        let quota = "pods \"x\" is forbidden: exceeded quota: q";
        assert!(!is_ungranted(403, quota) && !is_ungranted(404, FORBIDDEN));
        let initializing =
            watcher::Error::WatchStartFailed(kube::Error::Api(status(429, "storage is (re)initializing")));
        let failure = WatchFailure::of(&initializing);
        assert_eq!(
            failure,
            WatchFailure { why: "storage is (re)initializing".to_owned(), is_ungranted: false }
        );
        assert_eq!(refusal(422, "denied:\n* no label\n"), "denied: * no label");
        assert_eq!(refusal(502, "\n"), "HTTP status 502");
    }
}
