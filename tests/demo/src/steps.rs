//! The steps that stories have in common, and undoing what was made.

use std::sync::Arc;
use std::time::Duration;

use acceptance::server::Server;
use anyhow::{Result, ensure};
use binaries::paths;

use crate::cluster::{Cluster, DEFINITIONS, definition};
use crate::interrupt::Interrupt;
use crate::terminal::Terminal;

/// The file of a hook that is a script.
const SCRIPTS: [&str; 2] = ["sync.py", "hook.js"];

const ESTABLISHED: [&str; 3] = ["wait", "--for=condition=Established", "--timeout=60s"];

/// The objects made so far, and the steps that go on from there.
///
/// All is named after the guest that the story is about: its files are in `guests/<name>`, it lives in the namespace
/// `<name>`, its module in the `ConfigMap` `<name>-hook`, and its controller is called `<name>-controller`.
pub(crate) struct Demo<'a> {
    name: &'static str,
    cluster: &'a Cluster,
    terminal: Terminal,
    server: Option<Server>,
    undo: Vec<Undo>,
}

enum Undo {
    /// Arguments of kubectl delete.
    Delete(Vec<String>),
    /// A CRD, unless other objects of its kind were made meanwhile.
    Definition(String),
    StopServer,
}

impl<'a> Demo<'a> {
    pub(crate) fn of(name: &'static str, cluster: &'a Cluster, interrupt: &Arc<Interrupt>) -> Self {
        let terminal = Terminal::new(cluster.kubectl(), cluster.context(), interrupt);
        Self { name, cluster, terminal, server: None, undo: Vec::new() }
    }

    /// Whether Pods run, as far as we know.
    pub(crate) fn has_node(&self) -> bool {
        self.cluster.has_node()
    }

    /// Installs our CRDs and starts the server. `made` are kinds and names of what will be in the story's namespace.
    pub(crate) async fn begin(&mut self, made: &[[&str; 2]]) -> Result<()> {
        self.nothing_of_ours_is_there(made).await?;
        self.install().await?;
        self.serve()
    }

    /// On the user's cluster the demo touches no object that has one of its names.
    async fn nothing_of_ours_is_there(&self, made: &[[&str; 2]]) -> Result<()> {
        let Cluster::Existing(_) = self.cluster else {
            return Ok(());
        };
        let hook = self.hook();
        let controller = self.controller();
        let ours = [
            ["configmap", &hook],
            ["compositecontroller", &controller],
            ["decoratorcontroller", &controller],
        ];
        for [kind, name] in ours.iter().chain(made) {
            let line = ["-n", self.name, "get", kind, name, "--ignore-not-found", "-o", "name"];
            let found = self.terminal.run_quietly(&line).await.unwrap_or_default(); // a kind that is unknown has no objects
            ensure!(found.is_empty(), "{found} is there already, and the demo would make one of that name");
        }
        Ok(())
    }

    async fn install(&mut self) -> Result<()> {
        title("Install the CRDs");
        if let Cluster::Existing(_) = self.cluster {
            for plural in DEFINITIONS {
                self.define_one(&definition(plural), &format!("manifests/crds/{plural}.yaml")).await?;
            }
            return Ok(());
        }
        self.terminal.types(&["apply", "--server-side", "-f", "manifests/crds"]).await?;
        self.undo.extend(DEFINITIONS.map(|plural| Undo::Definition(definition(plural))));
        self.terminal.types(&[&ESTABLISHED[..], &["-f", "manifests/crds"]].concat()).await.map(drop)
    }

    /// Makes a CRD unless it is there, and waits until it is served.
    async fn define_one(&mut self, crd: &str, file: &str) -> Result<()> {
        if self.is_there(&["crd", crd]).await? {
            println!("  {crd} is there already: it is used as it is, and stays");
            return Ok(());
        }
        self.terminal.types(&[self.verb(), "-f", file]).await?;
        self.undo.push(Undo::Definition(crd.to_owned()));
        self.terminal.types(&[&ESTABLISHED[..], &["crd", crd]].concat()).await.map(drop)
    }

