//! Compiler: runs in a process of its own, since only that can be stopped at a bound of time or memory.

use std::io;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};

use metahook_core::text::shorten;
use rustix::process::Signal;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::process::{Child, Command};
use tokio::sync::{Semaphore, SemaphorePermit};

use super::artifact::Artifact;
use super::module_error::ModuleError;
use super::process::{COMMAND, REFUSED};
use super::{ModuleBounds, ModuleSettings};

/// Bytes of compiled code: a module of 100 KB makes half a megabyte.
pub(super) const MAX_ARTIFACT: u64 = 256 << 20;

/// Bytes of the compiler's stderr.
const MAX_ERROR: usize = 1024;

/// Threads of one compiler.
const THREADS: u64 = 2;

/// A starter of compilers, so many at once.
pub(super) struct Compiler {
    program: PathBuf,
    bounds: ModuleBounds,
    turns: Semaphore,
    started: AtomicU64,
}

/// The right to start one compiler.
pub(super) struct Turn<'a> {
    compiler: &'a Compiler,
    _permit: Option<SemaphorePermit<'a>>,
}

impl Compiler {
    pub(super) fn new(settings: &ModuleSettings) -> Self {
        Self {
            program: settings.compiler.clone(),
            bounds: settings.bounds,
            turns: Semaphore::new(settings.compilations.max(1)),
            started: AtomicU64::new(0),
        }
    }

    /// Compilers started so far.
    pub(super) fn started(&self) -> u64 {
        self.started.load(Ordering::Relaxed)
    }

    pub(super) async fn turn(&self) -> Turn<'_> {
        // The semaphore is never closed.
        Turn { compiler: self, _permit: self.turns.acquire().await.ok() }
    }
}

impl Turn<'_> {
    /// Compiles a module that has been inspected.
    ///
    /// *Guarantees*: it ends within the time bound, and so does the compiler; dropped before, it ends the compiler.
    pub(super) async fn compile(&self, module: &[u8]) -> Result<Artifact, ModuleError> {
        let bounds = &self.compiler.bounds;
        let mut child = self.compiler.spawn().map_err(|error| ModuleError::NoCompiler(error.to_string()))?;
        self.compiler.started.fetch_add(1, Ordering::Relaxed);
        let exchange = tokio::time::timeout(bounds.compile_time, exchange(&mut child, module)).await;
        let ended = match exchange {
            Ok(ended) => ended,
            Err(_elapsed) => Err(ModuleError::CompileTime(bounds.compile_time)),
        };
        if ended.is_err() {
            // It may still run. If it cannot be killed, it has ended already.
            child.kill().await.unwrap_or_default();
        }
        let Ended { status, artifact, stderr } = ended?;
        if status.success() {
            Ok(Artifact::compiled(artifact))
        } else {
            Err(explain(status, &stderr, bounds))
        }
    }
}

impl Compiler {
    fn spawn(&self) -> io::Result<Child> {
        let processor = self.bounds.compile_time.as_secs().saturating_add(1).saturating_mul(THREADS);
        Command::new(&self.program)
            .arg(COMMAND)
            .arg(self.bounds.compile_memory.to_string())
            .arg(processor.to_string())
            .env_clear()
            // On a large machine one per core would not fit into its address space.
            .env("RAYON_NUM_THREADS", THREADS.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
    }
}

struct Ended {
    status: ExitStatus,
    artifact: Vec<u8>,
    stderr: String,
}

/// Writes and reads at the same time, or both processes would wait for each other at a full pipe.
async fn exchange(child: &mut Child, module: &[u8]) -> Result<Ended, ModuleError> {
    let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let feed = async {
        if let Some(mut stdin) = stdin {
            // A compiler that does not read has ended, and its status says why.
            stdin.write_all(module).await.unwrap_or_default();
        }
    };
    let ((), artifact, stderr) =
        tokio::join!(feed, read(stdout, MAX_ARTIFACT + 1), read(stderr, MAX_ERROR as u64));
    if artifact.len() as u64 > MAX_ARTIFACT {
        return Err(ModuleError::Artifact(MAX_ARTIFACT));
    }
    let status = child.wait().await.map_err(|error| ModuleError::Compiler(error.to_string()))?;
    Ok(Ended { status, artifact, stderr: String::from_utf8_lossy(&stderr).into_owned() })
}

/// The bytes of a pipe up to a bound, or to an error: an artifact that is cut is found to be so.
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
    if status.code() == Some(REFUSED.into()) {
        return ModuleError::Refused(shorten(stderr, MAX_ERROR / 2));
    }
    if NO_MEMORY.iter().any(|words| stderr.contains(words)) {
        return ModuleError::CompileMemory(bounds.compile_memory);
    }
    if status.signal() == Some(Signal::XCPU.as_raw()) {
        return ModuleError::CompileTime(bounds.compile_time);
    }
    let last = stderr.lines().rfind(|line| !line.trim().is_empty());
    let last = last.map(|line| format!("; its last words: {}", shorten(line, MAX_ERROR / 4)));
    ModuleError::Compiler(format!("{status}{}", last.unwrap_or_default()))
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
        ] {
            assert_eq!(explain(status, stderr), ModuleError::CompileMemory(1 << 20));
        }
        assert_eq!(explain(killed(24), ""), ModuleError::CompileTime(BOUNDS.compile_time));
        assert_eq!(explain(killed(9), ""), ModuleError::Compiler("signal: 9 (SIGKILL)".into()));
        assert_eq!(
            explain(exited(101), "thread 'main' panicked at x.rs\nindex out of bounds\n\n").to_string(),
            "the compiler failed on this module: exit status: 101; its last words: index out of bounds"
        );
    }

    #[tokio::test]
    async fn a_missing_compiler_is_an_error() {
        let compiler = Compiler::new(&ModuleSettings::new("/nowhere/at/all"));
        let error = compiler.turn().await.compile(b"").await.err();
        assert_eq!(error, Some(ModuleError::NoCompiler("No such file or directory (os error 2)".into())));
        assert_eq!(compiler.started(), 0);
    }
}
