//! Configuration of a running controller: its spec in the form that reconciles use.

use std::sync::Arc;

use crate::api::ControllerKind;
use crate::api::common::Grant;
use crate::api::customize::RelatedKinds;
use crate::api::hook::{EnabledHook, HookName, HookTarget, HookTransport, HookVersion, PerHook};
use crate::api::policy::BrakeLimits;
use crate::api::selection::Selection;
use crate::api::shown_secrets::ShownSecrets;
use crate::children::Owner;
use crate::children::claims::{self, Maker};
use crate::children::deletion_brake::Census;
use crate::children::desired::{ChildKind, DesiredOptions, OwnerMark, UnmanagedPolicy};
use crate::hook::response::Mode;
use crate::hook::{AnswerWarning, MAX_ANSWER_MEMORY, MAX_REQUEST, ignored, webhook_answer_memory};
use crate::object::cached::CachedObject;
use crate::object::id::{ObjectId, Resource};
use crate::object::selector::{ChildSelectorError, Selector, child_selector};
use crate::object::{ChildMap, Object, ObjectMeta};
use crate::reconcile::shown::{ObservedBounds, ShownBounds};
use crate::rollout::RollingConfig;

/// A controller's spec, as its reconciles use it. It stays the same as long as the controller runs: a changed spec starts
/// another controller, without the state of this one.
#[derive(Debug, Clone)]
pub struct ControllerConfig {
    pub name: String,
    pub kind: KindConfig,
    pub selection: Selection,
    pub child_kinds: Vec<ChildKind>,
    /// The controller as hooks see it.
    pub snapshot: String,
    pub hooks: PerHook<HookConfig>,
    pub max_children: usize,
    pub observed: ObservedBounds,
    /// Kinds of related objects that hooks may delete.
    pub deletions: Vec<Grant>,
    pub related_kinds: RelatedKinds,
    /// Namespaces whose Secrets may be children.
    pub shown_secrets: ShownSecrets,
    /// All parents are paused.
    pub paused: bool,
}

/// The settings that only one of the two kinds of controllers has.
#[derive(Debug, Clone)]
pub enum KindConfig {
    Composite {
        generate_selector: bool,
        /// Selectors of parents may do no more than exclude labels.
        negative_selectors: bool,
        /// `Some`: there are kinds of children that are updated one child after the other.
        rolling: Option<Arc<RollingConfig>>,
    },
    Decorator,
}

/// The protocol of one hook: how its requests are written and its answers read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HookConfig {
    pub version: HookVersion,
    pub mode: Mode,
    pub settings: Option<String>,
    pub via: HookTransport,
    /// Bound on the memory that the values of an answer take.
    pub max_memory: usize,
}

/// Limits that versions of hooks set on a parent's related objects; none for a parent without a namespace.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RelatedLimits {
    /// The customize hook, of version v1, selects objects of the parent's namespace alone.
    pub rules_are_local: bool,
    /// The hook that is asked, of version v1, is shown objects of the parent's namespace alone.
    pub shown_are_local: bool,
}

impl ControllerConfig {
    pub(crate) fn hook(&self, name: HookName) -> &HookConfig {
        // The phase names a finalize hook only where there is one.
        self.hooks.get(name).unwrap_or(&self.hooks.sync)
    }

    /// Limits that versions of hooks set on a parent's related objects; `asked`: the hook that is shown them.
    pub(crate) fn related_limits(&self, parent: &Object, asked: HookName) -> RelatedLimits {
        let is_v1 = |hook: &HookConfig| hook.version == HookVersion::V1 && !parent.key.namespace.is_empty();
        RelatedLimits {
            rules_are_local: self.hooks.customize.as_ref().is_some_and(is_v1),
            shown_are_local: is_v1(self.hook(asked)),
        }
    }

