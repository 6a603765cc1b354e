//! The binary: parse, log, run, exit code.

use std::process::ExitCode;

use clap::Parser;
use metahook::cli::{Cli, Command};
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

#[tokio::main]
async fn main() -> ExitCode {
    let Cli {
        command: Command::Serve(serve),
    } = Cli::parse();
    match run(serve).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            #[expect(
                clippy::print_stderr,
                reason = "the last words of a program that ends, also before logging is set up"
            )]
            {
                eprintln!("metahook: {error:#}");
            }
            ExitCode::FAILURE
        }
    }
}

async fn run(serve: metahook::cli::Serve) -> anyhow::Result<()> {
    metahook::start_log(&serve)?;
    let stop = CancellationToken::new();
    let (mut term, mut int) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let signalled = stop.clone();
    tokio::spawn(async move {
        tokio::select! {
            _ = term.recv() => {}
            _ = int.recv() => {}
        }
        tracing::info!("a signal: passes under way are ended, then the server stops");
        signalled.cancel();
    });
    Ok(metahook::server::serve(serve.settings(), stop).await?)
}
