//! `cargo xtask demo`: builds what one story needs, then becomes the program that shows it.

use anyhow::{Result, ensure};
use binaries::cluster::Binaries;
use binaries::node::Parts;
use binaries::paths;
use binaries::story::Story;
use clap::Args;

use crate::cargo;
use crate::children;
use crate::steps::{Steps, usual_time};
use crate::test::may_install;
use crate::{guests, runners};

#[derive(Args)]
pub(crate) struct Options {
    /// What is shown
    #[arg(value_enum, value_name = "NAME", default_value_t = Story::Hello)]
    story: Story,
    /// Leaves everything running until Ctrl-C, and prints how to reach it
    #[arg(long)]
    keep: bool,
    /// Runs on the cluster of this kubectl context instead of one of its own
    #[arg(long, value_name = "NAME")]
    context: Option<String>,
    /// On that cluster, uses our CRDs and the server that are there instead of refusing
    #[arg(long, requires = "context")]
    use_existing: bool,
    /// Installs Debian packages that a node needs and that are missing (done without asking where CI=true)
    #[arg(long, conflicts_with = "context")]
    install: bool,
}

impl Options {
    /// As the program takes them.
    fn arguments(&self) -> Vec<String> {
        let flags =
            [(self.keep, "--keep"), (self.use_existing, "--use-existing"), (self.installs(), "--install")];
        let flags = flags.into_iter().filter(|(set, _)| *set).map(|(_, flag)| flag.to_owned());
        let context = self.context.iter().map(|name| format!("--context={name}"));
        [self.story.name().to_owned()].into_iter().chain(context).chain(flags).collect()
    }

    fn installs(&self) -> bool {
        may_install(self.install) && self.context.is_none()
    }
}

pub(crate) fn run(options: &Options) -> Result<()> {
    let name = options.story.name();
    let mut plan = vec![("server", usual_time("some six minutes", "seconds"))];
    let language = match options.story {
        Story::HelloPython => Some(runners::Language::Python),
        Story::HelloJs => Some(runners::Language::JavaScript),
        Story::Hello | Story::Immortal | Story::ConfigRestart => None,
    };
    let takes = if language.is_some() {
        "the interpreter of its language: seconds".to_owned()
    } else {
        format!("guests/{name}, compiled to Wasm: seconds")
    };
    plan.push(("hook", takes));
    if options.context.is_none() {
        plan.push(("kubernetes", Binaries::usual_time()?));
        plan.push(("node", Parts::usual_time()?));
    }
    plan.push(("demo", "a minute".to_owned()));
    let mut steps = Steps::announce(&format!("demo {name}"), &plan);
    steps.begin("server");
    cargo::build_programs(&["metahook"])?;
    steps.begin("hook");
    match language {
        Some(language) => {
            runners::build_one(language)?;
            runners::compile(cargo::program("metahook")?, &paths::runners()?)?;
        }
        None => guests::build(&[name])?,
    }
    render(options.story, language.is_some())?;
    if options.context.is_none() {
        steps.begin("kubernetes");
        Binaries::find_or_build()?;
        steps.begin("node");
        // The demo prints what the machine lacks, and goes on without a node.
        drop(Parts::find_or_build(options.installs())?);
    }
    steps.begin("demo");
    cargo::build_programs(&["demo"])?;
    cargo::exec(cargo::program("demo")?.args(options.arguments()))
}

/// Shows what the hook answers, which needs no cluster: the first look at it comes before Kubernetes is built.
fn render(story: Story, is_script: bool) -> Result<()> {
    let files = match story {
        Story::Hello | Story::HelloPython | Story::HelloJs | Story::Immortal => {
            format!("guests/{}", story.name())
        }
        // Its parents are Deployments, of which no file has one.
        Story::ConfigRestart => return Ok(()),
    };
    let mut command = cargo::program("metahook")?;
    command.current_dir(paths::workspace()).args(["render", "-f", &files]);
    let mut typed = format!("metahook render -f {files}");
    if !is_script {
        let module = guests::folder()?.join(format!("{}.wasm", story.name()));
        typed = format!("{typed} --module {}", module.display());
        command.arg("--module").arg(module);
    }
    eprintln!("\nWhat the server would write, without a cluster:\n$ {typed}");
    ensure!(children::wait(&mut command)?.success(), "{typed} failed");
    Ok(())
}
