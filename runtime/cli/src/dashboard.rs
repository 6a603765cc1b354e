//! `metahook dashboard`.

use std::io::{self, Write};
use std::net::Ipv4Addr;
use std::process::Stdio;

use clap::Args;
use metahook_author::dashboard::{AccessKey, Dashboard};
use metahook_server::cluster::api_client::ConnectError;
use metahook_server::cluster::cluster_name::ClusterName;
use tokio::net::TcpListener;
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
    #[error("the cluster has no name")]
    Cluster(#[from] ConnectError),
    #[error(
        "--port: {0} of 127.0.0.1 cannot be listened on: choose another, or leave out --port for any that is free"
    )]
    Listen(u16, #[source] io::Error),
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
        let cluster = ClusterName::of(inspector.kubeconfig.as_deref(), inspector.context.as_deref()).await?;
        let listener = listen(self.port).await?;
        let key = AccessKey::new(listener.local_addr()?.port())?;
        let address = key.address();
        writeln!(
            out,
            "{address}\nThe command serves the pages until Ctrl-C, to the browser that opens this address first."
        )?;
        out.flush()?;
        if opens && !self.no_open {
            open(&address);
        }
        let dashboard = Dashboard::new(inspector, cluster, key);
        until_signal(async {
            dashboard.serve(listener, CancellationToken::new()).await;
            Ok(())
        })
        .await
    }
}

async fn listen(port: u16) -> Result<TcpListener, DashboardError> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await;
    listener.map_err(|error| DashboardError::Listen(port, error))
}

/// Opens a browser. Where there is none, the address was printed.
fn open(address: &str) {
    let program = if cfg!(target_os = "macos") { "open" } else { "xdg-open" };
    let mut command = tokio::process::Command::new(program);
    command.arg(address).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    drop(command.spawn());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_port_in_use_leads_to_one_that_is_free() {
        let first = listen(0).await.unwrap();
        let port = first.local_addr().unwrap().port();
        let error = listen(port).await.unwrap_err().to_string();
        assert!(
            error.starts_with(&format!("--port: {port} ")) && error.contains("leave out --port"),
            "{error}"
        );
    }
}
