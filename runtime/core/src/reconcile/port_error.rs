//! Errors of ports: what the sequence of a reconcile decides by, and the world's own error behind it.

use std::error::Error;
use std::fmt;

use crate::object::id::ObjectId;
use crate::reconcile::outcome::Retry;

/// The failure of a port: what the sequence decides by, and the world's own error behind it.
#[derive(Debug)]
pub struct PortError {
    /// One word, for metrics and for the controller's status.
    pub category: &'static str,
    pub retry: Retry,
    /// A right is missing.
    pub is_ungranted: bool,
    /// The server stops, and no longer waits for a hook.
    pub is_stopping: bool,
    pub source: Box<dyn Error + Send + Sync>,
}

/// An operation that was not carried out.
#[derive(Debug)]
pub struct WriteError {
    pub id: ObjectId,
    pub cause: WriteErrorCause,
    pub retry: Retry,
    pub source: Box<dyn Error + Send + Sync>,
}

/// Why an operation was not carried out, as far as that makes a difference.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WriteErrorCause {
    /// An object of that name exists already, and another owner has it.
    Taken,
    /// An object of that name exists already: the parent's own, which has not been observed yet.
    Unobserved,
    /// A right is missing.
    Ungranted,
    Other,
}

impl PortError {
    pub fn new(category: &'static str, retry: Retry, source: impl Error + Send + Sync + 'static) -> Self {
        Self { category, retry, is_ungranted: false, is_stopping: false, source: Box::new(source) }
    }
}

impl WriteError {
    /// Another client was faster, or the object is not observed yet: the next reconcile knows more.
    pub fn is_conflict(&self) -> bool {
        self.retry == Retry::Silent
    }

    /// An object of that name exists already, the parent's own or another owner's.
    pub fn is_there_already(&self) -> bool {
        matches!(self.cause, WriteErrorCause::Taken | WriteErrorCause::Unobserved)
    }
}

// Both stand for the error behind them: they say what it says.

impl fmt::Display for PortError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.source.fmt(f)
    }
}

impl Error for PortError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.source()
    }
}

impl fmt::Display for WriteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.source.fmt(f)
    }
}

impl Error for WriteError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.source()
    }
}
