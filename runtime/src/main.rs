//! The binary: parse, log, run, exit code; or one compilation for the server that started it.

use std::process::ExitCode;

use metahook::cli::{Cli, Command, Serve};
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

fn main() -> ExitCode {
    // First of all: a compiler needs nothing of the rest, and is waited for.
    metahook::compile(std::env::args_os()).unwrap_or_else(server)
}

#[tokio::main]
async fn server() -> ExitCode {
    let ended = match Cli::read(std::env::args_os()).command {
        Command::Serve(serve) => run(*serve).await,
        Command::Rbac(rbac) => rbac.run(std::io::stdout(), std::io::stderr()).map_err(Into::into),
        Command::Crds(crds) => crds.run(std::io::stdout(), std::io::stderr()).await.map_err(Into::into),
        Command::Pack(pack) => pack.run(std::io::stdout(), std::io::stderr()).await.map_err(Into::into),
    };
    match ended {
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

async fn run(serve: Serve) -> anyhow::Result<()> {
    metahook::start_log(&serve)?;
    for warning in serve.metacontroller_flags.warnings() {
        tracing::warn!("{warning}");
    }
    let settings = serve.settings()?;
    let stop = CancellationToken::new();
    let (mut term, mut int) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let signals = async {
        for stopping in [false, true] {
            tokio::select! {
                _ = term.recv() => {}
                _ = int.recv() => {}
            }
            if !stopping {
                tracing::info!(
                    "a signal: reconciles under way end, then the server stops; a second one stops it at once"
                );
                stop.cancel();
            }
        }
    };
    tokio::select! {
        served = metahook::server::serve(settings, stop.clone()) => Ok(served?),
        () = signals => anyhow::bail!("stopped at once by a second signal"),
    }
}
