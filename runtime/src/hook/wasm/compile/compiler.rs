//! Compiling in another process: nothing else stops a compiler that runs away.

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

/// Compiled code may be this large: a module of 100 KB makes half a megabyte.
pub(crate) const LARGEST_ARTIFACT: u64 = 256 << 20;

/// What the compiler says is cut to this many bytes.
const LONGEST: usize = 1024;

/// Threads of one compiler.
const THREADS: u64 = 2;

/// Starts compilers, so many at once.
pub(crate) struct Compiler {
    program: PathBuf,
    bounds: ModuleBounds,
    turns: Semaphore,
    started: AtomicU64,
}

/// The right to start one compiler.
pub(crate) struct Turn<'a> {
    compiler: &'a Compiler,
    _permit: Option<SemaphorePermit<'a>>,
}

impl Compiler {
    pub(crate) fn new(settings: &ModuleSettings) -> Self {
        Self {
            program: settings.compiler.clone(),
            bounds: settings.bounds,
            turns: Semaphore::new(settings.compilations.max(1)),
            started: AtomicU64::new(0),
        }
    }

    /// Compilers started so far.
    pub(crate) fn started(&self) -> u64 {
        self.started.load(Ordering::Relaxed)
    }

    pub(crate) async fn turn(&self) -> Turn<'_> {
        // An error would mean that the semaphore was closed, which it never is.
        Turn { compiler: self, _permit: self.turns.acquire().await.ok() }
    }
}

impl Turn<'_> {
    /// Compiles a module that has been inspected.
    ///
    /// *Guarantees*: it ends within the time bound, and the compiler with it; dropped before, it ends the compiler.
    pub(crate) async fn compile(&self, module: &[u8]) -> Result<Artifact, ModuleError> {
        let bounds = &self.compiler.bounds;
        let mut child = self.compiler.spawn().map_err(|error| ModuleError::NoCompiler(error.to_string()))?;
        self.compiler.started.fetch_add(1, Ordering::Relaxed);
        let spoken = tokio::time::timeout(bounds.compile_time, speak(&mut child, module)).await;
        let ended = match spoken {
            Ok(spoken) => spoken,
            Err(_elapsed) => Err(ModuleError::CompileTime(bounds.compile_time)),
        };
        if ended.is_err() {
            // It may still run. If it cannot be killed, it has gone already.
            child.kill().await.unwrap_or_default();
        }
        let Ended { status, artifact, said } = ended?;
        if status.success() { Ok(Artifact::compiled(artifact)) } else { Err(why(status, &said, bounds)) }
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
            // One per core would not fit into its address space on a large machine.
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
    said: String,
}

/// Feeds it and listens to it at once, or both would wait for each other at a full pipe.
async fn speak(child: &mut Child, module: &[u8]) -> Result<Ended, ModuleError> {
    let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let feed = async {
        if let Some(mut stdin) = stdin {
            // One that does not listen has ended, and its status says why.
            stdin.write_all(module).await.unwrap_or_default();
        }
    };
    let longest = u64::try_from(LONGEST).unwrap_or(u64::MAX);
    let ((), artifact, said) = tokio::join!(feed, hear(stdout, LARGEST_ARTIFACT + 1), hear(stderr, longest));
    if u64::try_from(artifact.len()).is_ok_and(|length| length > LARGEST_ARTIFACT) {
        return Err(ModuleError::Artifact(LARGEST_ARTIFACT));
    }
    let status = child.wait().await.map_err(|error| ModuleError::Compiler(error.to_string()))?;
    Ok(Ended { status, artifact, said: String::from_utf8_lossy(&said).into_owned() })
}

/// What comes out of a pipe, up to a bound; what cannot be read is missing, and found to be so.
async fn hear(pipe: Option<impl AsyncRead + Unpin>, most: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    if let Some(pipe) = pipe {
        pipe.take(most).read_to_end(&mut bytes).await.unwrap_or_default();
    }
    bytes
}

/// What an end without an artifact means.
fn why(status: ExitStatus, said: &str, bounds: &ModuleBounds) -> ModuleError {
    /// What Rust, wasmtime and the kernel say when memory is refused.
    const NO_MEMORY: [&str; 4] = [
        "memory allocation of",
        "out of memory",
        "Cannot allocate memory",
        "Resource temporarily unavailable",
    ];
    if status.code() == Some(REFUSED.into()) {
        return ModuleError::Refused(shorten(said, LONGEST / 2));
    }
    if NO_MEMORY.iter().any(|words| said.contains(words)) {
        return ModuleError::CompileMemory(bounds.compile_memory);
    }
    if status.signal() == Some(Signal::XCPU.as_raw()) {
        return ModuleError::CompileTime(bounds.compile_time);
    }
    let last = said.lines().rfind(|line| !line.trim().is_empty());
    let last = last.map(|line| format!("; its last words: {}", shorten(line, LONGEST / 4)));
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
    fn an_end_without_an_artifact_says_why() {
        let why = |status, said| why(status, said, &BOUNDS);
        assert_eq!(why(exited(3), "it is odd"), ModuleError::Refused("it is odd".into()));
        for (status, said) in [
            (killed(6), "memory allocation of 8 bytes failed\n"),
            (exited(1), "Cannot allocate memory (os error 12)"),
        ] {
            assert_eq!(why(status, said), ModuleError::CompileMemory(1 << 20));
        }
        assert_eq!(why(killed(24), ""), ModuleError::CompileTime(BOUNDS.compile_time));
        assert_eq!(why(killed(9), ""), ModuleError::Compiler("signal: 9 (SIGKILL)".into()));
        assert_eq!(
            why(exited(101), "thread 'main' panicked at x.rs\nindex out of bounds\n\n").to_string(),
            "the compiler failed on this module: exit status: 101; its last words: index out of bounds"
        );
    }

    #[tokio::test]
    async fn a_program_that_is_not_there_is_said() {
        let compiler = Compiler::new(&ModuleSettings::new("/nowhere/at/all"));
        let error = compiler.turn().await.compile(b"").await.err();
        assert_eq!(error, Some(ModuleError::NoCompiler("No such file or directory (os error 2)".into())));
        assert_eq!(compiler.started(), 0);
    }
}
