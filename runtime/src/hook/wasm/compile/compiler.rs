//! Compiler: runs in a process of its own, since only that can be stopped at a bound of time or memory.
//! See <https://github.com/bytecodealliance/wasmtime/issues/4291>.
//!
//! The process is this program, called with `compile`. It reads a module from stdin, writes machine code to stdout, and gives
//! up most rights first.

use std::ffi::OsString;
use std::fmt::Display;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{ExitCode, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};

use metahook_core::hook::last_words::last_words;
use metahook_core::shorten;
use rustix::process::{
    Resource, Rlimit, Signal, getrlimit, nice, set_parent_process_death_signal, setrlimit,
};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStdout, Command};
use tokio::sync::Semaphore;
use tokio::time::Instant;
use wasmtime::Engine;

use super::outline::WasmKind;
use super::{CodeTarget, ModuleBounds, ModuleError, ModuleSettings, Unpacked, check, engine_config};

/// Bytes of compiled code: a module of 100 KB makes half a megabyte.
pub(super) const MAX_ARTIFACT: u64 = 256 << 20;

/// Bytes of the compiler's stderr.
const MAX_ERROR: usize = 1024;

/// Threads of one compiler.
const THREADS: u64 = 2;

/// Bytes of a compiler's output that are written at once.
const PIECE: usize = 256 << 10;

/// The command of this program that compiles; the memory in bytes, the processor time in seconds and the target follow.
const COMMAND: &str = "compile";

/// A compiler that waits so many times longer than its processor time hangs, or the machine does.
const MAX_WAIT: u32 = 20;

/// The exit code for a refused module, with the reason on stderr.
const REFUSED: u8 = 3;

/// Lower priority than the calls of hooks.
const NICENESS: i32 = 5;

/// A starter of compilers, so many at once.
pub(super) struct Compiler {
    program: PathBuf,
    turns: Semaphore,
    /// Compilers started so far.
    pub(super) started: AtomicU64,
}

/// A module on its way to a compiler.
pub(super) enum Source {
    /// In a file that is read from its present place on.
    Disk(File),
    Memory(Unpacked),
}

impl Compiler {
    pub(super) fn new(settings: &ModuleSettings) -> Self {
        Self {
            program: settings.compiler.clone(),
            turns: Semaphore::new(settings.compilations.max(1)),
            started: AtomicU64::new(0),
        }
    }

    /// Compiles a module that has been inspected, when it is its turn. Also returns when that was.
    ///
    /// *Guarantees*: from then on it ends within [`MAX_WAIT`] times the bound of processor time, and so does the compiler;
    /// dropped before, it ends the compiler.
    pub(super) async fn compile(
        &self,
        module: Source,
        bounds: &ModuleBounds,
        target: CodeTarget,
        output: File,
    ) -> Result<(File, Instant), ModuleError> {
        // The semaphore is never closed.
        let _turn = self.turns.acquire().await;
        let start = Instant::now();
        let (stdin, module) = match module {
            Source::Disk(file) => (Stdio::from(file), None),
            Source::Memory(module) => (Stdio::piped(), Some(module)),
        };
        let mut child =
            self.spawn(bounds, target, stdin).map_err(|error| ModuleError::NoCompiler(error.to_string()))?;
        self.started.fetch_add(1, Ordering::Relaxed);
        let time = bounds.compile_time;
        let exchange =
            tokio::time::timeout(time.saturating_mul(MAX_WAIT), exchange(&mut child, module, output)).await;
        let ended = exchange.unwrap_or(Err(ModuleError::CompileTime(time)));
        if ended.is_err() {
            // It may still run. If it cannot be killed, it has ended already.
            child.kill().await.unwrap_or_default();
        }
        let (status, output, stderr) = ended?;
        if status.success() { Ok((output, start)) } else { Err(explain(status, &stderr, bounds)) }
    }

    fn spawn(&self, bounds: &ModuleBounds, target: CodeTarget, stdin: Stdio) -> io::Result<Child> {
        // The kernel counts whole seconds.
        let processor = bounds.compile_time.as_secs_f64().ceil().max(1.0);
        Command::new(&self.program)
            .arg(COMMAND)
            .arg(bounds.compile_memory.to_string())
            .arg(processor.to_string())
            .arg(target.as_str())
            .env_clear()
            // On a large machine one per core would not fit into its address space.
            .env("RAYON_NUM_THREADS", THREADS.to_string())
            .stdin(stdin)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
    }
}

