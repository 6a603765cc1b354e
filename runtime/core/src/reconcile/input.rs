//! Input of a reconcile: the objects and settings that decide about a parent, and their fingerprint.

use std::sync::Arc;

use crate::api::hook::{HookName, HookTransport};
use crate::children::claims::{self, Claim, ClaimedObject};
use crate::hash::{Fingerprint, Fingerprinter};
use crate::hook::{self, RequestTooLarge, SizedRequest, customize};
use crate::object::cached::CachedObject;
use crate::object::id::Resource;
use crate::object::selector::{ChildSelectorError, Selector};
use crate::object::{ChildMap, Object};
use crate::reconcile::config::{ControllerConfig, KindConfig};
use crate::reconcile::rollout::{ParentState, RolloutState};
use crate::reconcile::shown::{LeftOut, Size};
use crate::related::Related;

/// Everything that a reconcile reads and that may be different the next time. Its decisions are made from this alone, and
/// the fingerprint covers all of it.
#[derive(Debug)]
pub struct ReconcileInput {
    pub parent: Arc<Object>,
    /// The hook that decides about the parent; follows from the parent.
    pub hook: HookName,
    /// The versions of all hooks: their modules, and the files that they may read.
    pub hooks: Fingerprint,
    /// The objects that the customize hook asked for. Its rules have no other effect than these objects.
    pub related: Related,
    /// The selector of the parent's children, from its uid or its spec. `None`: the objects that it controls.
    pub selector: Option<Selector>,
    /// The parent's children, and the objects that it adopts; without those that it leaves alone.
    pub claims: Vec<ClaimedObject>,
    /// The children beyond what a hook may be shown.
    pub left_out: LeftOut,
    /// The revisions of the parent, where children are updated one after the other.
    pub rollout: Option<RolloutState>,
    /// The decorations that older decorators want for the parent; `None` for parents of CompositeControllers.
    pub older_decorators: Option<Fingerprint>,
}

/// The part of the input that is known before any child is read.
#[derive(Debug)]
pub struct InputParts {
    pub hook: HookName,
    pub hooks: Fingerprint,
    pub related: Related,
    pub rollout: Option<RolloutState>,
    pub older_decorators: Option<Fingerprint>,
}

impl ReconcileInput {
    /// `candidates` gives the objects of a kind that the parent controls, and those without a controller that the selector
    /// matches.
    ///
    /// # Errors
    /// The parent has no usable selector of its children. One that is finalized keeps the objects that it controls instead,
    /// or it could never be deleted.
    pub fn of(
        config: &ControllerConfig,
        parent: &Arc<Object>,
        parts: InputParts,
        candidates: impl Fn(&Arc<Resource>, Option<&Selector>) -> Vec<CachedObject>,
    ) -> Result<Self, ChildSelectorError> {
        let InputParts { hook, hooks, related, rollout, older_decorators } = parts;
        let selector = match config.kind.child_selector(parent) {
            Err(_) if hook == HookName::Finalize => None,
            selector => selector?,
        };
        let (mut claims, mut size) = (Vec::new(), Size::default());
        for kind in &config.child_kinds {
            let shown =
                |object: &CachedObject| config.shown_secrets.shows_child(&kind.resource, object, &parent.uid);
            for object in candidates(&kind.resource, selector.as_ref()).into_iter().filter(shown) {
                let claim = match config.kind {
                    KindConfig::Composite { .. } => claims::of_composite(parent, selector.as_ref(), &object),
                    KindConfig::Decorator => claims::of_decorator(parent, &config.name, &object),
                }
                .renewed(parent, &object);
                if claim != Claim::Leave {
                    let claimed = ClaimedObject { resource: Arc::clone(&kind.resource), object, claim };
                    size.add(&claimed);
                    claims.push(claimed);
                }
            }
        }
        let rest = || {
            let older = rollout.as_ref().map_or(0, RolloutState::longest_older_state);
            let settings = config.hook(hook).settings.as_ref().map_or(0, String::len);
            let state = parent.json().len() + related.bytes();
            config.snapshot.len() + settings + state.max(older)
        };
        let left_out = size.limit(&mut claims, config.shown_bounds(hook), rest);
        let parent = Arc::clone(parent);
        Ok(Self { parent, hook, hooks, related, selector, claims, left_out, rollout, older_decorators })
    }