    fn serve(&mut self) -> Result<()> {
        title("Start the server");
        if let Cluster::Existing(existing) = self.cluster
            && let Some(server) = &existing.server
        {
            println!("  none: {server} runs there and is used");
            return Ok(());
        }
        let kubectl = self.cluster.kubectl();
        let mut server = Server::new(paths::server()?, kubectl.kubeconfig(), self.cluster.server_log());
        if let Cluster::Existing(_) = self.cluster {
            server = server.only(&self.label());
        }
        println!("$ {} &", server.command());
        server.start()?;
        self.server = Some(server);
        self.undo.push(Undo::StopServer);
        Ok(())
    }

    /// Makes the story's namespace and its kind.
    pub(crate) async fn define(&mut self, kind: &str, crd: &str) -> Result<()> {
        title(&format!("Define the kind {kind}"));
        let made = self.undo.len();
        self.make_the_namespace().await?;
        self.define_one(crd, &self.file("crd")).await?;
        self.undo[made..].reverse(); // a namespace with objects of that kind goes before the kind
        Ok(())
    }

    /// Makes the story's namespace, where its kinds are there anyway.
    pub(crate) async fn make_namespace(&mut self) -> Result<()> {
        title("Make a namespace");
        self.make_the_namespace().await
    }

    async fn make_the_namespace(&mut self) -> Result<()> {
        if self.is_there(&["namespace", self.name]).await? {
            println!("  the namespace {} is there already: it is used as it is, and stays", self.name);
        } else {
            self.make(&["create", "namespace", self.name], &["namespace", self.name]).await?;
        }
        Ok(())
    }

    /// Makes the story's controller, which is of this kind, and waits until it is at work.
    pub(crate) async fn control(&mut self, kind: &str) -> Result<()> {
        let script = SCRIPTS.iter().map(|name| format!("guests/{}/{name}", self.name));
        let script = script.into_iter().find(|path| paths::workspace().join(path).is_file());
        let from = if let Some(script) = script {
            title("Store the hook, a script, and define the controller");
            format!("--from-file={script}")
        } else {
            title("Store the hook, a Wasm module, and define the controller");
            let module = paths::guest(self.name)?;
            let module = module.strip_prefix(paths::workspace()).unwrap_or(&module);
            format!("--from-file=hook.wasm={}", module.display())
        };
        let hook = self.hook();
        let controller = self.controller();
        self.make(
            &["-n", self.name, "create", "configmap", &hook, &from],
            &["-n", self.name, "configmap", &hook],
        )
        .await?;
        self.make(&[self.verb(), "-f", &self.file("controller")], &[kind, &controller]).await?;
        if let Cluster::Existing(_) = self.cluster {
            self.terminal.types(&["label", kind, &controller, &self.label()]).await?;
        }
        self.terminal.types(&["wait", "--for=condition=Ready", "--timeout=60s", kind, &controller]).await?;
        self.terminal.types(&["get", kind, &controller, "-o", "wide"]).await.map(drop)
    }

    /// Makes the objects that the guest has as an example.
    pub(crate) async fn make_example(&mut self, objects: &[[&str; 2]]) -> Result<()> {
        let file = self.file(self.name);
        self.types(&[self.verb(), "-f", &file]).await?;
        let undo = |[kind, name]: &[&str; 2]| ["-n", self.name, kind, name].map(str::to_owned).into();
        self.undo.extend(objects.iter().map(undo).map(Undo::Delete));
        Ok(())
    }

    /// Deletes it: the last thing that was made.
    pub(crate) async fn delete_example(&mut self, object: [&str; 2]) -> Result<()> {
        let [kind, name] = object;
        self.types(&["delete", kind, name]).await?;
        self.undo.pop();
        Ok(())
    }

    /// Runs a line in the story's namespace.
    pub(crate) async fn types(&self, line: &[&str]) -> Result<String> {
        self.terminal.types(&[&["-n", self.name], line].concat()).await
    }

