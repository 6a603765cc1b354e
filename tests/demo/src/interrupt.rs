//! Ctrl-C: looked at between two commands, so that none is cut off in the middle.

use std::sync::atomic::{AtomicU32, Ordering};

/// How often Ctrl-C was typed, and how often that means nothing.
#[derive(Debug, Default)]
pub(crate) struct Interrupt {
    heard: AtomicU32,
    ignored: AtomicU32,
}

impl Interrupt {
    /// Ctrl-C was typed; whether that interrupts.
    pub(crate) fn heard(&self) -> bool {
        self.heard.fetch_add(1, Ordering::Relaxed);
        self.is_set()
    }

    pub(crate) fn is_set(&self) -> bool {
        self.heard.load(Ordering::Relaxed) > self.ignored.load(Ordering::Relaxed)
    }

    /// Ignores the interrupts that were typed so far, and the next one.
    pub(crate) fn ignore_one(&self) {
        self.ignored.store(self.heard.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cleaning_up_is_interrupted_by_the_second_ctrl_c_only() {
        let interrupt = Interrupt::default();
        assert!(interrupt.heard());
        interrupt.ignore_one();
        assert_eq!([interrupt.is_set(), interrupt.heard(), interrupt.heard()], [false, false, true]);
    }
}
