//! Many controllers side by side in one test, a row each: its hook, its parent, and what comes of the two.

use acceptance::api::CONFIG_MAP;
use acceptance::fixture::Fixture;
use acceptance::objects::{Hook, condition, config_map, has_condition, text, uid, version};
use anyhow::{Context, Result, ensure};
use futures_util::future::join_all;
use serde_json::{Value, json};

use crate::scripts::until_loaded;
use crate::wasm;

/// Code of a row's hook, as it is stored.
#[derive(Debug)]
pub(crate) enum Code {
    Wasm(Vec<u8>),
    Component(Vec<u8>),
    Script { language: &'static str, text: String },
}

impl From<Vec<u8>> for Code {
    fn from(wasm: Vec<u8>) -> Self {
        Self::Wasm(wasm)
    }
}

impl Code {
    /// Where it is stored in the `ConfigMap` of the row's name.
    fn key(&self) -> &'static str {
        match self {
            Self::Wasm(_) | Self::Component(_) => "hook.wasm",
            Self::Script { .. } => "hook",
        }
    }
}

/// A hook under its limits, and what it brings about.
#[derive(Debug)]
#[must_use]
pub(crate) struct Row {
    /// Names the controller, the parent and the module.
    pub(crate) name: &'static str,
    stored: Code,
    limits: Vec<(&'static str, Value)>,
    mounts: Vec<&'static str>,
    comes: Comes,
}

#[derive(Debug)]
enum Comes {
    /// The parent's status, and a child of the row's name.
    Child(Value),
    /// The parent's status alone.
    Status(Value),
    /// Why the parent's passes fail before anything is written.
    Failure(String),
    /// Why they fail when something is written.
    Rejection(String),
    /// Why the module is not loaded.
    Refusal(String),
    /// Why its mounts are not.
    TooLargeMounts(String),
}

/// The answer of a hook that has nothing to complain about.
pub(crate) fn answer(row: &str) -> Value {
    let child = config_map(&child_of(row), json!({}), json!({ "is": "here" }));
    json!({ "status": { "is": "here" }, "children": [child] })
}

fn child_of(row: &str) -> String {
    format!("{row}-child")
}

impl Row {
    /// The parent gets what [`answer`] says.
    pub(crate) fn converges(name: &'static str, stored: impl Into<Code>) -> Self {
        Self::new(name, stored, Comes::Child(answer(name)["status"].clone()))
    }

    /// The parent gets this status and no child.
    pub(crate) fn answers(name: &'static str, stored: impl Into<Code>, status: Value) -> Self {
        Self::new(name, stored, Comes::Status(status))
    }

    /// Nothing is written, and a Warning on the parent says why, word by word.
    pub(crate) fn fails(name: &'static str, stored: impl Into<Code>, why: &str) -> Self {
        Self::new(name, stored, Comes::Failure(format!("Sync error: sync hook: {why}")))
    }

    /// The API server does not take what the hook wants, and a Warning on the parent says why, word by word.
    pub(crate) fn is_rejected(name: &'static str, stored: impl Into<Code>, why: &str) -> Self {
        Self::new(name, stored, Comes::Rejection(format!("Sync error: {why}")))
    }

    /// The controller does not run, and its condition says why, word by word.
    pub(crate) fn is_refused(name: &'static str, stored: impl Into<Code>, why: &str) -> Self {
        Self::new(name, stored, Comes::Refusal(why.to_owned()))
    }

    /// A row of a controller whose mounts are too large.
    pub(crate) fn mounts_too_much(name: &'static str, stored: impl Into<Code>, why: &str) -> Self {
        Self::new(name, stored, Comes::TooLargeMounts(why.to_owned()))
    }

    fn new(name: &'static str, stored: impl Into<Code>, comes: Comes) -> Self {
        Self { name, stored: stored.into(), limits: Vec::new(), mounts: Vec::new(), comes }
    }

