//! `metahook dev`: one hook out of a file against a cluster, from its author's machine.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use clap::builder::{OsStringValueParser, TypedValueParser};
use clap::{Args, Parser};
use metahook_core::api::ControllerKind;
use metahook_core::hosting::{Session, label_value};
use serde_json::Value;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use super::{Cli, Command, FlagError, metacontroller_flags};
use metahook_author::build_command::build_command_of;
use metahook_author::dev::lines::Lines;
use metahook_author::dev::{DevSession, Left, SessionError};
use metahook_author::documents::{self, Document, DocumentError};
use metahook_author::hook_modules::{FoundFiles, HookFile, HookFileError, HookModules, kinds, places};
use metahook_author::pack::{StripError, check};
use metahook_author::render::setup::controller_kind;
use metahook_server::cluster::api_client::{ApiClient, ConnectError};
use metahook_server::cluster::transport::READ_TIMEOUT;
use metahook_server::controller::observer::{Observations, Observer};
use metahook_server::hook::wasm::source::unpack::is_compressed;
use metahook_server::server::{DevServer, ServeError, serve_dev};
use metahook_server::telemetry::{Format, LogError, start_log, timestamp};

#[derive(Debug, Args)]
pub struct Dev {
    /// A file with the controller, YAML or JSON. What else it holds is left alone.
    #[arg(short = 'f', long = "file", value_name = "FILE", value_parser = OsStringValueParser::new().map(PathBuf::from))]
    pub file: PathBuf,
    /// The file of the module or script of the controller's hooks: each new build of it takes the place of the one before. When absent the only module that Cargo built beside the controller's file, or the file beside it that has the name of the key.
    #[arg(long, value_name = "MODULE", value_parser = OsStringValueParser::new().map(PathBuf::from))]
    pub module: Option<PathBuf>,
    /// The session's name, the value of the label metahook.dev/dev; $USER and the host's name when absent.
    #[arg(long, value_name = "NAME", value_parser = session_name)]
    pub name: Option<String>,
    /// Kubeconfig of the API server; else $KUBECONFIG, or ~/.kube/config.
    #[arg(long, value_name = "FILE", value_parser = OsStringValueParser::new().map(PathBuf::from))]
    pub kubeconfig: Option<PathBuf>,
    /// The context of the kubeconfig; its current one when absent.
    #[arg(long, value_name = "CONTEXT")]
    pub context: Option<String>,
    /// Filter of the server's log on stderr.
    #[arg(long, value_name = "LEVEL", default_value = LOG_LEVEL)]
    pub log_level: String,
    /// Flags of `metahook serve`, after `--`, for example `-- --max-children 100`.
    #[arg(last = true, value_name = "FLAGS")]
    pub serve: Vec<OsString>,
}

/// Levels that leave out of the log the facts that the lines of reconciles show already.
const LOG_LEVEL: &str =
    "warn,hook=off,metahook_server::controller::reconcile=off,metahook_server::controller::runner=off";

