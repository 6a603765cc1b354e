//! The tutorial's steps, and undoing what they made.

use std::sync::Arc;
use std::time::Duration;

use acceptance::paths;
use acceptance::server::Server;
use anyhow::{Result, ensure};

use super::interrupt::Interrupt;
use super::place::{DEFINITIONS, Place, definition};
use super::terminal::Terminal;

const HELLO_KIND: &str = "helloworlds.example.com";

/// Our server hosts only this on a cluster with other controllers in it.
const LABEL: (&str, &str) = ("metahook-demo", "hello");

const ESTABLISHED: [&str; 3] = ["wait", "--for=condition=Established", "--timeout=60s"];

/// The Pod as it is in the cluster: who it is, and what it runs.
const POD: [&str; 6] =
    ["-n", "hello", "get", "pod", "your-name", "-o=jsonpath={.metadata.uid} {.spec.containers[0].command}"];

/// What has been made so far, and how to go on.
pub(crate) struct Demo<'a> {
    place: &'a Place,
    terminal: Terminal,
    server: Option<Server>,
    undo: Vec<Undo>,
}

enum Undo {
    /// Arguments of kubectl delete.
    Delete(Vec<String>),
    /// A CRD, if nobody else has made objects of it by now.
    Definition(String),
    StopServer,
}

impl<'a> Demo<'a> {
    pub(crate) fn at(place: &'a Place, interrupt: &Arc<Interrupt>) -> Self {
        let terminal = Terminal::new(place.kubectl(), place.context(), interrupt);
        Self { place, terminal, server: None, undo: Vec::new() }
    }

    pub(crate) async fn tutorial(&mut self) -> Result<()> {
        self.nothing_of_ours_is_there().await?;
        self.install().await?;
        self.serve()?;
        self.define().await?;
        self.control().await?;
        let first = self.greet().await?;
        self.change(&first).await?;
        self.collect().await
    }

    /// Whatever is there on somebody's cluster with a name of ours is not touched.
    async fn nothing_of_ours_is_there(&self) -> Result<()> {
        let Place::Theirs(_) = self.place else {
            return Ok(());
        };
        let objects: [&[&str]; 3] = [
            &["get", "compositecontroller", "hello-controller"],
            &["-n", "hello", "get", "configmap/hello-hook", "pod/your-name"],
            &["-n", "hello", "get", "helloworld", "your-name"],
        ];
        for object in objects {
            let line = [object, &["--ignore-not-found", "-o", "name"]].concat();
            let found = self.terminal.quietly(&line).await.unwrap_or_default(); // a kind that is unknown has no objects
            ensure!(found.is_empty(), "{found} is there already, and the demo would make one of that name");
        }
        Ok(())
    }

