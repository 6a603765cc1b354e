//! What a release is built for.

use anyhow::{Result, bail};

/// A processor's architecture, by the name that images and downloads have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Architecture {
    Amd64,
    Arm64,
}

impl Architecture {
    pub const ALL: [Self; 2] = [Self::Amd64, Self::Arm64];

    /// That of the running program.
    pub fn of_host() -> Result<Self> {
        match std::env::consts::ARCH {
            "x86_64" => Ok(Self::Amd64),
            "aarch64" => Ok(Self::Arm64),
            other => bail!("images are made for x86_64 and aarch64, and this machine is {other}"),
        }
    }

    pub fn name(self) -> &'static str {
        match self {
            Self::Amd64 => "amd64",
            Self::Arm64 => "arm64",
        }
    }

    /// As Rust's targets, GNU's programs and Linux name it.
    pub fn machine(self) -> &'static str {
        match self {
            Self::Amd64 => "x86_64",
            Self::Arm64 => "aarch64",
        }
    }

    /// Rust's target: glibc, which is linked statically.
    pub fn target(self) -> String {
        format!("{}-unknown-linux-gnu", self.machine())
    }
}
