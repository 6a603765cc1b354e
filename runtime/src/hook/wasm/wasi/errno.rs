//! How a call into the host fails: with a number of WASI preview 1, or with the end of the hook.

/// What a hook is told. The numbers are those of `wasi_snapshot_preview1`.
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

/// Why a function of the host did not do what it was asked for.
#[derive(Debug)]
pub(super) enum Failure {
    /// The hook is told, and goes on.
    Told(Errno),
    /// The hook ends.
    Ends(wasmtime::Error),
}

impl Errno {
    pub(super) fn number(self) -> u16 {
        self as u16
    }
}

impl From<Errno> for Failure {
    fn from(errno: Errno) -> Self {
        Self::Told(errno)
    }
}

impl Failure {
    pub(super) fn ends(why: impl std::error::Error + Send + Sync + 'static) -> Self {
        Self::Ends(wasmtime::Error::new(why))
    }
}
