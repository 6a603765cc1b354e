//! `metahook run`: one call of a module with a request out of a file; its answer, and what the call used.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use clap::Args;
use clap::builder::{OsStringValueParser, TypedValueParser};
use metahook_core::api::hook::HookName;
use metahook_core::api::policy::Limits;
use metahook_core::api::units::print_bytes;
use serde_json::{Value, json};

use crate::author_flags::{LimitFlags, LimitsError, MountError, MountFlag, RunnerFlags, hook_name, mount};
use crate::first_lines::first_and_last_lines;
use metahook_author::call::{AnswerRefused, ObjectError, RequestOf, check_request};
use metahook_author::documents::{self, Document, DocumentError, read_one_as_json};
use metahook_author::hook_modules::HookFile;
use metahook_author::progress::Progress;
use metahook_author::request_kinds::{hook_of, with_kinds};
use metahook_author::sandbox::{Input, LoadError, Sandbox};
use metahook_author::yaml;
use metahook_server::hook::wasm::run::{Module, Seed};
use metahook_server::hook::wasm::source::LoadedModule;
use metahook_server::hook::{CallResult, HookCallError, LoadedHook};
use metahook_server::telemetry::{error_chain, escape};

#[derive(Debug, Args)]
pub struct Run {
    /// The file of the module, as the compiler made it or as it is stored, or of the script.
    #[arg(value_parser = OsStringValueParser::new().map(PathBuf::from))]
    pub module: PathBuf,
    /// The request, JSON or YAML; `-` is stdin.
    #[arg(long, value_name = "FILE", value_parser = OsStringValueParser::new().map(PathBuf::from))]
    pub request: PathBuf,
    /// A file with the controller and its CustomResourceDefinitions, or a folder with such files; several times for several: kinds of children that the request leaves out are shown without objects, as a server does. When absent controller.yaml and crd.yaml beside the request, or else beside the module.
    #[arg(short = 'f', long = "file", value_name = "FILE", value_parser = OsStringValueParser::new().map(PathBuf::from))]
    pub file: Vec<PathBuf>,
    /// The hook that is called: sync, finalize or customize; when absent the one that the request is for.
    #[arg(long, value_name = "HOOK", value_parser = hook_name)]
    pub hook: Option<HookName>,
    /// A folder that the hook may read, for example `/etc/greeting=./greeting`; several times for several.
    #[arg(long, value_name = "PATH=FOLDER", value_parser = mount)]
    pub mount: Vec<MountFlag>,
    #[command(flatten)]
    pub runners: RunnerFlags,
    /// Format of stdout: the answer alone, or JSON or YAML with the answer and what the call used.
    #[arg(long, value_name = "FORMAT", value_enum, default_value_t = Output::Answer)]
    pub output: Output,
    #[command(flatten)]
    pub limits: LimitFlags,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Output {
    Answer,
    Json,
    Yaml,
}

#[derive(Debug, thiserror::Error)]
pub enum RunError {
    #[error("--request")]
    Request(#[source] DocumentError),
    #[error("-f")]
    File(#[source] DocumentError),
    #[error("--request {}: a request is a JSON object, and this is {found}", file.display())]
    NoObject { file: PathBuf, found: &'static str },
    #[error("--request {}: {why}, or use `metahook render -f {}`", file.display(), file.display())]
    Object { file: PathBuf, why: ObjectError },
    #[error(transparent)]
    Load(#[from] LoadError),
    #[error(transparent)]
    Limits(#[from] LimitsError),
    #[error(transparent)]
    Mount(#[from] MountError),
    #[error("the {0} hook")]
    Call(HookName, #[source] HookCallError),
    #[error("the {0} hook")]
    Answer(HookName, #[source] AnswerRefused),
    #[error("cannot print")]
    Print(#[from] io::Error),
}

impl RunError {
    /// 1: the hook failed, or the server would not take the module or the answer. 2: the hook was not called.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Load(error) if error.is_refusal() => 1,
            Self::Call(..) | Self::Answer(..) => 1,
            Self::Request(_)
            | Self::File(_)
            | Self::NoObject { .. }
            | Self::Object { .. }
            | Self::Load(_)
            | Self::Limits(_)
            | Self::Mount(_)
            | Self::Print(_) => 2,
        }
    }
}

/// Everything about one call that is printed.
struct Report<'a> {
    hook: HookName,
    module: &'a Module,
    limits: Limits,
    called: &'a CallResult,
    error: Option<String>,
}

impl Run {
    /// The documents of the files that the flags name; else those of the usual names, where they can be read.
    fn documents(&self, mut say: impl Write) -> Result<Vec<Document>, RunError> {
        if !self.file.is_empty() {
            return documents::read_all(&self.file).map_err(RunError::File);
        }
        let folders = [&self.request, &self.module].map(|path| path.parent().unwrap_or(Path::new("")));
        let folder = folders.into_iter().find(|folder| folder.join("controller.yaml").is_file());
        let usual = folder
            .into_iter()
            .flat_map(|folder| ["controller.yaml", "crd.yaml"].map(|name| folder.join(name)));
        let usual: Vec<_> = usual.filter(|path| path.is_file()).collect();
        match documents::read_all(&usual) {
            Ok(documents) => Ok(documents),
            Err(error) => {
                let why = error_chain(&error);
                writeln!(say, "{}: kinds that the request leaves out are not filled in", escape(&why))?;
                Ok(Vec::new())
            }
        }
    }

    /// Where no flag names the controller, it may be another one than the request is about, or unfinished.
    fn limits(
        &self,
        file: &HookFile,
        documents: &[Document],
        hook: HookName,
        mut say: impl Write,
    ) -> Result<Limits, RunError> {
        match self.limits.limits(file, documents, hook) {
            Err(LimitsError::Controller(error)) if self.file.is_empty() => {
                let why = error_chain(&error);
                writeln!(say, "{}: the limits are the server's defaults", escape(&why))?;
                Ok(self.limits.limits(file, &[], hook)?)
            }
            limits => Ok(limits?),
        }
    }

    /// The answer goes to `out`, laid out where that is a `terminal`; remarks go to `say`.
    pub async fn run(
        &self,
        mut out: impl Write,
        mut say: impl Write,
        terminal: bool,
    ) -> Result<(), RunError> {
        let mounts = self.mount.iter().map(MountFlag::read).collect::<Result<Vec<_>, _>>()?;
        let (text, value) = read_one_as_json(&self.request).map_err(RunError::Request)?;
        if !value.is_object() {
            let (file, found) = (self.request.clone(), metahook_core::json::type_of(&value));
            return Err(RunError::NoObject { file, found });
        }
        check_request(&value).map_err(|why| RunError::Object { file: self.request.clone(), why })?;
        let documents = self.documents(&mut say)?;
        let hook = self.hook.unwrap_or_else(|| hook_of(&documents, &value));
        let request = RequestOf::new(&value, Some(hook));
        let file = HookFile::named(self.module.clone(), &documents);
        let limits = self.limits(&file, &documents, request.hook, &mut say)?;
        let (text, _) = with_kinds(&documents, request.hook, text, value);
        let sandbox = Sandbox::new(self.runners.module_settings())?;
        let progress = Progress::of_stderr();
        let step = progress.step(format!("compiling {}", self.module.display()));
        let module = sandbox.load(&file).await?;
        drop(step);
        let controller = Some(&*request.controller).filter(|name| !name.is_empty()).unwrap_or("metahook");
        let loaded = LoadedModule::of_files(Arc::clone(&module), mounts);
        let (now, seed) = (SystemTime::now(), Seed::default());
        let input = Input { controller, hook, request: text.into(), now, seed };
        let step = progress.step(format!("calling the {hook} hook"));
        let called = sandbox.call(&LoadedHook::Wasm { loaded, limits }, input).await;
        drop(step);
        let failed = match &called.answer {
            Err(error) => Some(RunError::Call(hook, error.clone())),
            Ok(answer) => request.check(answer).err().map(|refused| RunError::Answer(hook, refused)),
        };
        let error = failed.as_ref().map(|error| error_chain(error));
        let report = Report { hook, module: &module, limits, called: &called, error };
        match self.output {
            Output::Json => writeln!(out, "{:#}", report.json())?,
            Output::Yaml => write!(out, "{}", yaml::print(&report.json()))?,
            Output::Answer => {
                report.print(&mut say)?;
                let answer = called.answer.as_deref().unwrap_or_default();
                match serde_json::from_slice::<Value>(answer) {
                    Ok(answer) if terminal => writeln!(out, "{answer:#}")?,
                    // What is no JSON may command a terminal.
                    Err(_) if terminal => write!(out, "{}", escaped_lines(&String::from_utf8_lossy(answer)))?,
                    Ok(_) | Err(_) => out.write_all(answer)?,
                }
            }
        }
        failed.map_or(Ok(()), Err)
    }
}

impl Report<'_> {
    fn print(&self, say: &mut impl Write) -> io::Result<()> {
        let (called, limits) = (self.called, &self.limits);
        let usage = called.usage.unwrap_or_default();
        let log = first_and_last_lines(&called.log.text, "--output json prints all");
        write!(say, "{}", escaped_lines(&log))?;
        if called.log.lost > 0 {
            writeln!(say, "({} more bytes on stderr were cut: limits.log)", called.log.lost)?;
        }
        let compiled =
            self.compile_time().map(|time| format!(", after compiling for {}", milliseconds(time)));
        let (hook, took) = (self.hook, milliseconds(called.took));
        writeln!(say, "{hook} hook: {took}{}", compiled.unwrap_or_default())?;
        writeln!(say, "instructions: {} of {}", usage.instructions, limits.instructions)?;
        writeln!(say, "memory: {} of {}", print_bytes(usage.memory), print_bytes(limits.memory))?;
        if let Ok(answer) = &called.answer {
            writeln!(say, "answer: {} bytes of {}", answer.len(), print_bytes(limits.output))?;
        }
        let pure = if called.pure == Some(true) {
            "yes: the answer follows from the request, so the server does not call again until something changes"
        } else {
            "no: the hook reads the time, so the server calls it whenever the parent is triggered"
        };
        writeln!(say, "pure: {pure}")
    }

    fn json(&self) -> Value {
        let called = self.called;
        let usage = called.usage.unwrap_or_default();
        let answer = called.answer.as_ref().ok();
        json!({
            "hook": self.hook.as_str(),
            "module": self.module.digest.to_string(),
            "answer": answer.and_then(|answer| serde_json::from_slice::<Value>(answer).ok()),
            "error": self.error,
            "seconds": called.took.as_secs_f64(),
            "compileSeconds": self.compile_time().map(|time| time.as_secs_f64()),
            "instructions": usage.instructions,
            "memory": usage.memory,
            "pure": called.pure,
            "log": called.log.text,
            "logBytesCut": called.log.lost,
        })
    }

    fn compile_time(&self) -> Option<Duration> {
        self.module.origin.compile_time()
    }
}

fn milliseconds(time: Duration) -> String {
    format!("{:.3} ms", time.as_secs_f64() * 1000.0)
}

/// Lines that command no terminal, each with its end.
fn escaped_lines(text: &str) -> String {
    let lines = text.lines().flat_map(|line| [escape(line), "\n".into()]);
    lines.collect::<Vec<_>>().concat()
}
