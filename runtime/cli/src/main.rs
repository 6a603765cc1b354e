//! The binary: parse, log, run, exit code; or one compilation for the server that started it.

use std::io::IsTerminal;
use std::process::ExitCode;

use metahook::diff::Compared;
use metahook::{Cli, Command, Serve, has_colours};
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

fn main() -> ExitCode {
    // First of all: a compiler needs nothing of the rest, and is waited for.
    metahook_server::compile(std::env::args_os()).unwrap_or_else(server)
}

#[tokio::main]
async fn server() -> ExitCode {
    let (out, say) = (std::io::stdout(), std::io::stderr());
    let (terminal, colours) = (out.is_terminal(), has_colours(&out));
    let ended = match Cli::read(std::env::args_os()).command {
        Command::Serve(serve) => run(*serve).await.map_err(failure),
        Command::Rbac(rbac) => Box::pin(rbac.run(out, say)).await.map_err(failure),
        Command::Crds(crds) => crds.run(out, say).await.map_err(failure),
        Command::Status(status) => Box::pin(status.run(out, say, terminal)).await.map_err(failure),
        Command::History(history) => history.run(out).await.map_err(failure),
        Command::Rollback(rollback) => rollback.run(out).await.map_err(failure),
        Command::Explain(explain) => Box::pin(explain.run(out, say)).await.map_err(failure),
        Command::Dashboard(dashboard) => Box::pin(dashboard.run(out, terminal)).await.map_err(failure),
        Command::Pause(pause) => pause.run(true, out).await.map_err(failure),
        Command::Resume(pause) => pause.run(false, out).await.map_err(failure),
        Command::Pack(pack) => pack.run(out, say).await.map_err(failure),
        Command::Run(run) => {
            run.run(out, say, terminal).await.map_err(|error| (error.exit_code(), error.into()))
        }
        Command::CompileRunners(runners) => runners.run(out).await.map_err(failure),
        Command::Completions(completions) => completions.run(out).map_err(failure),
        Command::Schema(schema) => schema.run(out).map_err(|error| (error.exit_code(), error.into())),
        Command::Man(man) => man.run(out).map_err(|error| (error.exit_code(), error.into())),
        Command::New(new) => new.run(out).map_err(|error| (2, error.into())),
        Command::Check(check) => check.run(out, say).await.map_err(|error| (error.exit_code(), error.into())),
        Command::Test(test) => {
            test.run(out, say, colours).await.map_err(|error| (error.exit_code(), error.into()))
        }
        Command::Apply(apply) => apply.run(out).await.map_err(|error| (error.exit_code(), error.into())),
        Command::Delete(delete) => delete.run(out).await.map_err(|error| (error.exit_code(), error.into())),
        Command::Record(record) => Box::pin(record.run(out, say)).await.map_err(failure),
        Command::Diff(diff) => return compared(Box::pin(diff.run(out, say, colours)).await),
        Command::Replay(replay) => return compared(Box::pin(replay.run(out, say, colours)).await),
        Command::Dev(dev) => {
            // Its server makes it by far the largest.
            Box::pin(dev.run(out)).await.map_err(|error| (error.exit_code(), error.into()))
        }
        Command::Render(render) => {
            render.run(out, say, colours).await.map_err(|error| (error.exit_code(), error.into()))
        }
    };
    end(ended)
}

/// Objects or answers were compared: those that differ are no failure.
fn compared(ended: Result<Compared, impl Into<anyhow::Error>>) -> ExitCode {
    match ended {
        Ok(Compared::Same) => ExitCode::SUCCESS,
        Ok(Compared::Differ) => ExitCode::from(1),
        Err(error) => end(Err((2, error.into()))),
    }
}

/// Prints the error of a command, if there is one.
fn end(ended: Result<(), (u8, anyhow::Error)>) -> ExitCode {
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        // The reader of a pipe has closed it: what was printed was enough.
        Err((_, error)) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err((code, error)) => {
            #[expect(
                clippy::print_stderr,
                reason = "the last words of a program that ends, also before logging is set up"
            )]
            {
                eprintln!("metahook: {error:#}");
            }
            ExitCode::from(code)
        }
    }
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        cause.downcast_ref::<std::io::Error>().is_some_and(|it| it.kind() == std::io::ErrorKind::BrokenPipe)
    })
}

fn failure(error: impl Into<anyhow::Error>) -> (u8, anyhow::Error) {
    (1, error.into())
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
        served = metahook_server::server::serve(settings, stop.clone()) => Ok(served?),
        () = signals => anyhow::bail!("stopped at once by a second signal"),
    }
}