/// Writes and reads at the same time, or both processes would wait for each other at a full pipe.
async fn exchange(
    child: &mut Child,
    module: Option<Unpacked>,
    output: File,
) -> Result<(ExitStatus, File, String), ModuleError> {
    let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let feed = async move {
        if let (Some(mut stdin), Some(module)) = (stdin, &module) {
            // A compiler that does not read has ended, and its status says why.
            stdin.write_all(&module.bytes).await.unwrap_or_default();
        }
        drop(module);
    };
    let ((), artifact, stderr) = tokio::join!(feed, keep(stdout, output), read(stderr, MAX_ERROR as u64));
    let (artifact, size) = artifact.map_err(|error| ModuleError::Code(error.to_string()))?;
    if size > MAX_ARTIFACT {
        return Err(ModuleError::Artifact(MAX_ARTIFACT));
    }
    let status = child.wait().await.map_err(|error| ModuleError::Compiler(error.to_string()))?;
    Ok((status, artifact, String::from_utf8_lossy(&stderr).into_owned()))
}

/// Writes what a compiler puts out into a file, up to one byte beyond the bound; gives back how much that is.
async fn keep(stdout: Option<ChildStdout>, output: File) -> io::Result<(File, u64)> {
    let mut output = tokio::fs::File::from_std(output);
    let mut size = 0;
    if let Some(stdout) = stdout {
        let mut pieces = BufReader::with_capacity(PIECE, stdout.take(MAX_ARTIFACT + 1));
        size = tokio::io::copy_buf(&mut pieces, &mut output).await?;
    }
    output.flush().await?;
    Ok((output.into_std().await, size))
}

/// The bytes of a pipe up to a bound, or to an error.
async fn read(pipe: Option<impl AsyncRead + Unpin>, max: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    if let Some(pipe) = pipe {
        pipe.take(max).read_to_end(&mut bytes).await.unwrap_or_default();
    }
    bytes
}

/// The error of a compiler that ended without an artifact.
fn explain(status: ExitStatus, stderr: &str, bounds: &ModuleBounds) -> ModuleError {
    /// Messages of Rust, wasmtime and the kernel when memory is refused.
    const NO_MEMORY: [&str; 4] = [
        "memory allocation of",
        "out of memory",
        "Cannot allocate memory",
        "Resource temporarily unavailable",
    ];
    // Some allocations of wasmtime's compiler end the process, and others are errors of the module.
    if NO_MEMORY.iter().any(|words| stderr.contains(words)) {
        return ModuleError::CompileMemory(bounds.compile_memory);
    }
    if status.code() == Some(REFUSED.into()) {
        return ModuleError::Refused(shorten(stderr, MAX_ERROR / 2));
    }
    if status.signal() == Some(Signal::XCPU.as_raw()) {
        return ModuleError::CompileTime(bounds.compile_time);
    }
    ModuleError::Compiler(format!("{status}{}", last_words(stderr)))
}

/// Compiles, if that is what the arguments ask for.
pub fn compile(arguments: impl IntoIterator<Item = OsString>) -> Option<ExitCode> {
    let mut arguments = arguments.into_iter().skip(1);
    if arguments.next().is_none_or(|command| command != COMMAND) {
        return None;
    }
    let mut number = || arguments.next()?.to_str()?.parse::<u64>().ok();
    let (memory, processor) = (number(), number());
    let target = arguments.next().and_then(|target| CodeTarget::parse(target.to_str()?));
    let compiled = match (memory, processor, target) {
        (Some(memory), Some(processor), Some(target)) => {
            limit(memory, processor).map_err(broken).and_then(|()| run(target))
        }
        _ => Err(broken("only the server itself calls this command")),
    };
    let Err((text, code)) = compiled else { return Some(ExitCode::SUCCESS) };
    // Where stderr is closed, the exit code has to do.
    io::stderr().write_all(text.as_bytes()).unwrap_or_default();
    Some(code)
}

