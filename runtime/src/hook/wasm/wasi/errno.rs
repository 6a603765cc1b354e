//! Failures of calls into the host: an error number for the hook, or the end of the call.

/// An error number of `wasi_snapshot_preview1`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Errno {
    Badf = 8,
    Fault = 21,
    Ilseq = 25,
    Inval = 28,
    Isdir = 31,
    Mfile = 33,
    Nametoolong = 37,
    Noent = 44,
    Notdir = 54,
    Notsock = 57,
    Notsup = 58,
    Overflow = 61,
    Perm = 63,
    Rofs = 69,
    Spipe = 70,
}

/// The failure of a function of the host.
#[derive(Debug)]
pub(super) enum Failure {
    /// The hook sees the number and goes on.
    Errno(Errno),
    /// The call ends.
    Trap(wasmtime::Error),
}

impl Errno {
    pub(super) fn number(self) -> u16 {
        self as u16
    }
}

impl From<Errno> for Failure {
    fn from(errno: Errno) -> Self {
        Self::Errno(errno)
    }
}

impl Failure {
    pub(super) fn trap(error: impl std::error::Error + Send + Sync + 'static) -> Self {
        Self::Trap(wasmtime::Error::new(error))
    }
}