    /// The children that the cache does not hold whole. A hook is asked once they have been read. An orphan is read when it is
    /// adopted.
    pub fn unread(&self) -> impl Iterator<Item = &ClaimedObject> {
        self.claims.iter().filter(|one| one.claim.is_kept() && one.object.whole().is_none())
    }

    /// The input where all children follow the latest state of the parent at once.
    #[must_use]
    pub fn without_rollout(self) -> Self {
        Self { rollout: None, ..self }
    }

    /// The present state of the parent.
    pub fn state(&self) -> ParentState<'_> {
        ParentState { parent: &self.parent, related: &self.related }
    }

    /// The request to the hook about a state of the parent, with its size.
    pub fn sized_request<'a>(
        &'a self,
        config: &'a ControllerConfig,
        state: ParentState<'a>,
        children: &'a ChildMap,
    ) -> SizedRequest<'a> {
        let hook = config.hook(self.hook);
        let request = hook::Sync {
            kind: config.kind.name(),
            controller: &config.snapshot,
            parent: state.parent,
            children,
            related: &state.related.objects,
            settings: hook.settings.as_deref(),
            naming: hook.version.naming(),
            finalizing: self.hook == HookName::Finalize,
        };
        request.sized()
    }

    /// # Errors
    /// The request is too large for a module.
    pub fn put_together(
        &self,
        config: &ControllerConfig,
        request: SizedRequest<'_>,
    ) -> Result<Vec<u8>, RequestTooLarge> {
        match config.hook(self.hook).via {
            HookTransport::Wasm => request.bytes_for_module(),
            HookTransport::Webhook => Ok(request.bytes()),
        }
    }

    /// The bytes of the request to the hook about a state of the parent.
    ///
    /// # Errors
    /// It is too large for a module.
    pub fn request(
        &self,
        config: &ControllerConfig,
        state: ParentState<'_>,
        children: &ChildMap,
    ) -> Result<Vec<u8>, RequestTooLarge> {
        self.put_together(config, self.sized_request(config, state, children))
    }

    /// A number that is the same for two reconciles exactly if they read the same. Objects are identified by uid, version,
    /// and a deletion that was asked for and that their version does not show yet.
    pub fn fingerprint(&self) -> Fingerprint {
        let mut all = Fingerprinter::default();
        all.add(self.hooks.as_bytes());
        all.add(self.older_decorators.as_ref().map_or(&[], Fingerprint::as_bytes));
        let rollout = self.rollout.iter();
        let older = rollout.clone().flat_map(|rollout| &rollout.related);
        for related in std::iter::once(&self.related).chain(older) {
            related.fingerprint(&mut all);
        }
        let claims = self.claims.iter().chain(rollout.flat_map(|rollout| &rollout.revisions));
        for object in std::iter::once(&**self.parent).chain(claims.map(|claimed| &*claimed.object)) {
            all.add(object.uid.as_str().as_bytes());
            all.add(object.version.as_str().as_bytes());
            all.add(&[u8::from(object.deleting)]);
        }
        self.left_out.fingerprint(&mut all);
        all.finish()
    }
}