    /// The row with its module as a component, made as tools make one: with wasmtime's adapter for preview 1. Where the
    /// hook fails may be a function of the adapter.
    pub(crate) fn into_component(mut self) -> Result<Self> {
        if let Code::Wasm(module) = &self.stored {
            let component = wasm::component_of(module).with_context(|| format!("the row {}", self.name))?;
            self.stored = Code::Component(component);
        }
        if let Comes::Failure(why) = &mut self.comes
            && let Some(place) = why.find(" in ")
        {
            why.truncate(place);
        }
        Ok(self)
    }

    /// The parent gets another status.
    pub(crate) fn but_answers(mut self, status: Value) -> Self {
        self.comes = Comes::Status(status);
        self
    }

    /// The hook fails with other words.
    pub(crate) fn but_fails(mut self, why: &str) -> Self {
        self.comes = Self::fails(self.name, Vec::new(), why).comes;
        self
    }

    /// One limit of the hook, such as `timeout`.
    pub(crate) fn limited(mut self, limit: &'static str, to: impl Into<Value>) -> Self {
        self.limits.push((limit, to.into()));
        self
    }

    /// A `ConfigMap` of the test that is mounted at a path of its name.
    pub(crate) fn mounting(mut self, config_map: &'static str) -> Self {
        self.mounts.push(config_map);
        self
    }

    pub(crate) fn controller(&self, test: &Fixture) -> String {
        format!("{}-{}", test.name(), self.name)
    }

    /// Its module, its controller and its parent.
    async fn host(&self, test: &mut Fixture) -> Result<()> {
        let hook = match &self.stored {
            Code::Wasm(wasm) | Code::Component(wasm) => {
                test.store(self.name, wasm).await?;
                test.hook(self.name)
            }
            Code::Script { language, text } => {
                let map = config_map(self.name, json!({}), json!({ (self.stored.key()): text }));
                test.make(&test.config_maps(), map).await?;
                Hook::script(language, test.name(), self.name, self.stored.key())
            }
        };
        // A busy machine makes no hook late that is to fail otherwise.
        let patient = hook.limited("timeout", "60s");
        let hook = self.limits.iter().cloned().fold(patient, |hook, (limit, to)| hook.limited(limit, to));
        let mount =
            |hook: Hook, name: &&str| hook.mounting(&format!("/mnt/{name}"), "configMap", test.name(), name);
        let hook = self.mounts.iter().fold(hook, mount);
        let controller = test.controller().renamed(&self.controller(test)).of_parents_with("row", self.name);
        test.host(controller.making(&CONFIG_MAP, "InPlace").synced_by(hook)).await?;
        test.create(test.parent(self.name).labelled("row", self.name)).await?;
        Ok(())
    }

    /// Waits until it has come as it should.
    pub(crate) async fn comes(&self, test: &Fixture) -> Result<()> {
        let came = match &self.comes {
            Comes::Child(status) => self.converged(test, status, 1).await,
            Comes::Status(status) => self.converged(test, status, 0).await,
            Comes::Failure(why) => self.failed(test, why).await,
            Comes::Rejection(why) => self.said(test, why).await.map(drop),
            Comes::Refusal(why) => {
                let place = format!("ConfigMap {}/{}, key {}: ", test.name(), self.name, self.stored.key());
                self.refused(test, "ModuleInvalid", &(place + why)).await
            }
            Comes::TooLargeMounts(why) => self.refused(test, "MountsTooLarge", why).await,
        };
        came.with_context(|| format!("the row {}", self.name))
    }

    async fn converged(&self, test: &Fixture, status: &Value, children: usize) -> Result<()> {
        let mut status = status.clone();
        status["observedGeneration"] = json!(1);
        let parent =
            test.parents().until(self.name, "its status", |parent| parent["status"] == status).await?;
        let found = children_of(test, &parent).await?;
        ensure!(found == vec![child_of(self.name); children], "it has the children {found:?}");
        Ok(())
    }

    /// Fails, says exactly why, counts as failing, and has written nothing.
    async fn failed(&self, test: &Fixture, why: &str) -> Result<()> {
        let event = self.said(test, why).await?;
        let parent = test.parents().get(self.name).await?;
        let seen = text(&event, "/involvedObject/resourceVersion");
        ensure!(version(&parent) == seen, "the parent was written: {parent}");
        let found = children_of(test, &parent).await?;
        ensure!(found.is_empty(), "it has the children {found:?}");
        Ok(())
    }

