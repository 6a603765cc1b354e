//! Wait of `metahook apply` until a server runs each controller as it is written, and its parents do not fail.

use std::collections::BTreeMap;
use std::io::Write;
use std::time::Duration;

use metahook_core::api::ControllerKind;
use metahook_core::api::stored_selection::stored_selection;
use metahook_core::object::Object;
use metahook_core::object::id::{Key, ObjectId};
use metahook_core::readiness::{Failures, Readiness, readiness};
use tokio::time::Instant;

use super::{DeployError, Deployment, LOOK_INTERVAL, MAX_STATUS_AGE};

/// A controller that is applied.
pub(super) struct AppliedController {
    pub(super) id: ObjectId,
    /// Digest of the module that is to be called, by hook.
    pub(super) modules: BTreeMap<String, String>,
    /// Its parents among the same files.
    pub(super) parents: Vec<Key>,
}

/// The objects that a controller selects.
pub(super) fn parents_among(
    others: &[(ObjectId, Object)],
    kind: ControllerKind,
    controller: &Object,
) -> Vec<Key> {
    let selected = others.iter().filter(|(id, object)| {
        stored_selection(kind, controller, &id.resource.gvr())
            .is_some_and(|selection| selection.selects(object))
    });
    selected.map(|(id, _)| id.key.clone()).collect()
}

impl Deployment {
    /// All controllers share the time.
    pub(super) async fn wait_until_ready(
        &self,
        applied: &[AppliedController],
        say: &mut impl Write,
    ) -> Result<(), DeployError> {
        if self.timeout.is_zero() {
            return Ok(());
        }
        let start = Instant::now();
        for controller in applied {
            let said = self.wait_for(controller, start).await?;
            writeln!(say, "{} {said}", controller.id)?;
        }
        Ok(())
    }

    /// Waits until a controller is ready and was called, and returns what is said of it.
    async fn wait_for(&self, controller: &AppliedController, start: Instant) -> Result<String, DeployError> {
        let (id, mut waiting, mut fails_since) = (&controller.id, self.progress.waiting(), None);
        loop {
            let waited = start.elapsed();
            let now = self.api.read_as(id).await?.map(|now| readiness(&now, &controller.modules));
            let now = now.unwrap_or_else(|| Readiness::Waits("another client deleted it".to_owned()));
            let fails = matches!(now, Readiness::Failing(_) | Readiness::SomeFail(_));
            fails_since = fails_since.or_else(|| Some(Instant::now())).filter(|_| fails);
            let fails_for = fails_since.map_or(Duration::ZERO, |since: Instant| since.elapsed());
            let is_over = waited >= self.timeout;
            // The status may be about the version before.
            let is_sure = is_over || (if fails { fails_for } else { waited }) >= MAX_STATUS_AGE;
            let why = match controller.wait_result(now, is_sure) {
                WaitResult::Ends(said) => return said,
                WaitResult::Waits(why) if is_over => {
                    return Err(DeployError::NotReady { object: id.to_string(), after: self.timeout, why });
                }
                WaitResult::Waits(why) => why,
            };
            waiting.because(&format!("waiting for {id}: {why}"));
            tokio::time::sleep(LOOK_INTERVAL).await;
        }
    }
}

/// The command prints a line about a controller, ends with an error, or waits for a reason.
enum WaitResult {
    Ends(Result<String, DeployError>),
    Waits(String),
}