    /// Bounds of the objects that a hook's request may show.
    pub fn shown_bounds(&self, hook: HookName) -> ShownBounds {
        let request = match self.hook(hook).via {
            HookTransport::Wasm => MAX_REQUEST,
            HookTransport::Webhook => self.observed.webhook_request,
        };
        ShownBounds { children: self.observed.children, request }
    }

    /// The owner of a parent's children, and how they are written.
    pub fn owner<'a>(&'a self, parent: &'a Object) -> Owner<'a> {
        // Metacontroller cannot go on from hashes.
        let hash_secrets = !self.hooks.sync.via.follows_metacontroller();
        Owner {
            parent,
            kind: self.kind.name(),
            controller: &self.name,
            child_kinds: &self.child_kinds,
            hash_secrets,
        }
    }

    pub(crate) fn desired_options<'a>(
        &'a self,
        hook: HookName,
        selector: Option<&'a Selector>,
    ) -> DesiredOptions<'a> {
        DesiredOptions {
            child_kinds: &self.child_kinds,
            secrets: &self.shown_secrets,
            selector,
            mark: match self.kind {
                KindConfig::Composite { generate_selector: true, .. } => OwnerMark::Uid,
                KindConfig::Composite { generate_selector: false, .. } => OwnerMark::Own,
                KindConfig::Decorator => OwnerMark::Attached(&self.name),
            },
            unmanaged: if self.hook(hook).via.follows_metacontroller() {
                UnmanagedPolicy::Created
            } else {
                UnmanagedPolicy::Refused
            },
        }
    }

    /// Another controller that made the object, as the object's annotations say: as long as that controller exists, the
    /// object is left to it. A decorator knows its own attachments by their annotation, so that the question does not arise.
    pub fn other_maker<'a>(&self, object: &'a ObjectMeta) -> Option<Maker<'a>> {
        match self.kind {
            KindConfig::Composite { .. } => claims::maker(object)
                .filter(|maker| maker.kind != self.kind.name() || maker.name != self.name),
            KindConfig::Decorator => None,
        }
    }

    /// Whether an object that the parent controls is a child of this controller; the parent's selector is left out.
    pub fn keeps(&self, parent: &Object, object: &ObjectMeta) -> bool {
        let claim = match self.kind {
            KindConfig::Composite { .. } => claims::of_composite(parent, None, object),
            KindConfig::Decorator => claims::of_decorator(parent, &self.name, object),
        };
        claim.is_kept()
    }

    /// The parents, and the number of their children of kinds that count. `candidates`: the objects of a kind that a parent
    /// controls, without those of other controllers.
    pub fn census(
        &self,
        limits: &BrakeLimits,
        parents: impl IntoIterator<Item = (ObjectId, Arc<Object>)>,
        candidates: impl Fn(&Object, &Resource) -> Vec<CachedObject>,
    ) -> Census {
        let mut census = Census::default();
        for (id, parent) in parents {
            let kinds = self.child_kinds.iter().filter(|kind| !limits.is_exempt(&kind.resource.gvr()));
            let all = kinds.flat_map(|kind| candidates(&parent, &kind.resource));
            census.children += all.filter(|child| self.keeps(&parent, child)).count();
            census.parents.insert(id);
        }
        census
    }

    /// An empty map of children that names all declared kinds.
    pub fn no_children(&self) -> ChildMap {
        let mut children = ChildMap::default();
        for kind in &self.child_kinds {
            children.declare(&kind.resource);
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

    pub fn rolling(&self) -> Option<&Arc<RollingConfig>> {
        match self {
            Self::Composite { rolling, .. } => rolling.as_ref(),
            Self::Decorator => None,
        }
    }

    pub(crate) fn generates_selector(&self) -> bool {
        matches!(self, Self::Composite { generate_selector: true, .. })
    }

    /// The selector of a parent's children; a decorator has none.
    ///
    /// # Errors
    /// The parent has no usable one.
    pub(crate) fn child_selector(&self, parent: &Object) -> Result<Option<Selector>, ChildSelectorError> {
        let Self::Composite { generate_selector, negative_selectors, .. } = *self else { return Ok(None) };
        let selector = child_selector(parent, generate_selector)?;
        if selector.pin().is_none() && !negative_selectors {
            return Err(ChildSelectorError::Negative);
        }
        Ok(Some(selector))
    }

    /// Whether parents adopt children that the selectors in their own spec match.
    pub fn adopts_by_own_selectors(&self) -> bool {
        matches!(self, Self::Composite { generate_selector: false, .. })
    }
}

impl HookConfig {
    /// `max_webhook_answer`: bytes that a webhook's answer may have.
    pub fn of(hook: &EnabledHook, max_webhook_answer: usize) -> Self {
        let (settings, max_memory) = match &hook.target {
            HookTarget::Wasm(wasm) => (wasm.settings.as_ref().map(ToString::to_string), MAX_ANSWER_MEMORY),
            HookTarget::Webhook(_) => (None, webhook_answer_memory(max_webhook_answer)),
        };
        Self { version: hook.version, mode: hook.mode(), settings, via: hook.via(), max_memory }
    }

    /// Message about the parts of an answer without any effect; `None` where all of it counts, or where Metacontroller is
    /// silent about them, too.
    pub fn ignored(&self, hook: HookName, warnings: &[AnswerWarning]) -> Option<String> {
        if self.via.follows_metacontroller() { None } else { ignored(hook, warnings) }
    }

    /// A module's hook.
    pub fn wasm(version: HookVersion, settings: Option<String>) -> Self {
        let (mode, via, max_memory) = (version.mode(), HookTransport::Wasm, MAX_ANSWER_MEMORY);
        Self { version, mode, settings, via, max_memory }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::children::claims::{ATTACHED_BY, MADE_BY};
    use crate::object::testing::{Build, a};
    use crate::reconcile::testing::{child, config, decorator, parent};

    #[test]
    fn the_customize_hook_limits_its_rules_and_the_asked_hook_what_it_is_shown() {
        let hook = |version| HookConfig::wasm(version, None);
        let limits = |customize, sync, finalize, parent: Build, asked| {
            let finalize = Some(hook(finalize));
            let hooks = PerHook { sync: hook(sync), finalize, customize: Some(hook(customize)) };
            let limits = ControllerConfig { hooks, ..decorator() }.related_limits(&parent.object(), asked);
            (limits.rules_are_local, limits.shown_are_local)
        };
        let (v1, v2) = (HookVersion::V1, HookVersion::V2);
        assert_eq!(limits(v1, v2, v2, parent(), HookName::Sync), (true, false));
        assert_eq!(limits(v2, v1, v2, parent(), HookName::Sync), (false, true));
        assert_eq!(limits(v2, v1, v2, parent(), HookName::Finalize), (false, false));
        assert_eq!(limits(v2, v2, v1, parent(), HookName::Finalize), (false, true));
        let without_namespace = a("e/v1", "P", "p");
        assert_eq!(limits(v1, v1, v1, without_namespace, HookName::Sync), (false, false));
    }

    #[test]
    fn a_composite_leaves_children_of_other_controllers() {
        let other = |config: &ControllerConfig, child: Build| {
            let child = child.object();
            config.other_maker(&child).map(|maker| (maker.kind, maker.name.to_owned()))
        };
        let made = |by: &str| child("a").annotation(MADE_BY, by);
        assert_eq!(other(&config(), made("c")), None);
        assert_eq!(other(&config(), made("d")), Some((ControllerKind::Composite, "d".to_owned())));
        let attached = |by: &str| other(&config(), child("a").annotation(ATTACHED_BY, by));
        assert_eq!(attached("c"), Some((ControllerKind::Decorator, "c".to_owned())), "of the same name");
        assert_eq!(attached("d"), Some((ControllerKind::Decorator, "d".to_owned())));
        assert_eq!(other(&decorator(), made("d")), None);
    }
}