/// The last words of a process, and its exit code.
type Failed = (String, ExitCode);

fn refused(why: impl Display) -> Failed {
    (format!("{why:#}"), ExitCode::from(REFUSED))
}

fn broken(why: impl Display) -> Failed {
    (format!("{why:#}"), ExitCode::FAILURE)
}

fn run(target: CodeTarget) -> Result<(), Failed> {
    let mut module = Vec::new();
    io::stdin().lock().read_to_end(&mut module).map_err(broken)?;
    check::validate(&module).map_err(refused)?;
    let kind = WasmKind::of(&module);
    let engine = Engine::new(&engine_config(kind, target)).map_err(broken)?;
    let artifact = match kind {
        WasmKind::Module => engine.precompile_module(&module),
        WasmKind::Component => engine.precompile_component(&module),
    };
    let artifact = artifact.map_err(refused)?;
    io::stdout().lock().write_all(&artifact).map_err(broken)
}

/// Gives up the rights that compiling does not need: memory, time, files, the working directory, a longer life than the
/// server's.
fn limit(memory: u64, processor: u64) -> io::Result<()> {
    set_parent_process_death_signal(Some(Signal::KILL))?;
    std::env::set_current_dir("/")?;
    nice(NICENESS)?;
    for (resource, max, more) in [
        (Resource::As, memory, 0),
        // At the lower one comes a signal of its own.
        (Resource::Cpu, processor, 1),
        (Resource::Core, 0, 0),
        (Resource::Fsize, 0, 0),
        // Stdin, stdout and stderr, which are open.
        (Resource::Nofile, 3, 0),
    ] {
        let maximum = getrlimit(resource).maximum.unwrap_or(u64::MAX).min(max.saturating_add(more));
        setrlimit(resource, Rlimit { current: Some(max.min(maximum)), maximum: Some(maximum) })?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUNDS: ModuleBounds = ModuleBounds {
        packed: 0,
        size: 0,
        functions: 0,
        compile_time: std::time::Duration::from_secs(7),
        compile_memory: 1 << 20,
        code: 1 << 20,
    };

    fn exited(code: i32) -> ExitStatus {
        ExitStatus::from_raw(code << 8)
    }

    fn killed(signal: i32) -> ExitStatus {
        ExitStatus::from_raw(signal)
    }

    #[test]
    fn an_end_without_an_artifact_is_explained() {
        let explain = |status, stderr| explain(status, stderr, &BOUNDS);
        assert_eq!(explain(exited(3), "it is odd"), ModuleError::Refused("it is odd".into()));
        for (status, stderr) in [
            (killed(6), "memory allocation of 8 bytes failed\n"),
            (exited(1), "Cannot allocate memory (os error 12)"),
            (exited(3), "out of memory (failed to allocate 30022 bytes)"),
        ] {
            assert_eq!(explain(status, stderr), ModuleError::CompileMemory(1 << 20));
        }
        assert_eq!(explain(killed(24), ""), ModuleError::CompileTime(BOUNDS.compile_time));
        assert_eq!(explain(killed(9), ""), ModuleError::Compiler("signal: 9 (SIGKILL)".into()));
        let hint = "note: run with `RUST_BACKTRACE=1` environment variable to display a backtrace";
        assert_eq!(
            explain(
                exited(101),
                &format!("thread 'main' panicked at x.rs:\nindex out of bounds\n{hint}\n\n")
            )
            .to_string(),
            "the compiler failed on this module: exit status: 101; last stderr output: thread 'main' panicked at x.rs: index out of bounds"
        );
    }

    #[tokio::test]
    async fn a_missing_compiler_is_an_error() {
        let compiler = Compiler::new(&ModuleSettings::new("/nowhere/at/all"));
        let source = Source::Memory(Vec::new().into());
        let error =
            compiler.compile(source, &BOUNDS, CodeTarget::Machine, tempfile::tempfile().unwrap()).await.err();
        assert_eq!(error, Some(ModuleError::NoCompiler("No such file or directory (os error 2)".into())));
        assert_eq!(compiler.started.into_inner(), 0);
    }
}