#[derive(Debug, thiserror::Error)]
pub enum DevCommandError {
    #[error("-f")]
    Document(#[from] DocumentError),
    #[error("-f {0}: it holds no CompositeController and no DecoratorController")]
    NoController(String),
    #[error("-f: {0} and {1} are controllers, and a session has one: give a file with one of them")]
    Controllers(String, String),
    #[error("{0}: metadata.name is missing: name the controller")]
    NoName(String),
    #[error("--module: {}: build it first, for example with `{}`", path.display(), build_command_of(path))]
    NoModule { path: PathBuf, source: DocumentError },
    #[error("--module: {}", path.display())]
    NotWasm { path: PathBuf, source: StripError },
    #[error("--module: the script")]
    NoScript(#[source] DocumentError),
    #[error(
        "-f {}: beside it lies neither a module that Cargo built nor a file that has the name of the hook's key: build it, or name its file with --module",
        file.display()
    )]
    NoneFound { file: PathBuf },
    #[error(
        "-f {}: a hook's key is {key}, and no file of this name lies beside it: put it there, build it, or name the file of all hooks with --module",
        file.display()
    )]
    NoFile { file: PathBuf, key: String },
    #[error(
        "the controller's hooks are of several files, {}, and a session follows one for all hooks: name it with --module",
        files.join(" and ")
    )]
    Several { files: Vec<String> },
    #[error(
        "the controller has hooks of several kinds, as a module and a script, and a session follows one file for all of them: try them with `metahook render` and `metahook test`"
    )]
    Kinds,
    #[error(transparent)]
    HookFile(#[from] HookFileError),
    #[error("--name: neither $USER nor the host has a name: give one")]
    NoSessionName,
    #[error("--: {0}")]
    Flags(String),
    #[error("--: {0} has no meaning for a session: leave it out")]
    Flag(&'static str),
    #[error(transparent)]
    FlagValue(#[from] FlagError),
    #[error(transparent)]
    Log(#[from] LogError),
    #[error("no signals can be waited for")]
    Signal(#[source] io::Error),
    #[error("no cluster")]
    Connect(#[from] ConnectError),
    #[error(transparent)]
    Session(#[from] SessionError),
    #[error(transparent)]
    Serve(#[from] ServeError),
    #[error(
        "ended at once by a second signal: the controller and its finalizers are as they were. Start the same command again and end it by one Ctrl-C to clean up"
    )]
    AtOnce,
    #[error("ended by a signal before anything was written")]
    Interrupted,
    #[error("cannot print")]
    Print(#[from] io::Error),
}

impl DevCommandError {
    /// 1: the cluster. 2: the files or the flags.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Connect(_)
            | Self::Session(_)
            | Self::Serve(_)
            | Self::AtOnce
            | Self::Interrupted
            | Self::Signal(_) => 1,
            _ => 2,
        }
    }
}

impl Dev {
    /// The file that the session follows, of all hooks.
    fn module(&self, controller: &[Document]) -> Result<HookFile, DevCommandError> {
        if kinds(controller).len() > 1 {
            return Err(DevCommandError::Kinds);
        }
        if let Some(path) = &self.module {
            return Ok(HookFile::given(path.clone(), controller));
        }
        let beside = FoundFiles::beside(std::slice::from_ref(&self.file), controller);
        let modules = HookModules::of(None, controller, &beside)?;
        let missing = places(controller).map(|(place, _)| place).find(|it| modules.of_place(it).is_none());
        if let Some(place) = missing {
            let (file, key) = (self.file.clone(), place.key);
            return Err(DevCommandError::NoFile { file, key });
        }
        let paths: BTreeMap<_, _> = modules.all().map(|file| (&file.path, file)).collect();
        let mut files = paths.into_values();
        match (files.next(), files.next()) {
            (Some(only), None) => Ok(only.clone()),
            (None, _) => Err(DevCommandError::NoneFound { file: self.file.clone() }),
            (Some(first), Some(second)) => Err(DevCommandError::Several {
                files: [first, second].map(|file| file.path.display().to_string()).into(),
            }),
        }
    }

    /// Lines about reconciles go to `out`.
    pub async fn run(self, mut out: impl Write) -> Result<(), DevCommandError> {
        let (kind, document) = controller(&self.file)?;
        let name = document.value.pointer("/metadata/name").and_then(Value::as_str);
        let controller = name.ok_or_else(|| DevCommandError::NoName(document.place.to_string()))?.to_owned();
        let name = self.name.clone().or_else(default_name).ok_or(DevCommandError::NoSessionName)?;
        let mut settings = serve_flags(&self.serve)?.settings()?;
        settings.kubeconfig.clone_from(&self.kubeconfig);
        settings.context.clone_from(&self.context);
        let module = self.module(std::slice::from_ref(&document))?;
        is_hook_file(&module, settings.modules.bounds.size)?;
        start_log(Format::Text, &self.log_level)?;
        let (term, int) = (signal(SignalKind::terminate()), signal(SignalKind::interrupt()));
        let (mut term, mut int) =
            (term.map_err(DevCommandError::Signal)?, int.map_err(DevCommandError::Signal)?);
        let session = Session { name, kind, controller };
        let reach = (self.kubeconfig.as_deref(), self.context.as_deref());
        let connected = async {
            let api = ApiClient::connect_to(reach, settings.rate, READ_TIMEOUT).await?;
            api.is_reachable().await.map(|()| api)
        };
        let api = tokio::select! {
            api = connected => api?,
            _ = term.recv() => return Err(DevCommandError::Interrupted),
            _ = int.recv() => return Err(DevCommandError::Interrupted),
        };
        let begun = DevSession::begin(&api, session.clone(), &document.value).await?;
        let how = if begun.is_new { "applied" } else { "applied over the one that is there" };
        say(&mut out, &format!("session {}: {} {how}; Ctrl-C ends it", session.name, begun.id()))?;
        let (observer, mut events) = Observer::new();
        let dev = DevServer { session, module: module.path, observer };
        let (stop, mut lines) = (CancellationToken::new(), Lines::default());
        let mut served = std::pin::pin!(serve_dev(settings, dev, stop.clone()));
        let served = loop {
            tokio::select! {
                served = &mut served => break served,
                () = print(&mut events, &mut lines, &mut out) => {}
                _ = term.recv() => if stop.is_cancelled() { return Err(DevCommandError::AtOnce) } else { stop.cancel() },
                _ = int.recv() => if stop.is_cancelled() { return Err(DevCommandError::AtOnce) } else { stop.cancel() },
            }
        };
        let left = tokio::select! {
            left = begun.leave() => left?,
            _ = term.recv() => return Err(DevCommandError::AtOnce),
            _ = int.recv() => return Err(DevCommandError::AtOnce),
        };
        served?;
        say(&mut out, &farewell(&left, &begun.id().to_string()))?;
        Ok(())
    }
}

/// Prints what is observed next. A reader that went away is no reason to leave the cluster as it is: the session goes on.
async fn print(observed: &mut Observations, lines: &mut Lines, out: &mut impl Write) {
    let Some(event) = observed.events.recv().await else { return std::future::pending().await };
    let lost = observed.lost();
    if lost > 0 {
        drop(say(out, &not_shown(lost)));
    }
    if let Some(line) = lines.of(event) {
        drop(say(out, &line));
    }
}

fn not_shown(lost: usize) -> String {
    match lost {
        1 => "1 call, write or reconcile is not shown: it came too fast".to_owned(),
        lost => format!("{lost} calls, writes or reconciles are not shown: they came too fast"),
    }
}

fn say(out: &mut impl Write, line: &str) -> io::Result<()> {
    let now = timestamp();
    writeln!(out, "{} {line}", now.get(11..19).unwrap_or_default())?;
    out.flush()
}

fn farewell(left: &Left, controller: &str) -> String {
    let finalizers = |count: &usize| match count {
        0 => String::new(),
        1 => "; its finalizer was taken off 1 object".to_owned(),
        more => format!("; its finalizers were taken off {more} objects"),
    };
    match left {
        Left::Nothing => format!("{controller} is no longer the session's, and stays as it is"),
        Left::Deleted { finalizers: count } => {
            format!("{controller} deleted{}; children stay as long as their parents", finalizers(count))
        }
        Left::GivenBack { finalizers: count } => {
            format!("{controller} given back to the cluster's servers{}", finalizers(count))
        }
    }
}

/// The only controller of the file.
fn controller(file: &Path) -> Result<(ControllerKind, Document), DevCommandError> {
    let documents = documents::read(file)?;
    let all = documents.into_iter().filter_map(|document| Some((controller_kind(&document)?, document)));
    let mut all = all.collect::<Vec<_>>().into_iter();
    match (all.next(), all.next()) {
        (Some(first), None) => Ok(first),
        (Some((_, first)), Some((_, second))) => {
            Err(DevCommandError::Controllers(first.place.to_string(), second.place.to_string()))
        }
        (None, _) => Err(DevCommandError::NoController(file.display().to_string())),
    }
}

/// A script, or a module, complete or compressed: what else is wrong with it is reported while the session waits for the next build.
fn is_hook_file(file: &HookFile, bound: u64) -> Result<(), DevCommandError> {
    let path = &file.path;
    if file.language.is_some() {
        return documents::read_bytes(path, bound).map(drop).map_err(DevCommandError::NoScript);
    }
    let bytes = documents::read_bytes(path, bound)
        .map_err(|source| DevCommandError::NoModule { path: path.clone(), source })?;
    if is_compressed(&bytes) {
        return Ok(());
    }
    check(&bytes).map_err(|source| DevCommandError::NotWasm { path: path.clone(), source })
}

/// The server's defaults, with these flags in their place.
fn serve_flags(flags: &[OsString]) -> Result<super::Serve, DevCommandError> {
    let arguments = ["metahook", "serve"].map(OsString::from).into_iter().chain(flags.iter().cloned());
    let read = Cli::try_parse_from(metacontroller_flags::translate(arguments));
    let read = read.map_err(|error| DevCommandError::Flags(error.to_string()))?;
    let Command::Serve(serve) = read.command else {
        return Err(DevCommandError::Flags("these are no flags of metahook serve".to_owned()));
    };
    if serve.metacontroller_flags.election().is_some() {
        return Err(DevCommandError::Flag("--leader-election"));
    }
    if serve.kubeconfig.is_some() {
        return Err(DevCommandError::Flag("--kubeconfig"));
    }
    if !serve.target_label_selector.is_empty() {
        return Err(DevCommandError::Flag("--target-label-selector"));
    }
    Ok(*serve)
}

fn session_name(text: &str) -> Result<String, String> {
    label_value(text).filter(|value| value == text).ok_or_else(|| {
        "write the value of a label: at most 63 letters, digits, dashes, dots and underscores, with a letter or digit at both ends".to_owned()
    })
}

/// The user's name and the host's.
fn default_name() -> Option<String> {
    let user = std::env::var("USER").or_else(|_| std::env::var("LOGNAME")).unwrap_or_default();
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").or_else(|_| std::env::var("HOSTNAME"));
    label_value(&format!("{user}-{}", host.unwrap_or_default().trim()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use metahook_server::telemetry::error_chain;

    #[test]
    fn flags_of_the_server_that_a_session_has_itself_are_refused() {
        let refused = |flags: &[&str]| {
            let flags: Vec<_> = flags.iter().map(OsString::from).collect();
            serve_flags(&flags).map(|serve| serve.max_children).map_err(|error| error.to_string())
        };
        assert_eq!(refused(&["--max-children", "7"]), Ok(7));
        assert_eq!(
            refused(&["--leader-election"]).unwrap_err(),
            "--: --leader-election has no meaning for a session: leave it out"
        );
        assert!(refused(&["--kubeconfig=x"]).unwrap_err().contains("--kubeconfig"));
        assert!(refused(&["--target-label-selector=a=b"]).unwrap_err().contains("--target-label-selector"));
        assert!(refused(&["--no-such-flag"]).unwrap_err().contains("--no-such-flag"));
    }

    #[test]
    fn a_session_has_the_name_of_a_label() {
        assert_eq!(session_name("ann-laptop").as_deref(), Ok("ann-laptop"));
        for wrong in ["", "a b", "-a", &"x".repeat(64)] {
            assert!(session_name(wrong).unwrap_err().contains("at most 63"), "{wrong}");
        }
    }

    #[test]
    fn a_session_follows_one_file_for_all_hooks() {
        let wasm = r#"{"wasm": {"configMap": {"namespace": "n", "name": "m"}}}"#;
        let script = r#"{"script": {"language": "python", "configMap": {"namespace": "n", "name": "s", "key": "sync"}}}"#;
        let followed = |customize: &str, module: &str| {
            let text = format!(
                "{{apiVersion: metacontroller.k8s.io/v1alpha1, kind: CompositeController, spec: {{hooks: {{sync: {script}, customize: {customize}}}}}}}"
            );
            let documents = documents::of_text("c.yaml", &text).unwrap();
            let flags = ["metahook", "dev", "-f", "c.yaml", "--module", module];
            let Command::Dev(dev) = Cli::try_parse_from(flags).unwrap().command else { panic!("dev") };
            dev.module(&documents)
        };
        let file = followed(script, "hook").unwrap();
        assert!(file.language.is_some(), "as the spec says");
        let error = followed(wasm, "x.wasm").unwrap_err().to_string();
        assert!(error.starts_with("the controller has hooks of several kinds"), "{error}");
    }

    #[test]
    fn files_are_told_what_is_wrong_with_them() {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str, content: &[u8]| {
            let path = folder.path().join(name);
            std::fs::write(&path, content).unwrap();
            path
        };
        let hook = |name: &str, content: &[u8]| HookFile::named(file(name, content), &[]);
        let text = |error: DevCommandError| {
            assert_eq!(error.exit_code(), 2);
            error_chain(&error).replace(folder.path().to_str().unwrap(), "")
        };
        let of = |content: &str| text(controller(&file("f.yaml", content.as_bytes())).unwrap_err());
        assert_eq!(
            of("kind: ConfigMap"),
            "-f /f.yaml: it holds no CompositeController and no DecoratorController"
        );
        let one = "apiVersion: metacontroller.k8s.io/v1alpha1\nkind: CompositeController\n";
        assert!(of(&format!("{one}---\n{one}")).contains("document 1 (line 1) and"), "two");
        assert!(controller(&file("f.yaml", format!("{one}---\nkind: X\n").as_bytes())).is_ok());
        let none = controller(&folder.path().join("none")).map(drop).unwrap_err();
        assert!(text(none).starts_with("-f: /none cannot be read"));
        let module = |content: &[u8], bound| text(is_hook_file(&hook("m", content), bound).unwrap_err());
        assert_eq!(module(b"text", 100), "--module: /m: this is not a WebAssembly module");
        assert!(module(b"text", 3).contains("has more than 3"), "at the bound");
        assert!(is_hook_file(&hook("m", b"\0asm\x01\0\0\0"), 8).is_ok());
        let absent = text(is_hook_file(&HookFile::named(folder.path().join("none"), &[]), 8).unwrap_err());
        assert!(absent.contains("build it first, for example with `cargo build"), "{absent}");
    }
}