    async fn install(&mut self) -> Result<()> {
        title("Install the CRDs");
        if let Place::Theirs(_) = self.place {
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
        if let Place::Theirs(theirs) = self.place
            && let Some(server) = &theirs.server
        {
            println!("  none: {server} runs there and is used");
            return Ok(());
        }
        let kubectl = self.place.kubectl();
        let mut server = Server::new(paths::server()?, kubectl.kubeconfig(), self.place.server_log());
        if let Place::Theirs(_) = self.place {
            server = server.only(&format!("{}={}", LABEL.0, LABEL.1));
        }
        println!("$ {} &", server.command());
        server.start()?;
        self.server = Some(server);
        self.undo.push(Undo::StopServer);
        Ok(())
    }

    async fn define(&mut self) -> Result<()> {
        title("Define the kind HelloWorld");
        let made = self.undo.len();
        if self.is_there(&["namespace", "hello"]).await? {
            println!("  the namespace hello is there already: it is used as it is, and stays");
        } else {
            self.make(&["create", "namespace", "hello"], &["namespace", "hello"]).await?;
        }
        self.define_one(HELLO_KIND, "guests/hello/crd.yaml").await?;
        self.undo[made..].reverse(); // a namespace with objects of that kind goes before the kind
        Ok(())
    }

    async fn control(&mut self) -> Result<()> {
        title("Store the hook, a Wasm module, and define the controller");
        let module = paths::guest("hello")?;
        let module = module.strip_prefix(paths::workspace()).unwrap_or(&module);
        let from = format!("--from-file=hook.wasm={}", module.display());
        let hook = ["-n", "hello", "configmap", "hello-hook"];
        self.make(&["-n", "hello", "create", "configmap", "hello-hook", &from], &hook).await?;
        let controller = ["compositecontroller", "hello-controller"];
        self.make(&[self.verb(), "-f", "guests/hello/controller.yaml"], &controller).await?;
        if let Place::Theirs(_) = self.place {
            let label = format!("{}={}", LABEL.0, LABEL.1);
            self.terminal.types(&["label", "compositecontroller", "hello-controller", &label]).await?;
        }
        self.terminal
            .types(&["wait", "--for=condition=Ready", "--timeout=60s", controller[0], controller[1]])
            .await?;
        self.terminal.types(&["get", controller[0], controller[1], "-o", "wide"]).await.map(drop)
    }

    /// Gives back the Pod that greets.
    async fn greet(&mut self) -> Result<String> {
        title("Make a HelloWorld");
        let parent = ["-n", "hello", "helloworld", "your-name"];
        self.make(&["-n", "hello", self.verb(), "-f", "guests/hello/hello.yaml"], &parent).await?;
        let pod = self.waits(&POD, "a Pod that greets", |pod| pod.contains("Hello, Your Name!")).await?;
        self.reads("Hello, Your Name!").await?;
        self.status_counts_one_pod().await?;
        Ok(pod)
    }

    /// Waits until the Pod has greeted and reads its log. Without a node it stays as it is made.
    async fn reads(&mut self, greeting: &str) -> Result<()> {
        let pods = ["-n", "hello", "get", "pods"];
        if !self.place.has_node() {
            return self.terminal.types(&pods).await.map(drop);
        }
        self.waits(&pods, "a Pod that is Completed", |pods| pods.contains("Completed")).await?;
        let logs = ["-n", "hello", "logs", "your-name"];
        self.waits(&logs, greeting, |printed| printed == greeting).await.map(drop)
    }

    async fn change(&mut self, first: &str) -> Result<()> {
        title("Change it: the Pod is deleted and made anew");
        let patch = r#"{"spec":{"who":"My Name"}}"#;
        let line = ["-n", "hello", "patch", "helloworld", "your-name", "--type=merge", "-p", patch];
        self.terminal.types(&line).await?;
        let pod = self.waits(&POD, "another Pod", |pod| pod.contains("Hello, My Name!")).await?;
        let uid = |pod: &str| pod.split(' ').next().unwrap_or_default().to_owned();
        ensure!(uid(&pod) != uid(first), "the Pod was changed, not made anew");
        println!("  another Pod: {} was {}", uid(&pod), uid(first));
        self.reads("Hello, My Name!").await?;
        self.status_counts_one_pod().await
    }

    async fn collect(&mut self) -> Result<()> {
        title("Delete it: the Pod is collected (a new kind is known to the garbage collector within 30 s)");
        self.terminal.types(&["-n", "hello", "delete", "helloworld", "your-name"]).await?;
        self.undo.pop();
        let pods = ["-n", "hello", "get", "pods"];
        self.waits(&pods, "no Pod your-name", |pods| !pods.contains("your-name")).await?;
        Ok(())
    }

    async fn status_counts_one_pod(&mut self) -> Result<()> {
        let line = ["-n", "hello", "get", "helloworld", "your-name", "-o=jsonpath=pods: {.status.pods}"];
        self.waits(&line, "status.pods = 1", |status| status == "pods: 1").await?;
        Ok(())
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
            Err(why) if why.to_string().contains("(NotFound)") => Ok(()), // somebody was faster
            deleted => deleted.map(drop),
        }
    }

    async fn undefine(&self, crd: &str) -> Result<()> {
        let left = self.terminal.quietly(&["get", crd, "-A", "-o", "name"]).await?;
        let left: Vec<&str> = left.lines().filter(|line| line.contains('/')).collect();
        if left.is_empty() {
            return self.delete(&["crd".to_owned(), crd.to_owned()]).await;
        }
        println!("  {crd} stays: somebody has made {}", left.join(", "));
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

    /// What helps to understand a failure.
    pub(crate) fn evidence(&self) -> String {
        self.server.as_ref().map_or_else(String::new, |server| server.tail(30))
    }

    /// As the terminal waits, but not on a server that has ended.
    async fn waits(&mut self, line: &[&str], what: &str, is: impl Fn(&str) -> bool) -> Result<String> {
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
            waited = self.terminal.waits(line, what, is) => waited,
            why = ended => Err(why),
        }
    }

    /// On our own cluster as the tutorial has it; elsewhere what is there may not be changed.
    fn verb(&self) -> &'static str {
        match self.place {
            Place::Own(_) => "apply",
            Place::Theirs(_) => "create",
        }
    }

    async fn make(&mut self, line: &[&str], undo: &[&str]) -> Result<()> {
        self.terminal.types(line).await?;
        self.undo.push(Undo::Delete(undo.iter().map(|word| (*word).to_owned()).collect()));
        Ok(())
    }

    async fn is_there(&self, object: &[&str]) -> Result<bool> {
        let line = [&["get"], object, &["--ignore-not-found", "-o", "name"]].concat();
        Ok(!self.terminal.quietly(&line).await?.is_empty())
    }
}

fn title(text: &str) {
    println!("\n-- {text}");
}
