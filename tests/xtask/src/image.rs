//! `cargo xtask image`: the server as one static binary in an OCI image, made without Docker.

use std::process::Command;

use anyhow::Result;
use binaries::architecture::Architecture;
use binaries::paths;

use crate::cargo::{self, build_programs};
use crate::{runners, static_server};

/// Leaves `target/image`, an OCI image layout, and the same as one file beside it.
pub(crate) fn build() -> Result<()> {
    eprintln!("building the server, optimized and static (some eight minutes the first time, on two cores)");
    let server = static_server::build(Architecture::of_host()?)?;
    runners::build_what_can_be()?;
    runners::compile(Command::new(&server), &paths::runners()?)?;
    build_programs(&["image"])?;
    let target = paths::target()?;
    cargo::exec(cargo::program("image")?.arg(server).arg(target.join("image")).arg(target.join("runners")))
}
