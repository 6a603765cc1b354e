//! Values of flags: addresses, amounts of bytes, durations, selectors.

use std::net::SocketAddr;
use std::time::Duration;

use metahook_core::api::common::ApplyStrategy;
use metahook_core::api::units;
use metahook_core::object::selector::Selector;
use metahook_core::pacing::RateError;

use metahook_server::cluster::transport::READ_TIMEOUT;

/// An address as Go writes it: the host may be left out; `0` is none.
#[derive(Debug, Clone, Copy)]
pub struct Address(pub(super) Option<SocketAddr>);

pub(super) fn address(text: &str) -> Result<Address, String> {
    let whole = match text {
        "" => "0".to_owned(),
        port if port.starts_with(':') => format!("[::]{port}"),
        whole => whole.replace("localhost", "127.0.0.1"),
    };
    match whole.as_str() {
        "0" => Ok(Address(None)),
        some => some
            .parse()
            .map(|address| Address(Some(address)))
            .map_err(|_invalid| "write an address like :8081 or 127.0.0.1:8081, or 0".to_owned()),
    }
}

/// An address that only this machine reaches.
pub(super) fn local_address(text: &str) -> Result<Address, String> {
    let Address(given) = address(text)?;
    match given {
        Some(given) if !given.ip().is_loopback() => Err(format!(
            "{given} is not on localhost: write 127.0.0.1:{}, and reach it by `kubectl port-forward`",
            given.port()
        )),
        given => Ok(Address(given)),
    }
}

pub(super) fn bytes(text: &str) -> Result<u64, String> {
    units::bytes(text)
        .filter(|bytes| *bytes > 0)
        .ok_or_else(|| "write an amount of bytes like 64Mi".to_owned())
}

pub(super) fn selector(text: &str) -> Result<Selector, String> {
    Selector::parse(text).map_err(|error| error.to_string())
}

pub(super) fn apply_strategy(text: &str) -> Result<ApplyStrategy, String> {
    match text {
        "dynamic-apply" | "" => Ok(ApplyStrategy::DynamicApply),
        "server-side-apply" => Ok(ApplyStrategy::ServerSideApply),
        _ => Err("write dynamic-apply or server-side-apply".to_owned()),
    }
}

pub(super) fn duration(text: &str) -> Result<Duration, String> {
    pause(text).and_then(|duration| if duration.is_zero() { Err(DURATION.to_owned()) } else { Ok(duration) })
}

/// The API server gives a request up after a minute.
pub(super) fn read_timeout(text: &str) -> Result<Duration, String> {
    let longest =
        format!("at most {} s: the API server gives a request up after that", READ_TIMEOUT.as_secs());
    duration(text).and_then(|time| if time > READ_TIMEOUT { Err(longest) } else { Ok(time) })
}

pub(super) fn pause(text: &str) -> Result<Duration, String> {
    units::duration(text).ok_or_else(|| DURATION.to_owned())
}

const DURATION: &str = "write a duration like 30s or 1m30s";

/// A flag whose value does not go with another's.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum FlagError {
    #[error("--{0} is above --{0}-max: lower the one or raise the other")]
    AboveMax(&'static str),
    #[error("--max-observed-children is below --max-children: raise the one or lower the other")]
    FewerObserved,
    #[error("--client-go-qps and --client-go-burst: {0}")]
    Rate(#[source] RateError),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_local_address_is_one_of_this_machine_alone() {
        for local in ["127.0.0.1:8080", "localhost:8080", "[::1]:8080", "127.1.2.3:1", "0"] {
            assert!(local_address(local).is_ok(), "{local}");
        }
        for open in [":8080", "0.0.0.0:8080", "[::]:8080", "10.0.0.1:8080", "[::ffff:10.0.0.1]:8080"] {
            let error = local_address(open).err().unwrap();
            assert!(
                error.ends_with("write 127.0.0.1:8080, and reach it by `kubectl port-forward`"),
                "{error}"
            );
        }
    }
}
