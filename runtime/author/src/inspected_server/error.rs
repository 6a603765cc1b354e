//! Errors of commands that look into servers.

use http::StatusCode;
use metahook_server::cluster::api_client::ConnectError;
use metahook_server::cluster::objects::RequestError;
use metahook_server::cluster::tokens::TokenError;

use super::{PORT, SELECTOR};

#[derive(Debug, thiserror::Error)]
pub enum InspectError {
    #[error(transparent)]
    Request(#[from] RequestError),
    #[error(transparent)]
    Connect(#[from] ConnectError),
    #[error(transparent)]
    Token(#[from] TokenError),
    #[error("--token-file: {0} cannot be read")]
    TokenFile(String, #[source] std::io::Error),
    #[error(transparent)]
    Server(#[from] ServerError),
}

#[derive(Debug, Clone, thiserror::Error)]
pub enum ServerError {
    #[error(
        "no Pod of a server runs in the namespace {namespace:?}, neither one that {SELECTOR:?} selects nor one with the argument --inspection-address: name the server's namespace by --server-namespace, or forward a port and name it by --server. A server on this machine has to run with --inspection-address 127.0.0.1:9797; name this address by --server"
    )]
    NoPod { namespace: String },
    #[error("the server's Pods are being looked for")]
    NotListed,
    #[error("the server's Pods cannot be listed: {0}")]
    List(String),
    #[error("the server in the Pod {pod} is being reached")]
    BeingReached { pod: String },
    #[error(
        "kubectl does not forward a port of the Pod {pod}: {why}; forward one yourself, and name it by --server"
    )]
    Forward { pod: String, why: String },
    #[error(
        "the server at {address} does not answer: {why}; it has to run with --inspection-address, and be as new as this command"
    )]
    Unreachable { address: String, why: String },
    #[error("the server {server} does not answer: nothing came within {seconds} s")]
    Late { server: String, seconds: u64 },
    #[error("{message}")]
    Refused { status: StatusCode, message: String },
    #[error("the server is older than this command: it answers that {0}")]
    Old(String),
    #[error(
        "this command does not understand what the server answers, which is metahook {server}: use a command of this version ({why})"
    )]
    OtherVersion { server: String, why: String },
    #[error("what the server answers is not of this version: {0}")]
    Answer(String),
    #[error(
        "--server: a token is shown there, so it has to be on localhost: write an address like 127.0.0.1:{PORT}, not {0:?}"
    )]
    Address(String),
}

impl InspectError {
    /// Only a server that cannot be reached has to be reached anew: one that refuses a request or fails has answered.
    pub(crate) fn is_cut_off(&self) -> bool {
        matches!(self, Self::Server(ServerError::Unreachable { .. }))
    }

    fn is_refused(&self) -> bool {
        matches!(self, Self::Server(ServerError::Refused { .. }))
    }
}

impl ServerError {
    /// The next request gets the same answer.
    pub(crate) fn is_final(&self) -> bool {
        matches!(
            self,
            Self::Old(_)
                | Self::Refused {
                    status: StatusCode::FORBIDDEN | StatusCode::BAD_REQUEST | StatusCode::CONFLICT,
                    ..
                }
        )
    }
}

/// The failure to report of several servers'. A refusal comes from the server that has the answer, another failure from any.
pub(crate) fn foremost(failures: Vec<InspectError>) -> Option<InspectError> {
    failures.into_iter().reduce(
        |first, next| {
            if next.is_refused() && !first.is_refused() { next } else { first }
        },
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_reported_before_other_failures() {
        let unreachable = |address: &str| {
            InspectError::from(ServerError::Unreachable { address: address.to_owned(), why: "w".to_owned() })
        };
        let refused = |message: &str| {
            let (status, message) = (StatusCode::FORBIDDEN, message.to_owned());
            InspectError::from(ServerError::Refused { status, message })
        };
        let reported = |failures| foremost(failures).map(|error| error.to_string());
        assert_eq!(reported(vec![]), None);
        assert_eq!(reported(vec![unreachable("a"), refused("no"), refused("never")]), Some("no".to_owned()));
        assert_eq!(reported(vec![refused("no"), unreachable("a")]), Some("no".to_owned()));
        assert!(reported(vec![unreachable("a"), unreachable("b")]).unwrap().contains("at a does"));
    }
}
