//! Plan of one reconcile: what it reads, what it asks the hook, and what it makes of the answer.
//!
//! A plan is made of a [`ReconcileInput`] and nothing else, and the fingerprint is made of the same value, so that no input can
//! be forgotten. CompositeControllers and DecoratorControllers share all of it; their differences are [`KindConfig`]: the words
//! of requests and answers, whose child an object is, and the mark on each child. Whatever is wrong with an answer (JSON, types,
//! undeclared kinds, names twice, labels that do not match) refuses all of it before the first write.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value};

use crate::api::ControllerKind;
use crate::api::deletion::Grant;
use crate::api::hook::{Call, EnabledHook, HookName, HookVersion, PerHook, Via};
use crate::api::selection::Selection;
use crate::children::claims::{self, Claim, Maker};
use crate::children::desired::{
    ChildKind, Desired, DesiredError, DesiredOptions, OwnerMark, UnmanagedChild, UnmanagedPolicy, Wanted,
};
use crate::children::write_history::PastWrites;
use crate::children::{self, Op, Owner, Plan};
use crate::decorator::Decoration;
use crate::hash::{Fingerprint, Fingerprinter};
use crate::hook::customize;
use crate::hook::read::ReadOptions;
use crate::hook::request;
use crate::hook::response::{self, HookEvent, Mode, Response};
use crate::hook::response_error::AnswerWarning;
use crate::hook::response_error::ResponseError;
use crate::object::Object;
use crate::object::child_selector::{self, ChildSelectorError};
use crate::object::id::Resource;
use crate::object::map::ChildMap;
use crate::object::selector::Selector;
use crate::reconcile::phase;
use crate::related::deletion::Deletion;
use crate::related::deletion::{self, DeletionError, ShownObjects};
use crate::related::selection::Related;
use crate::rollout::RollingConfig;
use crate::rollout::pass::RolloutState;
use crate::rollout::revisions::RevisionError;

/// What a controller's spec says, as its passes need it. It is fixed as long as the controller runs: another spec is
/// another controller, which knows nothing of what this one found.
#[derive(Debug, Clone)]
pub struct ControllerConfig {
    /// The controller's name.
    pub controller: String,
    pub kind: KindConfig,
    pub selection: Selection,
    pub rules: Vec<ChildKind>,
    /// The controller as hooks see it.
    pub snapshot: String,
    pub hooks: PerHook<HookConfig>,
    pub max_children: usize,
    /// Kinds of related objects that hooks may delete.
    pub deletions: Vec<Grant>,
}

/// What the two kinds of controllers do not have in common.
#[derive(Debug, Clone)]
pub enum KindConfig {
    Composite {
        generate_selector: bool,
        /// Where there are kinds that are updated one child after the other.
        rolling: Option<RollingConfig>,
    },
    Decorator,
}

/// How one hook is asked, and how its answers are read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HookConfig {
    pub version: HookVersion,
    pub mode: Mode,
    pub settings: Option<String>,
    pub via: Via,
}

/// Everything a pass reads that may be different the next time. Its decisions are made from this, and this is what its
/// fingerprint is made of, so that none of it can be forgotten.
#[derive(Debug)]
pub struct ReconcileInput {
    pub parent: Arc<Object>,
    /// Which hook is asked about it; follows from the parent.
    pub ask: HookName,
    /// What the hooks are made of: their modules, and the files they may read.
    pub hooks: Fingerprint,
    /// What the customize hook asked for. Its rules are in here by what they find: nothing else comes of them.
    pub related: Related,
    /// Which children the parent has; made from its uid or its spec. `None`: those that it controls.
    pub selector: Option<Selector>,
    /// What is the parent's, and what could be; without what it leaves alone.
    pub claims: Vec<ClaimedObject>,
    /// The states of the parent that its children are at, where they are updated one after the other.
    pub rolled: Option<RolloutState>,
    /// What older controllers of the kind want of the object itself; of parents of composites nothing.
    pub elders: Option<Fingerprint>,
}

/// What a pass knows before it looks at children.
#[derive(Debug)]
pub struct InputParts {
    pub ask: HookName,
    pub hooks: Fingerprint,
    pub related: Related,
    pub rolled: Option<RolloutState>,
    pub elders: Option<Fingerprint>,
}

