//! Stories of `cargo xtask demo`, one for each guest that users begin with.

use clap::ValueEnum;

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Story {
    /// The tutorial: a Pod that prints a greeting
    Hello,
    /// The tutorial with its own hook in Python, unchanged
    HelloPython,
    /// The tutorial with a hook in JavaScript
    HelloJs,
    /// A container that comes back when its Pod is deleted or has ended
    Immortal,
    /// Pods that are restarted when the ConfigMap that they read changes
    ConfigRestart,
}

impl Story {
    /// The name of its guest.
    pub fn name(self) -> &'static str {
        match self {
            Self::Hello => "hello",
            Self::HelloPython => "hello-python",
            Self::HelloJs => "hello-js",
            Self::Immortal => "immortal",
            Self::ConfigRestart => "config-restart",
        }
    }
}
