//! `metahook rollback`: a kept version is put back, and deletions that follow from the return are agreed to.

use std::collections::BTreeMap;
use std::io::Write;
use std::time::{Duration, Instant};

use metahook_core::api::hook::HookName;
use metahook_core::api::reason::ConditionType;
use metahook_core::bundle::ModulePlace;
use metahook_core::children::deletion_brake::ALLOW_DELETIONS;
use metahook_server::cluster::api_client::ApiClient;
use metahook_server::hook::wasm::compile::Digest;
use metahook_server::hook::wasm::source::unpack::unpack;
use serde_json::{Value, json};

use crate::controllers::{plain, status};
use crate::deploy::packed::apply_packed;
use crate::history::{HistoryError, Target};
use crate::kept_places::all_sizes;
use crate::pack::{PackTarget, Packed, pack, pack_script};
use crate::yaml;

/// How long is waited for all parents to settle with the version, and how often that is looked at.
const MAX_WAIT: Duration = Duration::from_mins(1);
const LOOK_AGAIN: Duration = Duration::from_millis(500);

/// A state that is seen for this long holds: a server writes a status every ten seconds at most.
const MIN_SURE: Duration = Duration::from_secs(12);

impl Target<'_> {
    async fn packed(&self, api: &ApiClient) -> Result<(Packed, PackTarget), HistoryError> {
        let digest = &self.kept.version.digest;
        let stored = self.kept.read(api).await?.ok_or_else(|| HistoryError::Gone(digest.clone()))?;
        let bytes = unpack(stored, &all_sizes());
        let bytes = bytes.map_err(|error| HistoryError::Unpack(digest.clone(), error))?;
        let found = Digest::of(&bytes).hex();
        if found != *digest {
            return Err(HistoryError::Edited { digest: digest.clone(), found });
        }
        let ModulePlace { namespace, name, key, language } = self.place.place.clone();
        let target = PackTarget { name, namespace, key };
        let packed = match language {
            Some(_) => pack_script(&bytes, &target),
            None => pack(&bytes, &target),
        };
        Ok((packed.map_err(|error| HistoryError::Pack(digest.clone(), error))?, target))
    }

    /// Writes the version to the ConfigMap that the controller names.
    ///
    /// # Errors
    /// It was edited, a pin excludes it, or the API server refuses it.
    pub async fn apply(&self, api: &ApiClient, mut say: impl Write) -> Result<(), HistoryError> {
        let (digest, accepted) = (&self.kept.version.digest, &self.kept.version.accepted);
        is_not_pinned(&self.place.pins, digest)?;
        let (packed, target) = self.packed(api).await?;
        let held_before = held(&self.read(api).await?);
        apply_packed(api, &packed, &target, &mut say).await?;
        let hooks = self.place.names();
        writeln!(say, "{hooks}: back to sha256:{digest}, which was accepted at {accepted}")?;
        if let Some(left) = self.place.left() {
            writeln!(say, "{hooks}: the same command once more leads to sha256:{left} again")?;
        }
        self.agree(api, held_before.as_deref(), say).await
    }

    async fn read(&self, api: &ApiClient) -> Result<Value, HistoryError> {
        Ok(api.read_as(self.controller).await?.unwrap_or_default())
    }

    /// Agrees to the deletions of children that only the version before wants: who goes back means that. Where deletions waited before,
    /// something else than the module may ask for them, and the user decides.
    async fn agree(
        &self,
        api: &ApiClient,
        held_before: Option<&str>,
        mut say: impl Write,
    ) -> Result<(), HistoryError> {
        let (began, mut last) = (Instant::now(), (Next::Wait, Instant::now()));
        while began.elapsed() < MAX_WAIT {
            let controller = self.read(api).await?;
            let next = next(&controller, &self.place.hooks, &self.kept.version.digest);
            if last.0 != next {
                last = (next, Instant::now());
            }
            // Counts and conditions may be those from before.
            let is_sure = last.1.elapsed() >= MIN_SURE;
            match &last.0 {
                Next::Done if is_sure => return Ok(()),
                Next::Paused => {
                    writeln!(say, "{}: paused: it goes on once it is resumed", self.controller)?;
                    return Ok(());
                }
                Next::Held(version) if is_sure && held_before.is_some() => {
                    let why = "deletions waited before, and wait now; where they are meant";
                    writeln!(say, "{}: {why}: {ALLOW_DELETIONS}={version}", self.controller)?;
                    return Ok(());
                }
                Next::Held(version) if is_sure => {
                    let patch = json!({ "metadata": { "annotations": { ALLOW_DELETIONS: version } } });
                    drop(api.merge::<Value>(self.controller, &patch).await?);
                    writeln!(
                        say,
                        "{}: deletions of this return go on: {ALLOW_DELETIONS}={version}",
                        self.controller
                    )?;
                    return Ok(());
                }
                Next::Wait | Next::Done | Next::Held(_) => {}
            }
            tokio::time::sleep(LOOK_AGAIN).await;
        }
        let hint = "the server has not settled all parents with it yet: where deletions wait, `kubectl describe` the controller";
        Ok(writeln!(say, "{}: {hint}", self.controller)?)
    }

    /// The manifests that put it back, as YAML.
    ///
    /// # Errors
    /// It was edited.
    pub async fn manifests(&self, api: &ApiClient) -> Result<String, HistoryError> {
        let (packed, _) = self.packed(api).await?;
        let all = packed.parts.iter().chain([&packed.main]);
        Ok(all.map(yaml::print).fold(String::new(), |text, object| text + "---\n" + &object))
    }
}