/// One object and what becomes of it.
#[derive(Debug)]
pub struct ClaimedObject {
    pub resource: Arc<Resource>,
    pub object: Arc<Object>,
    pub claim: Claim,
}

/// What a pass wants done, once its claims are carried out.
#[derive(Debug, Default)]
pub struct ReconcilePlan {
    /// Claims of revisions: written before any child is, and where that fails no child is.
    pub revisions: Vec<Op>,
    pub plan: Plan,
    /// What the plan is made from.
    pub desired: Desired,
    pub strays: Vec<UnmanagedChild>,
    /// What the hook wants of the object itself: of a composite's parent the status alone.
    pub wish: Decoration,
    pub resync_after: Option<Duration>,
    /// Related objects that go, after everything else: what cannot be undone is done when the rest is.
    pub deletions: Vec<Op>,
    /// Our finalizer comes off, before anything else. Not in a pass that deletes: who has it deleted is asked again, until
    /// nothing is left to delete.
    pub finalized: bool,
    /// A child of a rolling update goes to the latest state of its parent: the end is one step nearer.
    pub moved: bool,
    pub said: HookFeedback,
}

/// What an answer gives to tell people.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct HookFeedback {
    /// The hook's own words about the parent.
    pub events: Vec<HookEvent>,
    /// What is odd about the answer.
    pub oddities: Vec<AnswerWarning>,
    /// So many children are deleted because the answer has no list of children at all; 0 for a single one.
    pub forgot: usize,
}