    async fn said(&self, test: &Fixture, why: &str) -> Result<Value> {
        let event = self.event(test, |_| true).await?;
        self.is_said(text(&event, "/message"), why)?;
        ensure!(event["type"] == "Warning", "an Event of the type {}", event["type"]);
        let fails = |cc: &Value| {
            has_condition(cc, "Ready", "False", "AllParentsFailing")
                && (&cc["status"]["parents"], &cc["status"]["failing"]) == (&json!(1), &json!(1))
        };
        test.controllers().until(&self.controller(test), "its one parent failing", fails).await?;
        Ok(event)
    }

    /// Checks the text of a row. Of components and scripts the beginning counts, as the rest names functions of the
    /// adapter and the interpreter.
    fn is_said(&self, said: &str, why: &str) -> Result<()> {
        let is_it = match self.stored {
            Code::Wasm(_) => said == why,
            Code::Component(_) | Code::Script { .. } => said.starts_with(why),
        };
        ensure!(is_it, "{said}\nis not\n{why}");
        Ok(())
    }

    async fn refused(&self, test: &Fixture, reason: &str, why: &str) -> Result<()> {
        let says = |cc: &Value| has_condition(cc, "ModulesLoaded", "False", reason);
        let cc = test.controllers().until(&self.controller(test), "its module refused", says).await?;
        let said = condition(&cc, "ModulesLoaded").map_or("", |is| text(is, "/message"));
        // Where only another version helps, the message ends with the digest.
        let (said, digest) = said.split_once("; refused: sha256:").unwrap_or((said, ""));
        self.is_said(said, why)?;
        ensure!(digest.is_empty() || digest.len() == 64, "the digest is {digest}");
        ensure!(has_condition(&cc, "Ready", "False", "ModuleNotLoaded"), "ready: {}", cc["status"]);
        Ok(())
    }

    async fn event(&self, test: &Fixture, is: impl Fn(&Value) -> bool) -> Result<Value> {
        test.until_event(self.name, "SyncError", is).await
    }

    /// Has it looked at once more, and waits until that has come as before.
    pub(crate) async fn comes_again(&self, test: &Fixture) -> Result<()> {
        if let Comes::Failure(_) | Comes::Rejection(_) = &self.comes {
            let before = self.event(test, |_| true).await?;
            test.parents().merge(self.name, &json!({ "spec": { "touched": true } })).await?;
            let more = |event: &Value| event["count"].as_u64() > before["count"].as_u64();
            self.event(test, more).await.with_context(|| format!("the row {}", self.name))?;
            return Ok(());
        }
        self.comes(test).await
    }
}

/// The names of the `ConfigMap`s that a parent owns.
async fn children_of(test: &Fixture, parent: &Value) -> Result<Vec<String>> {
    let owned = |object: &&Value| text(object, "/metadata/ownerReferences/0/uid") == uid(parent);
    let all = test.config_maps().list().await?;
    Ok(all.iter().filter(owned).map(|object| text(object, "/metadata/name").to_owned()).collect())
}

/// Hosts them all at once, and waits until each has come as it should.
pub(crate) async fn come(test: &mut Fixture, rows: &[Row]) -> Result<()> {
    test.define_kind().await?;
    test.serve()?;
    host(test, rows).await?;
    let came = join_all(rows.iter().map(|row| row.comes(test))).await;
    let others: Vec<String> =
        came.into_iter().filter_map(Result::err).map(|why| format!("{why:#}")).collect();
    ensure!(others.is_empty(), "{}", others.join("\n"));
    Ok(())
}

/// Hosts them all at once.
pub(crate) async fn host(test: &mut Fixture, rows: &[Row]) -> Result<()> {
    for row in rows {
        row.host(test).await.with_context(|| format!("the row {}", row.name))?;
    }
    // All scripts of a table have one interpreter.
    match rows.iter().find(|row| matches!(row.stored, Code::Script { .. })) {
        Some(row) => until_loaded(test, &row.controller(test)).await,
        None => Ok(()),
    }
}