impl AppliedController {
    /// `is_sure`: a status that is so would be written by now.
    fn wait_result(&self, now: Readiness, is_sure: bool) -> WaitResult {
        let (name, object) = (&self.id.key.name, self.id.to_string());
        let ends = |said: &str| WaitResult::Ends(Ok(said.to_owned()));
        match now {
            Readiness::Ready => ends("is ready"),
            Readiness::Paused => ends(&format!(
                "is ready, and paused: nothing is written until `metahook resume controller {name}`"
            )),
            Readiness::NotCalled if is_sure => ends("is ready; no parent has been reconciled with it yet"),
            Readiness::NotCalled => WaitResult::Waits("no parent has been reconciled with it yet".to_owned()),
            // Without a parent among the files, no result of these files is left to come.
            Readiness::Unsettled if is_sure || self.parents.is_empty() => ends("is ready"),
            Readiness::Unsettled => WaitResult::Waits("not all parents have settled yet".to_owned()),
            Readiness::SomeFail(failures) if is_sure && failures.are_among(&self.parents) => {
                WaitResult::Ends(Err(DeployError::SomeFail { object, why: failures.message }))
            }
            Readiness::SomeFail(failures) if is_sure => ends(&format!("is ready, and {}", failures.message)),
            Readiness::Failing(why) if is_sure => WaitResult::Ends(Err(DeployError::Fails { object, why })),
            Readiness::Refused(why) => WaitResult::Ends(Err(DeployError::Refused { object, why })),
            Readiness::SomeFail(Failures { message: why, .. })
            | Readiness::Failing(why)
            | Readiness::Waits(why) => WaitResult::Waits(why),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use http::Response;
    use metahook_core::object::id::{Gvk, Resource};
    use metahook_core::readiness::failing_message;
    use serde_json::{Value, json};

    use super::super::parsed;
    use super::*;
    use crate::progress::Progress;
    use crate::progress::tests::recorded;
    use metahook_server::cluster::fake;

    fn controller() -> ObjectId {
        let gvk = Gvk::new("metacontroller.k8s.io/v1alpha1", "CompositeController");
        let plural = "compositecontrollers".into();
        let resource = Resource { gvk, plural, namespaced: false, has_status: true };
        ObjectId { resource: Arc::new(resource), key: Key::new("", "c") }
    }

    fn applied(modules: &[(&str, &str)], parents: &[&str]) -> [AppliedController; 1] {
        let modules =
            modules.iter().map(|(hook, digest)| ((*hook).to_owned(), (*digest).to_owned())).collect();
        let parents = parents.iter().map(|name| Key::new("n", name)).collect();
        [AppliedController { id: controller(), modules, parents }]
    }

    fn deployment(status: &Value, timeout: u64) -> Deployment {
        let body = json!({ "metadata": { "name": "c", "generation": 1 }, "status": status }).to_string();
        let api = fake::answering(move |_| Some(Response::new(body.clone())));
        let (namespace, timeout) = ("n".to_owned(), Duration::from_secs(timeout));
        Deployment { api, namespace, timeout, progress: Progress::default() }
    }

    #[tokio::test(start_paused = true)]
    async fn a_controller_that_no_server_takes_up_is_waited_for_until_the_timeout() {
        let applied = applied(&[], &[]);
        let mut said = Vec::new();
        let start = Instant::now();
        let (progress, told) = recorded();
        let waiting = Deployment { progress, ..deployment(&json!({}), 60) };
        let waits = waiting.wait_until_ready(&applied, &mut said).await;
        assert!(told().starts_with("metahook: waiting for CompositeController c: no server"), "{}", told());
        assert_eq!(told().lines().count(), 1, "{}", told());
        let error = waits.unwrap_err().to_string();
        assert!(
            error.starts_with("CompositeController c is not ready after 60 s: no server has said"),
            "{error}"
        );
        assert!(start.elapsed() >= Duration::from_mins(1) && said.is_empty());
        let start = Instant::now();
        deployment(&json!({}), 0).wait_until_ready(&applied, &mut said).await.unwrap();
        assert_eq!(start.elapsed(), Duration::ZERO, "no time to wait");
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_calls_another_module_is_waited_for() {
        let ready = json!({
            "observedGeneration": 1,
            "conditions": [{ "type": "Ready", "status": "True", "reason": "R", "message": "", "lastTransitionTime": "t" }],
            "hooks": { "sync": { "digest": "sha256:1" } },
        });
        let waits = async |digest: &str| {
            let (applied, mut said) = (applied(&[("sync", digest)], &[]), Vec::new());
            let waits = deployment(&ready, 1).wait_until_ready(&applied, &mut said).await;
            waits.map_err(|error| error.to_string()).map(|()| String::from_utf8(said).unwrap())
        };
        assert_eq!(waits("sha256:1").await, Ok("CompositeController c is ready\n".to_owned()));
        assert!(waits("sha256:2").await.unwrap_err().contains("is to call sha256:2"));
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_decided_is_not_waited_for() {
        let waits = async |kind: &str, reason: &str, message: &str, status: Value| {
            let of = if status["failing"] == 1 || kind == "ModulesLoaded" { "False" } else { "True" };
            let condition = json!({ "type": kind, "status": of, "reason": reason, "message": message, "lastTransitionTime": "t" });
            let mut all = json!({ "observedGeneration": 1, "conditions": [condition], "parents": 1 });
            all.as_object_mut().unwrap().extend(status.as_object().cloned().unwrap());
            let applied = applied(&[("sync", "sha256:2")], &["a"]);
            let (mut said, start) = (Vec::new(), Instant::now());
            let waits = deployment(&all, 60).wait_until_ready(&applied, &mut said).await;
            let said = waits.map_or_else(|error| error.to_string(), |()| String::from_utf8(said).unwrap());
            (said, start.elapsed().as_secs())
        };
        let (said, after) = waits("ModulesLoaded", "ModuleInvalid", "l; refused: sha256:2", json!({})).await;
        assert!(said.contains("waiting does not help: ModulesLoaded is False (ModuleInvalid)"), "{said}");
        assert_eq!(after, 0);
        let hooks = |earlier: Value| json!({ "sync": { "digest": "sha256:2", "instructionsP50": 5, "earlier": earlier } });
        let failing = json!({ "failing": 1, "hooks": hooks(json!([])) });
        let (said, after) = waits("Ready", "AllParentsFailing", "boom", failing).await;
        assert_eq!((&*said, after), ("CompositeController c runs, and its parents fail: boom", 12));
        let (said, after) = waits("Ready", "Paused", "", json!({ "hooks": hooks(json!([])) })).await;
        assert!(
            said.ends_with("is ready, and paused: nothing is written until `metahook resume controller c`\n")
        );
        assert_eq!(after, 0);
        let uncalled = json!({ "hooks": { "sync": { "digest": "sha256:2" } } });
        let (said, after) = waits("Ready", "Running", "", uncalled).await;
        assert!(
            said.ends_with("is ready; no parent has been reconciled with it yet\n") && after == 12,
            "{said}"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn parents_that_fail_are_told_and_those_of_the_files_are_an_error() {
        let waits = async |parents: &[&str], settled: i64, failing: i64| {
            let reason = if failing > 0 { "ParentsFailing" } else { "Running" };
            let message = failing_message(1, 3, "n/a (HookTrap): boom");
            let status = json!({
                "observedGeneration": 1, "parents": 3, "settled": settled, "failing": failing,
                "conditions": [{ "type": "Ready", "status": "True", "reason": reason, "message": message, "lastTransitionTime": "t" }],
            });
            let (applied, mut said, start) = (applied(&[], parents), Vec::new(), Instant::now());
            let waits = deployment(&status, 60).wait_until_ready(&applied, &mut said).await;
            let said = waits.map_err(|error| error.to_string()).map(|()| String::from_utf8(said).unwrap());
            (said, start.elapsed().as_secs())
        };
        let why = "1 of 3 parents fails; see their Events. The first is n/a (HookTrap): boom";
        let own = format!("CompositeController c is ready, and parents among these files fail: {why}");
        assert_eq!(waits(&["a"], 2, 1).await, (Err(own), 12));
        let other = format!("CompositeController c is ready, and {why}\n");
        for parents in [&["b"] as &[&str], &[]] {
            assert_eq!(waits(parents, 2, 1).await, (Ok(other.clone()), 12));
        }
        let ready = || Ok("CompositeController c is ready\n".to_owned());
        assert_eq!(waits(&["a"], 3, 0).await, (ready(), 0));
        assert_eq!(waits(&["a"], 2, 0).await, (ready(), 12), "one of the files may be about to fail");
        assert_eq!(waits(&[], 2, 0).await, (ready(), 0));
    }

    #[test]
    fn parents_are_the_objects_that_the_controller_selects() {
        let of = |plural: &str, name: &str, labels: Value| {
            let gvk = Gvk::new("e.com/v1", "Thing");
            let resource = Resource { gvk, plural: plural.into(), namespaced: true, has_status: true };
            let id = ObjectId { resource: Arc::new(resource), key: Key::new("n", name) };
            let metadata = json!({ "namespace": "n", "name": name, "uid": name, "labels": labels });
            let thing = json!({ "apiVersion": "e.com/v1", "kind": "Thing", "metadata": metadata });
            (id.clone(), parsed(&id, &thing).unwrap())
        };
        let others = [
            of("things", "selected", json!({ "a": "b" })),
            of("things", "unselected", json!({})),
            of("others", "other", json!({ "a": "b" })),
        ];
        let selector = json!({ "matchLabels": { "a": "b" } });
        let parents = json!({ "apiVersion": "e.com/v1", "resource": "things", "labelSelector": selector });
        let stored =
            json!({ "metadata": { "name": "c", "uid": "c" }, "spec": { "parentResource": parents } });
        let stored = parsed(&controller(), &stored).unwrap();
        let found = parents_among(&others, ControllerKind::Composite, &stored);
        assert_eq!(found, [Key::new("n", "selected")]);
    }
}