/// A pin that excludes the version is changed first: the server would refuse it.
fn is_not_pinned(pins: &BTreeMap<String, String>, digest: &str) -> Result<(), HistoryError> {
    let Some((field, pinned)) = pins.iter().find(|(_, pinned)| *pinned != digest) else { return Ok(()) };
    let (field, pinned) = (field.clone(), pinned.clone());
    Err(HistoryError::Pinned { field, pinned, digest: digest.to_owned() })
}

/// Steps that are left after a version was put back.
#[derive(Debug, PartialEq, Eq)]
enum Next {
    Wait,
    Done,
    Paused,
    /// Deletions of this version of the hooks and the spec wait.
    Held(String),
}

fn next(controller: &Value, hooks: &[HookName], digest: &str) -> Next {
    if controller.pointer("/spec/paused") == Some(&Value::Bool(true)) {
        return Next::Paused;
    }
    let status = status(controller);
    let runs = |hook: &HookName| {
        let running = status.hooks.get(hook.as_str()).and_then(|hook| hook.digest.as_deref());
        running.is_some_and(|running| plain(running) == digest)
    };
    if !hooks.iter().all(runs) {
        return Next::Wait;
    }
    match held(controller) {
        Some(version) => Next::Held(version),
        None if status.parents == status.settled => Next::Done,
        None => Next::Wait,
    }
}

/// The version whose deletions wait: the condition's message ends with it.
fn held(controller: &Value) -> Option<String> {
    let is_held = ConditionType::DeletionsHeld.as_str();
    let status = status(controller);
    let condition = status.conditions.iter().find(|one| one.kind == is_held && one.status == "True")?;
    let (_, version) = condition.message.rsplit_once(&format!("{ALLOW_DELETIONS}: "))?;
    Some(version.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_that_a_pin_excludes_is_not_put_back() {
        let pins = BTreeMap::from([("spec.hooks.sync.wasm.sha256".to_owned(), "cc1".to_owned())]);
        let says = |digest: &str| is_not_pinned(&pins, digest).map_err(|error| error.to_string());
        assert_eq!(says("cc1"), Ok(()));
        assert!(says("bb1").unwrap_err().starts_with("spec.hooks.sync.wasm.sha256 pins cc1, "));
    }

    fn controller(digest: &str, settled: u8, held: Option<&str>) -> Value {
        let condition = |version: &str| {
            let message = format!("children wait … annotation {ALLOW_DELETIONS}: {version}");
            json!({
                "type": "DeletionsHeld", "status": "True", "reason": "ThresholdExceeded", "message": message,
                "lastTransitionTime": "t",
            })
        };
        json!({ "spec": {}, "status": {
            "hooks": { "sync": { "digest": format!("sha256:{digest}") } }, "parents": 3, "settled": settled,
            "conditions": held.map(condition).into_iter().collect::<Vec<_>>(),
        } })
    }

    #[test]
    fn what_follows_a_return_is_told_once_the_version_runs() {
        let next = |controller: &Value| next(controller, &[HookName::Sync], "aa1");
        assert_eq!(next(&controller("bb1", 3, Some("v2"))), Next::Wait, "the bad one still runs");
        assert_eq!(next(&controller("aa1", 1, None)), Next::Wait);
        assert_eq!(next(&controller("aa1", 3, None)), Next::Done);
        assert_eq!(next(&controller("aa1", 1, Some("v3"))), Next::Held("v3".to_owned()));
        assert_eq!(next(&json!({ "spec": { "paused": true } })), Next::Paused);
    }
}