/// The request to the customize hook about a parent.
pub fn customize_request(config: &ControllerConfig, parent: &Object) -> Vec<u8> {
    let settings = config.hooks.customize.as_ref().and_then(|hook| hook.settings.as_deref());
    customize::request(&config.snapshot, parent, settings)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::api::common::UpdateMethod;
    use crate::api::shown_secrets::ShownSecrets;
    use crate::children::claims::ATTACHED_BY;
    use crate::children::desired::ChildKind;
    use crate::object::selector::UID_LABEL;
    use crate::object::testing::{Build, a, cached, resource};
    use crate::reconcile::testing::{child, config, decorator, input, parent, parts};
    use crate::related::rule::{Finds, RelatedRule, RuleScope};

    fn fingerprint(parent: Build, parts: InputParts, pods: Vec<Build>) -> Fingerprint {
        let pods: Vec<_> = pods.into_iter().map(Build::object).collect();
        input(&config(), parent, parts, &pods).fingerprint()
    }

    /// The input where the customize hook asked for all Secrets, and these are there.
    fn with_related(secrets: Vec<Build>) -> Fingerprint {
        let secrets: Vec<_> = secrets.into_iter().map(Build::object).collect();
        let finds = Finds::Labels { place: RuleScope::Anywhere, labels: Selector::default() };
        let rule = RelatedRule { resource: resource("v1", "Secret"), finds };
        let mut related = Related::default();
        related.add("n", 0, &rule, secrets);
        fingerprint(parent(), InputParts { related, ..parts() }, vec![child("a")])
    }

    #[test]
    fn the_fingerprint_covers_all_that_a_reconcile_reads() {
        let usual = || fingerprint(parent(), parts(), vec![child("a")]);
        assert_eq!(usual(), usual());
        let with_child = |child: Build| fingerprint(parent(), parts(), vec![child]);
        let orphan = a("v1", "Pod", "n/o").label(UID_LABEL, "p");
        let other = Fingerprint::of(b"other");
        for (what, different) in [
            ("the parent's version", fingerprint(parent().version("2"), parts(), vec![child("a")])),
            ("another parent of that name", fingerprint(parent().uid("q"), parts(), vec![child("a")])),
            ("the hook", fingerprint(parent(), InputParts { hooks: other, ..parts() }, vec![child("a")])),
            ("a child's version", with_child(child("a").version("2"))),
            ("another child of that name", with_child(child("a").uid("b"))),
            ("a deletion that was asked for", with_child(child("a").deleting())),
            ("a child that went", fingerprint(parent(), parts(), vec![])),
            ("a child that came", fingerprint(parent(), parts(), vec![child("a"), child("b")])),
            ("an orphan that matches", fingerprint(parent(), parts(), vec![child("a"), orphan])),
            ("a kind that the customize hook asked for", with_related(vec![])),
            (
                "decorations of older decorators",
                fingerprint(
                    parent(),
                    InputParts { older_decorators: Some(other), ..parts() },
                    vec![child("a")],
                ),
            ),
        ] {
            assert_ne!(usual(), different, "{what}");
        }
        let secret = || a("v1", "Secret", "n/s");
        assert_ne!(with_related(vec![secret()]), with_related(vec![]));
        assert_ne!(with_related(vec![secret()]), with_related(vec![secret().version("2")]));
    }

    #[test]
    fn children_and_attachments_that_name_another_version_of_the_parent_are_renewed() {
        let owned = |name: &str, version: &str| {
            let mut owner = claims::owner_reference(&parent().object());
            owner["apiVersion"] = json!(version);
            child(name).annotation(ATTACHED_BY, "d").with("metadata.ownerReferences", json!([owner]))
        };
        let current = parent().object().gvk.api_version();
        let pods = [owned("new", &current).object(), owned("old", "example.com/v1beta1").object()];
        let attachments = ControllerConfig { name: "d".to_owned(), ..decorator() };
        for config in [config(), attachments] {
            let input = input(&config, parent(), parts(), &pods);
            let claims: Vec<_> = input.claims.iter().map(|one| (&*one.object.key.name, one.claim)).collect();
            assert_eq!(claims, [("new", Claim::Keep), ("old", Claim::Renew)]);
        }
    }

    #[test]
    fn the_fingerprint_leaves_out_objects_that_are_left_alone() {
        let stranger = a("v1", "Pod", "n/x");
        assert_eq!(fingerprint(parent(), parts(), vec![stranger]), fingerprint(parent(), parts(), vec![]));
    }

    #[test]
    fn secrets_of_namespaces_that_are_not_shown_are_children_where_the_parent_made_them() {
        let rule = ChildKind::new(resource("v1", "Secret"), UpdateMethod::InPlace);
        let config = |namespace: &str| ControllerConfig {
            child_kinds: vec![rule.clone()],
            shown_secrets: ShownSecrets::In([namespace.to_owned()].into()),
            ..config()
        };
        let secrets = [
            a("v1", "Secret", "n/owned").controlled_by("p").object(),
            a("v1", "Secret", "n/adopted").label(UID_LABEL, "p").object(),
            a("v1", "Secret", "n/token")
                .controlled_by("p")
                .with("type", json!("kubernetes.io/service-account-token"))
                .object(),
            a("v1", "Secret", "n/odd").controlled_by("p").with("type", json!(1)).object(),
            a("v1", "Secret", "n/plain").controlled_by("p").with("type", json!("Opaque")).object(),
        ];
        let claims = |namespace| input(&config(namespace), parent(), parts(), &secrets).claims.len();
        assert_eq!((claims("n"), claims("other")), (5, 2));
    }

    #[test]
    fn a_parent_without_a_selector_is_finalized_with_what_it_controls() {
        let kind =
            KindConfig::Composite { generate_selector: false, negative_selectors: true, rolling: None };
        let config = ControllerConfig { kind, ..config() };
        let pods = [child("a").object(), a("v1", "Pod", "n/orphan").object()];
        let input = |hook| {
            let parts = InputParts { hook, ..parts() };
            ReconcileInput::of(&config, &parent().object(), parts, |_, _| cached(&pods))
        };
        assert!(input(HookName::Sync).is_err());
        let finalized = input(HookName::Finalize).unwrap();
        assert_eq!(finalized.claims.iter().map(|one| &*one.object.key.name).collect::<Vec<_>>(), ["a"]);
    }

    #[test]
    fn a_selector_that_only_excludes_is_refused_unless_it_is_allowed_and_finalized_all_the_same() {
        let pods = [child("a").object(), a("v1", "Pod", "n/orphan").object()];
        let claimed = |negative_selectors, hook| {
            let kind = KindConfig::Composite { generate_selector: false, negative_selectors, rolling: None };
            let config = ControllerConfig { kind, ..config() };
            let nothing = json!([{"key": "x", "operator": "DoesNotExist"}, {"key": "y", "operator": "NotIn", "values": ["z"]}]);
            let parent = parent().with("spec.selector", json!({ "matchExpressions": nothing })).object();
            let parts = InputParts { hook, ..parts() };
            let input = ReconcileInput::of(&config, &parent, parts, |_, _| cached(&pods));
            input.map(|input| input.claims.len()).map_err(|error| error.to_string())
        };
        let refused = claimed(false, HookName::Sync).unwrap_err();
        assert!(
            refused.contains("only excludes labels") && refused.contains("allowNegativeSelectors"),
            "{refused}"
        );
        assert_eq!(claimed(true, HookName::Sync), Ok(2));
        assert_eq!(claimed(false, HookName::Finalize), Ok(1), "what it controls");
    }

    #[test]
    fn the_fingerprint_covers_what_is_left_out() {
        let mut config = config();
        config.observed.children = 1;
        let print = |second: Build| {
            let pods = [child("a").object(), second.object()];
            input(&config, parent(), parts(), &pods).fingerprint()
        };
        assert_eq!(print(child("b")), print(child("b").version("2")), "nobody reads it");
        assert_ne!(print(child("b")), print(child("c")));
        assert_ne!(print(child("b")), print(child("b").deleting()));
    }

    #[test]
    fn a_decorator_keeps_its_own_attachments_and_adopts_nothing() {
        let attachment = |name: &str, by: &str| {
            a("v1", "Pod", &format!("n/{name}")).controlled_by("p").annotation(ATTACHED_BY, by)
        };
        let pods = [
            attachment("ours", "c").object(),
            attachment("theirs", "d").object(),
            a("v1", "Pod", "n/child").controlled_by("p").object(),
            a("v1", "Pod", "n/orphan").label(UID_LABEL, "p").object(),
        ];
        let config = decorator();
        let input = input(&config, parent().with("spec.selector", json!("no selector")), parts(), &pods);
        assert_eq!(input.claims.iter().map(|one| &*one.object.key.name).collect::<Vec<_>>(), ["ours"]);
        assert_eq!(input.selector, None);
        let request = input.request(&config, input.state(), &config.no_children()).unwrap();
        let request: Value = serde_json::from_slice(&request).unwrap();
        assert_eq!(request["object"]["metadata"]["name"], "p");
        assert_eq!((&request["attachments"], request.get("children")), (&json!({"Pod.v1": {}}), None));
    }
}
