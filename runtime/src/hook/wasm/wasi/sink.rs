//! Where a hook's output goes: memory with a bound, which remembers what went over it.

/// A sink with a bound.
#[derive(Debug)]
pub(crate) struct Sink {
    pub(crate) bytes: Vec<u8>,
    /// Bytes beyond the bound.
    pub(crate) lost: usize,
    bound: usize,
    over: Over,
}

/// What happens beyond the bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Over {
    /// The call ends: half an answer is no answer.
    Fail,
    /// The rest is counted and dropped.
    Cut,
}

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("the output is longer than its limit")]
pub(crate) struct TooLong;

impl Sink {
    pub(crate) fn new(bound: u64, over: Over) -> Self {
        Self { bytes: Vec::new(), lost: 0, bound: usize::try_from(bound).unwrap_or(usize::MAX), over }
    }

    pub(crate) fn push(&mut self, bytes: &[u8]) -> Result<(), TooLong> {
        let room = self.bound.saturating_sub(self.bytes.len());
        let (kept, lost) = bytes.split_at(room.min(bytes.len()));
        self.bytes.extend_from_slice(kept);
        self.lost = self.lost.saturating_add(lost.len());
        if lost.is_empty() || self.over == Over::Cut { Ok(()) } else { Err(TooLong) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn up_to_the_bound_everything_is_kept() {
        let mut sink = Sink::new(4, Over::Fail);
        assert_eq!((sink.push(b"ab"), sink.push(b"cd"), sink.push(b"")), (Ok(()), Ok(()), Ok(())));
        assert_eq!(sink.push(b"e"), Err(TooLong));
        assert_eq!((sink.bytes.as_slice(), sink.lost), (b"abcd".as_slice(), 1));
    }

    #[test]
    fn what_is_cut_is_counted() {
        let mut sink = Sink::new(3, Over::Cut);
        assert_eq!((sink.push(b"abcdef"), sink.push(b"gh")), (Ok(()), Ok(())));
        assert_eq!((sink.bytes.as_slice(), sink.lost), (b"abc".as_slice(), 5));
    }
}