/// An answer that is not carried out.
#[derive(Debug, thiserror::Error)]
pub enum AnswerError {
    #[error(transparent)]
    Response(#[from] ResponseError),
    #[error(transparent)]
    Desired(#[from] DesiredError),
    #[error(transparent)]
    Deletion(#[from] DeletionError),
    #[error(transparent)]
    Revision(#[from] RevisionError),
    #[error("asked about the parent as it was at ControllerRevision {revision}")]
    Older { revision: String, source: Box<AnswerError> },
}

impl ControllerConfig {
    /// Looks at a parent that a hook is to be asked about, and at what `candidates` names for each kind of children: what
    /// it controls, and what nobody controls and its selector matches.
    ///
    /// # Errors
    /// The parent says not which children it has. One that is finalized has those that it controls, or it could never go.
    pub fn see(
        &self,
        parent: &Arc<Object>,
        before: InputParts,
        candidates: impl Fn(&Arc<Resource>, Option<&Selector>) -> Vec<Arc<Object>>,
    ) -> Result<ReconcileInput, ChildSelectorError> {
        let InputParts { ask, hooks, related, rolled, elders } = before;
        let selector = match self.kind {
            KindConfig::Decorator => None,
            KindConfig::Composite { generate_selector, .. } => {
                match child_selector::selector(parent, generate_selector) {
                    Ok(selector) => Some(selector),
                    Err(_) if ask == HookName::Finalize => None,
                    Err(error) => return Err(error),
                }
            }
        };
        let mut claims = Vec::new();
        for rule in &self.rules {
            for object in candidates(&rule.resource, selector.as_ref()) {
                let claim = match self.kind {
                    KindConfig::Composite { .. } => claims::decide(parent, selector.as_ref(), &object),
                    KindConfig::Decorator => claims::attached(parent, &self.controller, &object),
                };
                if claim != Claim::Leave {
                    claims.push(ClaimedObject { resource: Arc::clone(&rule.resource), object, claim });
                }
            }
        }
        Ok(ReconcileInput {
            parent: Arc::clone(parent),
            ask,
            hooks,
            related,
            selector,
            claims,
            rolled,
            elders,
        })
    }

    /// What the hook is asked about the parent, as it is or as it was.
    pub fn request(
        &self,
        seen: &ReconcileInput,
        (parent, related): (&Object, &Related),
        children: &ChildMap,
    ) -> Vec<u8> {
        let hook = self.hook(seen.ask);
        let request = request::Sync {
            kind: self.kind.name(),
            controller: &self.snapshot,
            parent,
            children,
            related: &related.objects,
            settings: hook.settings.as_deref(),
            naming: hook.version.naming(),
            finalizing: seen.ask == HookName::Finalize,
        };
        request.bytes()
    }

    /// What the customize hook is asked about a parent.
    pub fn customize_request(&self, parent: &Object) -> Vec<u8> {
        let settings = self.hooks.customize.as_ref().and_then(|hook| hook.settings.as_deref());
        customize::Request { controller: &self.snapshot, parent, settings }.bytes()
    }

    /// What is to be done because the hook answered this.
    ///
    /// # Errors
    /// Whatever is wrong with an answer refuses all of it.
    pub fn decide(
        &self,
        seen: &ReconcileInput,
        children: &ChildMap,
        answer: &[u8],
        past: PastWrites<'_>,
    ) -> Result<ReconcilePlan, AnswerError> {
        let answer = self.read(seen, answer)?;
        let deletions = self.deletions(seen, children, &answer.deletions)?;
        let Response { wish, children: wanted, forgot_children, resync_after, finalized, .. } = answer;
        let said = HookFeedback { events: answer.events, oddities: answer.warnings, forgot: 0 };
        let mut decided = ReconcilePlan { wish, resync_after, said, ..ReconcilePlan::default() };
        decided.end(finalized, deletions);
        // A decorator's attachments follow its last answer, too: its finalizer is off by then, but it was there.
        let is_off = finalized && matches!(self.kind, KindConfig::Composite { .. });
        if phase::manages_children(&seen.parent, &self.selection, is_off) {
            let Wanted { desired, strays, .. } = self.wanted(seen, wanted)?;
            decided.strays = strays;
            decided.plan_for(desired, self.owner(&seen.parent), children, past);
            decided.tell_forgotten(forgot_children);
        }
        Ok(decided)
    }

    pub(crate) fn read(&self, seen: &ReconcileInput, answer: &[u8]) -> Result<Response, ResponseError> {
        let hook = self.hook(seen.ask);
        let (kind, max_children) = (self.kind.name(), self.max_children);
        let deletes = !self.deletions.is_empty();
        response::sync(answer, ReadOptions { kind, via: hook.via, mode: hook.mode, max_children, deletes })
    }

    /// The related objects that an answer may have deleted.
    pub(crate) fn deletions(
        &self,
        seen: &ReconcileInput,
        children: &ChildMap,
        asked: &[Deletion],
    ) -> Result<Vec<Op>, DeletionError> {
        let naming = self.hook(seen.ask).version.naming();
        let (parent, related) = (&seen.parent, &seen.related.objects);
        deletion::check(asked, &self.deletions, ShownObjects { parent, children, related, naming })
    }

    pub(crate) fn wanted(
        &self,
        seen: &ReconcileInput,
        children: Vec<Map<String, Value>>,
    ) -> Result<Wanted, DesiredError> {
        let bounds = DesiredOptions {
            rules: &self.rules,
            selector: seen.selector.as_ref(),
            mark: match self.kind {
                KindConfig::Composite { generate_selector: true, .. } => OwnerMark::Uid,
                KindConfig::Composite { generate_selector: false, .. } => OwnerMark::Own,
                KindConfig::Decorator => OwnerMark::Attached(&self.controller),
            },
            strays: match self.hook(seen.ask).via {
                Via::Wasm => UnmanagedPolicy::Refused,
                Via::Webhook => UnmanagedPolicy::Created,
            },
        };
        children::desired::desired(&seen.parent, bounds, children)
    }

    /// Whose children they are, and how they are written.
    pub fn owner<'a>(&'a self, parent: &'a Object) -> Owner<'a> {
        let hash_secrets = self.hooks.sync.via == Via::Wasm;
        Owner {
            parent,
            kind: self.kind.name(),
            controller: &self.controller,
            rules: &self.rules,
            hash_secrets,
        }
    }

    /// The controller to which an object is left, whosever it seems to be, as long as that controller exists. Which
    /// attachments are a decorator's own is no question.
    pub fn other_maker<'a>(&self, object: &'a Object) -> Option<Maker<'a>> {
        match self.kind {
            KindConfig::Composite { .. } => claims::maker(object)
                .filter(|maker| maker.kind != self.kind.name() || maker.name != self.controller),
            KindConfig::Decorator => None,
        }
    }

    fn hook(&self, name: HookName) -> &HookConfig {
        // The gate names a finalize hook only where there is one.
        self.hooks.get(name).unwrap_or(&self.hooks.sync)
    }

    /// No children yet, of any of the declared kinds.
    pub fn no_children(&self) -> ChildMap {
        let mut children = ChildMap::default();
        for rule in &self.rules {
            children.declare(&rule.resource);
        }
        children
    }
}

impl KindConfig {
    pub fn name(&self) -> ControllerKind {
        match self {
            Self::Composite { .. } => ControllerKind::Composite,
            Self::Decorator => ControllerKind::Decorator,
        }
    }

    pub fn rolling(&self) -> Option<&RollingConfig> {
        match self {
            Self::Composite { rolling, .. } => rolling.as_ref(),
            Self::Decorator => None,
        }
    }

    /// Whether parents adopt what the selectors in their own spec match.
    pub fn adopts_by_own_selectors(&self) -> bool {
        match self {
            Self::Composite { generate_selector, .. } => !generate_selector,
            Self::Decorator => false,
        }
    }
}

impl ReconcilePlan {
    /// How it ends: what is deleted, and whether the parent may go.
    pub(crate) fn end(&mut self, finalized: bool, deletions: Vec<Op>) {
        self.finalized = finalized && deletions.is_empty();
        self.deletions = deletions;
    }

    /// Plans for what is wanted of children.
    pub(crate) fn plan_for(
        &mut self,
        desired: Desired,
        owner: Owner<'_>,
        children: &ChildMap,
        past: PastWrites<'_>,
    ) {
        self.plan = children::plan::children(owner, children, &desired, past);
        self.desired = desired;
        self.resync_after = [self.resync_after, self.plan.again].into_iter().flatten().min();
    }

    /// An answer without a list of children deletes all there are: of several that is told.
    pub(crate) fn tell_forgotten(&mut self, forgot_children: bool) {
        if forgot_children && self.plan.ops.len() > 1 {
            self.said.forgot = self.plan.ops.len();
        }
    }
}

impl HookConfig {
    pub fn of(hook: &EnabledHook) -> Self {
        let settings = match &hook.call {
            Call::Wasm(wasm) => wasm.settings.as_ref().map(ToString::to_string),
            Call::Webhook(_) => None,
        };
        Self { version: hook.version, mode: hook.mode(), settings, via: hook.via() }
    }

    /// A module's hook.
    pub fn wasm(version: HookVersion, settings: Option<String>) -> Self {
        Self { version, mode: version.mode(), settings, via: Via::Wasm }
    }
}

impl ReconcileInput {
    /// The same for two passes exactly if they see the same. An object is told by uid and version, and by the deletion
    /// that was asked for and that no version tells of yet.
    pub fn fingerprint(&self) -> Fingerprint {
        let mut all = Fingerprinter::default();
        all.add(self.hooks.as_bytes());
        all.add(self.elders.as_ref().map_or(&[], Fingerprint::as_bytes));
        let rolled = self.rolled.iter();
        for related in std::iter::once(&self.related).chain(rolled.clone().flat_map(|rolled| &rolled.related))
        {
            related.fingerprint(&mut all);
        }
        let claims = self.claims.iter().chain(rolled.flat_map(|rolled| &rolled.revisions));
        for object in std::iter::once(&self.parent).chain(claims.map(|claimed| &claimed.object)) {
            all.add(object.uid.as_str().as_bytes());
            all.add(object.version.as_str().as_bytes());
            all.add(&[u8::from(object.deleting)]);
        }
        all.finish()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::api::common::UpdateMethod;
    use crate::api::finalizer;
    use crate::api::selection::SelectionRule;
    use crate::children::last_applied::{ATTACHED_BY, LAST_APPLIED, MADE_BY};
    use crate::children::write_history::WriteHistory;
    use crate::object::id::Gvr;
    use crate::object::testing::{Build, a, resource};
    use crate::related::{
        self,
        rule::{Finds, Place},
    };

    fn terms() -> ControllerConfig {
        ControllerConfig {
            controller: "c".to_owned(),
            selection: Selection::default(),
            rules: vec![ChildKind::new(resource("v1", "Pod"), UpdateMethod::InPlace)],
            kind: KindConfig::Composite { generate_selector: true, rolling: None },
            snapshot: "{}".to_owned(),
            hooks: PerHook { sync: HookConfig::wasm(HookVersion::V1, None), finalize: None, customize: None },
            max_children: 10,
            deletions: vec![],
        }
    }

    fn parent() -> Build {
        a("e/v1", "P", "n/p").uid("p").version("1")
    }

    fn child(name: &str) -> Build {
        a("v1", "Pod", &format!("n/{name}")).label(child_selector::UID_LABEL, "p").controlled_by("p")
    }

    fn before(ask: HookName, hook: &[u8]) -> InputParts {
        InputParts {
            ask,
            hooks: Fingerprint::of(hook),
            related: Related::default(),
            rolled: None,
            elders: None,
        }
    }

    fn seen(parent: Build, hook: &[u8], pods: Vec<Build>) -> Fingerprint {
        seen_with(parent, before(HookName::Sync, hook), pods)
    }

    fn seen_with(parent: Build, before: InputParts, pods: Vec<Build>) -> Fingerprint {
        let pods: Vec<_> = pods.into_iter().map(Build::object).collect();
        terms().see(&parent.object(), before, |_, _| pods.clone()).unwrap().fingerprint()
    }

    /// The same pass, where the customize hook asked for all of a kind, and these are all of it.
    fn seen_beside(settings: Vec<Build>) -> Fingerprint {
        let settings: Vec<_> = settings.into_iter().map(Build::object).collect();
        let finds = Finds::Labels { place: Place::Anywhere, labels: Selector::default() };
        let rule = related::rule::RelatedRule { resource: resource("v1", "Secret"), finds };
        let related = Related::find(&parent().object(), &[rule], |_| settings.clone());
        seen_with(parent(), InputParts { related, ..before(HookName::Sync, b"module") }, vec![child("a")])
    }

    #[test]
    fn whatever_a_pass_reads_is_in_its_fingerprint() {
        let usual = || seen(parent(), b"module", vec![child("a")]);
        assert_eq!(usual(), usual());
        for (what, other) in [
            ("the parent's version", seen(parent().version("2"), b"module", vec![child("a")])),
            ("another parent of that name", seen(parent().uid("q"), b"module", vec![child("a")])),
            ("the hook", seen(parent(), b"other", vec![child("a")])),
            ("a child's version", seen(parent(), b"module", vec![child("a").version("2")])),
            ("another child of that name", seen(parent(), b"module", vec![child("a").uid("b")])),
            ("a deletion asked for", seen(parent(), b"module", vec![child("a").deleting()])),
            ("a child that went", seen(parent(), b"module", vec![])),
            ("a child that came", seen(parent(), b"module", vec![child("a"), child("b")])),
            (
                "an orphan that matches",
                seen(
                    parent(),
                    b"module",
                    vec![child("a"), a("v1", "Pod", "n/o").label(child_selector::UID_LABEL, "p")],
                ),
            ),
            ("a kind that the customize hook asked for", seen_beside(vec![])),
            (
                "what older decorators want",
                seen_with(
                    parent(),
                    InputParts { elders: Some(Fingerprint::of(b"x")), ..before(HookName::Sync, b"module") },
                    vec![child("a")],
                ),
            ),
        ] {
            assert_ne!(usual(), other, "{what}");
        }
        let setting = || a("v1", "Secret", "n/s");
        assert_ne!(seen_beside(vec![setting()]), seen_beside(vec![]));
        assert_ne!(seen_beside(vec![setting()]), seen_beside(vec![setting().version("2")]));
    }

    #[test]
    fn what_a_parent_leaves_alone_is_not_in_it() {
        let stranger = a("v1", "Pod", "n/x");
        assert_eq!(seen(parent(), b"m", vec![stranger]), seen(parent(), b"m", vec![]));
    }

    #[test]
    fn a_parent_that_is_going_keeps_its_children_and_gets_its_status_though_they_are_not_in_order() {
        let answer = br#"{"status":{"a":1},"children":[{"kind":"Secret"}]}"#;
        let terms = terms();
        let decide = |parent: Build| {
            let seen = terms.see(&parent.object(), before(HookName::Sync, b""), |_, _| vec![]).unwrap();
            let past = PastWrites { ledger: &WriteHistory::default(), now: Duration::ZERO };
            terms.decide(&seen, &terms.no_children(), answer, past)
        };
        assert!(decide(parent()).is_err());
        let decided = decide(parent().deleting()).unwrap();
        let status = json!({"a": 1}).as_object().cloned();
        assert_eq!((decided.plan, decided.wish.status), (Plan::default(), status));
    }

    #[test]
    fn a_parent_goes_when_nothing_is_left_to_delete() {
        let decide = |terms: &ControllerConfig, secret: Build| {
            let mut related = Related::default();
            related.objects.insert(&resource("v1", "Secret"), secret.object());
            let before = InputParts { related, ..before(HookName::Sync, b"") };
            let seen = terms.see(&parent().object(), before, |_, _| vec![]).unwrap();
            let answer = format!(
                r#"{{"{}":[],"finalized":true,"deleteRelated":[{{"apiVersion":"v1","kind":"Secret","namespace":"n","name":"s","uid":"u"}}]}}"#,
                terms.kind.name().children()
            );
            let past = PastWrites { ledger: &WriteHistory::default(), now: Duration::ZERO };
            let decided = terms.decide(&seen, &terms.no_children(), answer.as_bytes(), past);
            decided
                .map(|decided| (decided.deletions.len(), decided.finalized))
                .map_err(|error| error.to_string())
        };
        let secret = || a("v1", "Secret", "n/s").uid("u");
        for kind in [terms().kind, KindConfig::Decorator] {
            let mut terms = ControllerConfig { kind, ..terms() };
            let refused = decide(&terms, secret()).unwrap_err();
            assert!(refused.contains("spec does not let its hooks delete such objects"), "{refused}");
            terms.hooks.sync.via = Via::Webhook;
            assert_eq!(decide(&terms, secret()), Ok((0, true)), "a field that nobody knows");
            terms.deletions = vec![Grant { resource: Gvr::new("v1", "secrets"), any_namespace: false }];
            assert_eq!(decide(&terms, secret()), Ok((1, false)));
            assert_eq!(decide(&terms, secret().deleting()), Ok((0, true)));
        }
    }

    #[test]
    fn a_parent_without_a_selector_is_finalized_with_what_it_controls() {
        let terms = ControllerConfig {
            kind: KindConfig::Composite { generate_selector: false, rolling: None },
            ..terms()
        };
        let pods = [child("a").object(), a("v1", "Pod", "n/orphan").object()];
        let see = |ask| terms.see(&parent().object(), before(ask, b""), |_, _| pods.to_vec());
        assert!(see(HookName::Sync).is_err());
        let seen = see(HookName::Finalize).unwrap();
        assert_eq!(seen.claims.iter().map(|one| &*one.object.key.name).collect::<Vec<_>>(), ["a"]);
    }

    fn decorator() -> ControllerConfig {
        let selection = Selection {
            rules: vec![SelectionRule::default()],
            finalizer: finalizer::name(ControllerKind::Decorator, "c"),
            finalizes: true,
        };
        ControllerConfig { kind: KindConfig::Decorator, selection, ..terms() }
    }

    fn attachment(name: &str, by: &str) -> Build {
        a("v1", "Pod", &format!("n/{name}")).controlled_by("p").annotation(ATTACHED_BY, by)
    }

    fn decided(
        terms: &ControllerConfig,
        parent: Build,
        pods: &[Arc<Object>],
        answer: &Value,
    ) -> ReconcilePlan {
        let seen = terms.see(&parent.object(), before(HookName::Sync, b""), |_, _| pods.to_vec()).unwrap();
        let mut children = terms.no_children();
        for claimed in seen.claims.iter().filter(|one| one.claim == Claim::Keep) {
            children.insert(&claimed.resource, Arc::clone(&claimed.object));
        }
        let past = PastWrites { ledger: &WriteHistory::default(), now: Duration::ZERO };
        terms.decide(&seen, &children, answer.to_string().as_bytes(), past).unwrap()
    }

    #[test]
    fn a_decorator_has_the_attachments_that_it_made_and_adopts_nothing() {
        let pods = [
            attachment("ours", "c").object(),
            attachment("theirs", "d").object(),
            a("v1", "Pod", "n/child").controlled_by("p").object(),
            a("v1", "Pod", "n/orphan").label(child_selector::UID_LABEL, "p").object(),
        ];
        let see = || {
            let parent = parent().with("spec.selector", json!("no selector")).object();
            decorator().see(&parent, before(HookName::Sync, b""), |_, _| pods.to_vec()).unwrap()
        };
        assert_eq!(see().claims.iter().map(|one| &*one.object.key.name).collect::<Vec<_>>(), ["ours"]);
        assert_eq!(see().selector, None);
        let request =
            decorator().request(&see(), (&see().parent, &see().related), &decorator().no_children());
        let request: Value = serde_json::from_slice(&request).unwrap();
        assert_eq!(request["object"]["metadata"]["name"], "p");
        assert_eq!((&request["attachments"], request.get("children")), (&json!({"Pod.v1": {}}), None));
    }

    #[test]
    fn an_attachment_is_made_with_the_annotation_in_its_record() {
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"}});
        let plan = decided(&decorator(), parent(), &[], &json!({"attachments": [pod]})).plan;
        let [Op::Create { body, .. }] = plan.ops.as_slice() else { panic!("{plan}") };
        let record = r#"{"apiVersion":"v1","kind":"Pod","metadata":{"annotations":{"metacontroller.k8s.io/decorator-controller":"c"},"name":"x","namespace":"n"}}"#;
        assert_eq!(body["metadata"]["annotations"], json!({ATTACHED_BY: "c", LAST_APPLIED: record}));
        assert_eq!(body["metadata"]["ownerReferences"][0]["uid"], "p");
        assert_eq!(body["metadata"].get("labels"), None);
    }

    #[test]
    fn a_decorators_last_answer_decides_about_attachments_of_an_object_that_goes() {
        let finalizer = finalizer::name(ControllerKind::Decorator, "c");
        let going = |finalizers: Value| parent().deleting().with("metadata.finalizers", finalizers);
        let ops = |terms: &ControllerConfig, parent: Build, answer: Value| {
            let pods = [attachment("x", "c").label(child_selector::UID_LABEL, "p").object()];
            decided(terms, parent, &pods, &answer).plan.ops.len()
        };
        let last = || json!({"attachments": [], "finalized": true});
        assert_eq!(ops(&decorator(), going(json!([finalizer])), last()), 1);
        assert_eq!(ops(&decorator(), going(json!([finalizer, "orphan"])), last()), 0);
        assert_eq!(ops(&decorator(), going(json!(["x"])), last()), 0, "it does not wait for us");
        assert_eq!(ops(&decorator(), parent(), last()), 1, "it lives on");
        let composite = ControllerConfig { kind: terms().kind, ..decorator() };
        assert_eq!(ops(&composite, going(json!([finalizer])), json!({"children": [], "finalized": true})), 0);
    }

    #[test]
    fn a_decorator_wants_no_status_where_its_hook_says_none() {
        let wish = |answer: Value| decided(&decorator(), parent(), &[], &answer).wish;
        assert_eq!(wish(json!({"attachments": []})), Decoration::default());
        let labels = [("a".to_owned(), None)].into();
        assert_eq!(
            wish(json!({"attachments": [], "labels": {"a": null}, "status": {"b": 1}})),
            Decoration { labels, status: json!({"b": 1}).as_object().cloned(), ..Decoration::default() }
        );
    }

    #[test]
    fn a_composite_leaves_what_other_controllers_made() {
        let other = |terms: &ControllerConfig, child: Build| {
            let child = child.object();
            terms.other_maker(&child).map(|maker| (maker.kind, maker.name.to_owned()))
        };
        let made = |by: &str| child("a").annotation(MADE_BY, by);
        assert_eq!(other(&terms(), made("c")), None);
        assert_eq!(other(&terms(), made("d")), Some((ControllerKind::Composite, "d".to_owned())));
        let attached = |by: &str| other(&terms(), attachment("a", by));
        assert_eq!(attached("c"), Some((ControllerKind::Decorator, "c".to_owned())), "of the same name");
        assert_eq!(attached("d"), Some((ControllerKind::Decorator, "d".to_owned())));
        assert_eq!(other(&decorator(), made("d")), None);
    }
}
