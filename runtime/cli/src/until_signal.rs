//! Commands that run until Ctrl-C.

use std::io;

use tokio::signal::unix::{SignalKind, signal};

#[derive(Debug, thiserror::Error)]
#[error("no signals can be waited for")]
pub struct SignalError(#[source] io::Error);

/// Runs until Ctrl-C, which is no failure: what was started for it, as a `kubectl` that forwards a port, ends too.
pub(super) async fn until_signal<E: From<SignalError>>(
    running: impl Future<Output = Result<(), E>>,
) -> Result<(), E> {
    let (term, int) = (signal(SignalKind::terminate()), signal(SignalKind::interrupt()));
    let (mut term, mut int) = (term.map_err(SignalError)?, int.map_err(SignalError)?);
    tokio::select! {
        ended = running => ended,
        _ = term.recv() => Ok(()),
        _ = int.recv() => Ok(()),
    }
}