    /// Runs a line without showing it.
    pub(crate) async fn run_quietly(&self, line: &[&str]) -> Result<String> {
        self.terminal.run_quietly(line).await
    }

    /// In the story's namespace, as the terminal waits, but not on a server that has ended.
    pub(crate) async fn waits(
        &mut self,
        line: &[&str],
        what: &str,
        is: impl Fn(&str) -> bool,
    ) -> Result<String> {
        let line = [&["-n", self.name], line].concat();
        let server = &mut self.server;
        let ended = async {
            loop {
                if let Some(Err(why)) = server.as_mut().map(Server::runs) {
                    return why;
                }
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
        };
        tokio::select! {
            waited = self.terminal.waits(&line, what, is) => waited,
            why = ended => Err(why),
        }
    }

    /// Undoes all that was made, the last thing first. Goes on where something cannot be undone.
    pub(crate) async fn clean_up(&mut self) -> Result<()> {
        title("Clean up");
        let mut result = Ok(());
        while let Some(undo) = self.undo.pop() {
            let undone = match undo {
                Undo::Delete(args) => self.delete(&args).await,
                Undo::Definition(crd) => self.undefine(&crd).await,
                Undo::StopServer => self.stop_server().await,
            };
            result = result.and(undone);
        }
        result
    }

    async fn delete(&self, args: &[String]) -> Result<()> {
        let args = args.iter().map(String::as_str);
        let line: Vec<&str> = ["delete", "--timeout=120s"].into_iter().chain(args).collect();
        match self.terminal.types(&line).await {
            Err(why) if why.to_string().contains("(NotFound)") => Ok(()), // it is deleted already
            deleted => deleted.map(drop),
        }
    }

    async fn undefine(&self, crd: &str) -> Result<()> {
        let left = self.terminal.run_quietly(&["get", crd, "-A", "-o", "name"]).await?;
        let left: Vec<&str> = left.lines().filter(|line| line.contains('/')).collect();
        if left.is_empty() {
            return self.delete(&["crd".to_owned(), crd.to_owned()]).await;
        }
        println!("  {crd} stays: there are objects of its kind: {}", left.join(", "));
        Ok(())
    }

    async fn stop_server(&mut self) -> Result<()> {
        let Some(mut server) = self.server.take() else {
            return Ok(());
        };
        println!("$ kill %1");
        let status = server.stop().await?;
        ensure!(status.success(), "the server did not end well ({status})");
        Ok(())
    }

    /// Text that helps to understand a failure.
    pub(crate) fn evidence(&self) -> String {
        self.server.as_ref().map_or_else(String::new, |server| server.tail(30))
    }

    /// On our own cluster as the tutorial has it; elsewhere what is there may not be changed.
    fn verb(&self) -> &'static str {
        match self.cluster {
            Cluster::Own(_) => "apply",
            Cluster::Existing(_) => "create",
        }
    }

    async fn make(&mut self, line: &[&str], undo: &[&str]) -> Result<()> {
        self.terminal.types(line).await?;
        self.undo.push(Undo::Delete(undo.iter().map(|word| (*word).to_owned()).collect()));
        Ok(())
    }

    async fn is_there(&self, object: &[&str]) -> Result<bool> {
        let line = [&["get"], object, &["--ignore-not-found", "-o", "name"]].concat();
        Ok(!self.terminal.run_quietly(&line).await?.is_empty())
    }

    fn hook(&self) -> String {
        format!("{}-hook", self.name)
    }

    fn controller(&self) -> String {
        format!("{}-controller", self.name)
    }

    /// Our server hosts only what has this label on a cluster with other controllers in it.
    fn label(&self) -> String {
        format!("metahook-demo={}", self.name)
    }

    fn file(&self, what: &str) -> String {
        format!("guests/{}/{what}.yaml", self.name)
    }
}

pub(crate) fn title(text: &str) {
    println!("\n-- {text}");
}
