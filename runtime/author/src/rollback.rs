//! `metahook rollback`: a kept version is put back, and deletions that follow from the return are agreed to.

use std::collections::BTreeMap;
use std::io::Write;
use std::time::Duration;

use metahook_core::api::hook::HookName;
use metahook_core::api::reason::ConditionType;
use metahook_core::bundle::ModulePlace;
use metahook_core::children::deletion_brake::ALLOW_DELETIONS;
use metahook_core::counted;
use metahook_server::cluster::api_client::ApiClient;
use metahook_server::hook::wasm::compile::Digest;
use metahook_server::hook::wasm::source::unpack::unpack;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::controllers::{plain, status};
use crate::deploy::packed::apply_packed;
use crate::history::{HistoryError, Target};
use crate::kept_places::all_sizes;
use crate::pack::{PackTarget, Packed, pack, pack_script};
use crate::progress::Progress;
use crate::yaml;

/// How often the controller is looked at.
const LOOK_AGAIN: Duration = Duration::from_millis(500);

/// A state that is seen for this long holds: a server writes a status every ten seconds at most.
const MIN_SURE: Duration = Duration::from_secs(12);

/// How long a command waits until all parents have settled with the version, and where it says so.
pub struct Wait {
    pub timeout: Duration,
    pub progress: Progress,
}

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
    /// It was edited, a pin excludes it, or the API server refuses it; or parents have not settled with it in time.
    pub async fn apply(&self, api: &ApiClient, wait: &Wait, mut say: impl Write) -> Result<(), HistoryError> {
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
        if wait.timeout.is_zero() {
            return Ok(());
        }
        self.agree(api, held_before.is_some(), wait, say).await
    }

    async fn read(&self, api: &ApiClient) -> Result<Value, HistoryError> {
        Ok(api.read_as(self.controller).await?.unwrap_or_default())
    }

    /// Agrees to the deletions of children that only the version before wants: who goes back means that. Where deletions waited before,
    /// something else than the module may ask for them, and the user decides.
    async fn agree(
        &self,
        api: &ApiClient,
        held_before: bool,
        wait: &Wait,
        mut say: impl Write,
    ) -> Result<(), HistoryError> {
        let (began, mut seen, mut waiting) = (Instant::now(), Seen::default(), wait.progress.waiting());
        let controller = self.controller;
        loop {
            let now = self.read(api).await?;
            let next = next(&now, &self.place.hooks, &self.kept.version.digest);
            let is_sure = seen.is_sure(&next);
            let why = match &next {
                Next::Done(parents) if is_sure => {
                    let parents = counted(*parents, "parent has", "parents have");
                    return Ok(writeln!(say, "{controller}: {parents} settled with it")?);
                }
                Next::Paused => {
                    return Ok(writeln!(say, "{controller}: paused: it goes on once it is resumed")?);
                }
                Next::Held(version) if is_sure && held_before => {
                    let why = "deletions waited before, and wait now; where they are meant";
                    return Ok(writeln!(say, "{controller}: {why}: {ALLOW_DELETIONS}={version}")?);
                }
                Next::Held(version) if is_sure => {
                    let patch = json!({ "metadata": { "annotations": { ALLOW_DELETIONS: version } } });
                    drop(api.merge::<Value>(controller, &patch).await?);
                    let why = "deletions of this return go on";
                    return Ok(writeln!(say, "{controller}: {why}: {ALLOW_DELETIONS}={version}")?);
                }
                Next::Load => "the server has not loaded it yet".to_owned(),
                Next::Settle { why, .. } => why.clone(),
                Next::Done(_) | Next::Held(_) => "the server may write its status once more".to_owned(),
            };
            if began.elapsed() >= wait.timeout {
                let after = wait.timeout.as_secs_f64();
                // Parents may go on for long, or for ever where a hook reads the clock.
                if matches!(next, Next::Settle { fails: false, .. }) {
                    return Ok(writeln!(say, "{controller}: {why} after {after} s, and the server goes on")?);
                }
                return Err(HistoryError::NotSettled { controller: controller.to_string(), after, why });
            }
            waiting.because(&format!("waiting for {controller}: {why}"));
            tokio::time::sleep(LOOK_AGAIN).await;
        }
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

/// Step that follows after a version was put back.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Next {
    /// The server loads the version.
    Load,
    /// Parents settle with it, or fail.
    Settle {
        fails: bool,
        /// Message about how many parents have settled.
        why: String,
    },
    /// All parents have settled, so many.
    Done(usize),
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
        return Next::Load;
    }
    if let Some(version) = held(controller) {
        return Next::Held(version);
    }
    let count = |count: Option<i64>| count.and_then(|count| usize::try_from(count).ok()).unwrap_or_default();
    let (parents, settled, failing) = (count(status.parents), count(status.settled), count(status.failing));
    if settled >= parents {
        return Next::Done(parents);
    }
    let fail =
        if failing == 0 { String::new() } else { format!(", and {failing} of them fail: see their Events") };
    let why = format!("{settled} of {parents} parents have settled with it{fail}");
    Next::Settle { fails: failing > 0, why }
}

/// Observations since a version was put back.
struct Seen {
    last: Next,
    since: Instant,
    /// Parents were settling with the version.
    settled_since: bool,
}

impl Default for Seen {
    fn default() -> Self {
        Self { last: Next::Load, since: Instant::now(), settled_since: false }
    }
}

impl Seen {
    /// Whether the state is about the version: counts and conditions may be older than the digest beside them, unless the server was
    /// seen at work since.
    fn is_sure(&mut self, next: &Next) -> bool {
        self.settled_since |= matches!(next, Next::Settle { .. });
        if self.last != *next {
            (self.last, self.since) = (next.clone(), Instant::now());
        }
        self.settled_since || self.since.elapsed() >= MIN_SURE
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
        assert_eq!(next(&controller("bb1", 3, Some("v2"))), Next::Load, "the bad one still runs");
        let settles = "1 of 3 parents have settled with it".to_owned();
        let settling = |fails, why: String| Next::Settle { fails, why };
        assert_eq!(next(&controller("aa1", 1, None)), settling(false, settles.clone()));
        let mut fails = controller("aa1", 1, None);
        fails["status"]["failing"] = json!(2);
        assert_eq!(next(&fails), settling(true, settles + ", and 2 of them fail: see their Events"));
        assert_eq!(next(&controller("aa1", 3, None)), Next::Done(3));
        assert_eq!(next(&controller("aa1", 1, Some("v3"))), Next::Held("v3".to_owned()));
        assert_eq!(next(&json!({ "spec": { "paused": true } })), Next::Paused);
    }

    #[tokio::test(start_paused = true)]
    async fn a_state_is_of_the_version_where_it_lasts_or_follows_work_with_it() {
        let mut seen = Seen::default();
        assert!(!seen.is_sure(&Next::Done(3)), "it may be the count of the version before");
        tokio::time::advance(MIN_SURE / 2).await;
        assert!(!seen.is_sure(&Next::Done(3)));
        tokio::time::advance(MIN_SURE / 2).await;
        assert!(seen.is_sure(&Next::Done(3)));
        assert!(!seen.is_sure(&Next::Held("v".to_owned())), "another state");
        seen.is_sure(&Next::Settle { fails: false, why: "1 of 3".to_owned() });
        assert!(seen.is_sure(&Next::Done(3)) && seen.is_sure(&Next::Held("v".to_owned())));
    }
}
