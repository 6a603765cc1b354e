//! `metahook dashboard`.

use std::io::{self, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::process::Stdio;

use clap::Args;
use metahook_author::dashboard::{Dashboard, Key};
use metahook_server::telemetry::http::{ListenError, bind};
use tokio_util::sync::CancellationToken;

use crate::cluster_flags::{InspectFlags, InspectorError};
use crate::until_signal::{SignalError, until_signal};

/// End of `--help`.
const EXAMPLES: &str = "Examples:\n  metahook dashboard              opens the pages in a browser, until Ctrl-C\n  metahook dashboard --no-open    prints their address alone";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct DashboardFlags {
    /// Port of this machine for the pages; any that is free when absent.
    #[arg(long, value_name = "PORT", default_value_t = 0)]
    pub port: u16,
    /// Print the address, and open no browser.
    #[arg(long)]
    pub no_open: bool,
    #[command(flatten)]
    pub inspect: InspectFlags,
}

#[derive(Debug, thiserror::Error)]
pub enum DashboardError {
    #[error(transparent)]
    Inspector(#[from] InspectorError),
    #[error(transparent)]
    Listen(#[from] ListenError),
    #[error("the system gives no random numbers")]
    Random(#[from] getrandom::Error),
    #[error(transparent)]
    Signal(#[from] SignalError),
    #[error("cannot print")]
    Print(#[from] io::Error),
}

impl DashboardFlags {
    /// Serves pages until Ctrl-C. `opens`: a person is there.
    pub async fn run(self, mut out: impl Write, opens: bool) -> Result<(), DashboardError> {
        let inspector = self.inspect.inspector().await?;
        let listener = bind("--port", SocketAddr::from((Ipv4Addr::LOCALHOST, self.port))).await?;
        let key = Key::new(listener.local_addr()?.port())?;
        let address = key.address();
        writeln!(
            out,
            "{address}\nThe command serves the pages until Ctrl-C, to browsers that open this address."
        )?;
        out.flush()?;
        if opens && !self.no_open {
            open(&address);
        }
        let namespace = inspector.api.default_namespace().to_owned();
        let dashboard = Dashboard::new(inspector, namespace, key);
        until_signal(async {
            dashboard.serve(listener, CancellationToken::new()).await;
            Ok(())
        })
        .await
    }
}

/// Opens a browser. Where there is none, the address was printed.
fn open(address: &str) {
    let program = if cfg!(target_os = "macos") { "open" } else { "xdg-open" };
    let mut command = tokio::process::Command::new(program);
    command.arg(address).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    drop(command.spawn());
}
