//! Reasons of conditions, with the type and status that each implies.

use super::table;

/// Type of a condition in the status of a controller, or, `Updated`, of a parent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ConditionType {
    Ready,
    ModulesLoaded,
    KindsServed,
    Pure,
    ChildrenStable,
    ChildrenDiffer,
    AnswersSettle,
    RolloutsProceed,
    ApiWarnings,
    DeletionsHeld,
    SingleWriter,
    RightsGranted,
    ShadowAgrees,
    Paused,
    /// The children of a parent follow its latest revision.
    Updated,
}

impl ConditionType {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ready => "Ready",
            Self::ModulesLoaded => "ModulesLoaded",
            Self::KindsServed => "KindsServed",
            Self::Pure => "Pure",
            Self::ChildrenStable => "ChildrenStable",
            Self::ChildrenDiffer => "ChildrenDiffer",
            Self::AnswersSettle => "AnswersSettle",
            Self::RolloutsProceed => "RolloutsProceed",
            Self::ApiWarnings => "ApiWarnings",
            Self::DeletionsHeld => "DeletionsHeld",
            Self::SingleWriter => "SingleWriter",
            Self::RightsGranted => "RightsGranted",
            Self::ShadowAgrees => "ShadowAgrees",
            Self::Paused => "Paused",
            Self::Updated => "Updated",
        }
    }
}

table! {
    /// Reason of a condition of a controller: it implies the condition's type and status.
    ConditionReason: (&'static str, ConditionType, bool);

    /// The controller runs, and no parent fails.
    Running = ("Running", ConditionType::Ready, true);
    /// The controller runs; the message counts the parents that fail, names the first one, and says how it fails.
    ParentsFailing = ("ParentsFailing", ConditionType::Ready, true);
    /// The controller runs, and each of its parents fails; the message names the first one, and says how it fails.
    AllParentsFailing = ("AllParentsFailing", ConditionType::Ready, false);
    /// The server refuses a new module, mount or credential: see the condition `ModulesLoaded`. The controller runs with the
    /// last good one.
    LastGoodInUse = ("LastGoodInUse", ConditionType::Ready, true);
    /// `spec.paused` is true: the server calls no hook and writes nothing.
    ReadyPaused = ("Paused", ConditionType::Ready, true);
    /// The server can no longer watch a kind. It goes on with the objects that it saw last.
    WatchBroken = ("NotListed", ConditionType::Ready, true);
    /// Parents wait: see the condition `DeletionsHeld`.
    WaitsForConsent = ("DeletionsHeld", ConditionType::Ready, false);
    /// The server cannot list a kind, so the controller does not start.
    NotListed = ("NotListed", ConditionType::Ready, false);
    /// The caches exceed `--cache-budget`, and the objects of this kind take the most memory: see [Memory of
    /// caches](../limits.md#memory-of-caches). If it is a kind of parents or children, the controller does not run. If it is a
    /// kind of related objects, the parents whose hook asks for them fail. The message names kind, namespace and bytes.
    CacheTooLarge = ("CacheTooLarge", ConditionType::Ready, false);
    /// The API server does not serve a kind of the spec.
    NotServed = ("KindNotServed", ConditionType::Ready, false);
    /// A module or mount is missing or wrong, and there is no earlier good one.
    ModuleNotLoaded = ("ModuleNotLoaded", ConditionType::Ready, false);
    /// Certificates or credentials of a webhook are missing or wrong, and there are no earlier good ones.
    TrustNotLoaded = ("TrustNotLoaded", ConditionType::Ready, false);
    /// The server refuses the spec; the message names the field.
    InvalidSpec = ("InvalidSpec", ConditionType::Ready, false);
    /// There is no enabled sync hook. The server still calls a finalize hook for parents that are being deleted.
    NoSyncHook = ("NoSyncHook", ConditionType::Ready, false);
    /// The labels no longer match `--target-label-selector` of the server that ran the controller. No server has taken it over.
    NotSelected = ("NotSelected", ConditionType::Ready, false);
    /// All modules and mounts are loaded, and all certificates and credentials of webhooks.
    Loaded = ("Loaded", ConditionType::ModulesLoaded, true);
    /// All hooks are webhooks that need no object of the cluster.
    NoModules = ("NoModules", ConditionType::ModulesLoaded, true);
    /// The ConfigMap of a module is missing.
    ConfigMapNotFound = ("ConfigMapNotFound", ConditionType::ModulesLoaded, false);
    /// The server compiles the interpreter of a script's language, once.
    RunnerNotReady = ("RunnerNotReady", ConditionType::ModulesLoaded, false);
    /// The ConfigMap does not have the key that the spec names.
    KeyNotFound = ("KeyNotFound", ConditionType::ModulesLoaded, false);
    /// The ConfigMap holds both a module and an index.
    KeysConflict = ("KeysConflict", ConditionType::ModulesLoaded, false);
    /// The server cannot read the ConfigMap.
    ConfigMapUnreadable = ("ConfigMapUnreadable", ConditionType::ModulesLoaded, false);
    /// The index of a packed module is wrong.
    IndexInvalid = ("IndexInvalid", ConditionType::ModulesLoaded, false);
    /// A part of a packed module is missing.
    PartNotFound = ("PartNotFound", ConditionType::ModulesLoaded, false);
    /// The module exceeds a [limit](../limits.md#limits-of-a-module) or cannot be compiled.
    ModuleInvalid = ("ModuleInvalid", ConditionType::ModulesLoaded, false);
    /// The module is not the one that `sha256` pins.
    DigestMismatch = ("DigestMismatch", ConditionType::ModulesLoaded, false);
    /// A mounted object is missing.
    MountNotFound = ("MountNotFound", ConditionType::ModulesLoaded, false);
    /// The server cannot read a mounted object.
    MountUnreadable = ("MountUnreadable", ConditionType::ModulesLoaded, false);
    /// A mounted object has a key that is not a file name.
    MountInvalid = ("MountInvalid", ConditionType::ModulesLoaded, false);
    /// The mounts of one hook are too large.
    MountsTooLarge = ("MountsTooLarge", ConditionType::ModulesLoaded, false);
    /// The mounts of all hooks together exceed `--mount-memory-max`.
    MountMemoryExceeded = ("MountMemoryExceeded", ConditionType::ModulesLoaded, false);
    /// An object with certificates or credentials of a webhook is missing.
    TrustNotFound = ("TrustNotFound", ConditionType::ModulesLoaded, false);
    /// The server cannot read an object with certificates or credentials of a webhook.
    TrustUnreadable = ("TrustUnreadable", ConditionType::ModulesLoaded, false);
    /// An object with certificates or credentials of a webhook lacks a key, or its content cannot be used.
    TrustInvalid = ("TrustInvalid", ConditionType::ModulesLoaded, false);
    /// The API server serves all kinds of the spec.
    AllServed = ("AllServed", ConditionType::KindsServed, true);
    /// The API server does not serve a kind of the spec, or an aggregated API fails; the message names kind and `APIService`.
    KindNotServed = ("KindNotServed", ConditionType::KindsServed, false);
    /// Answers depend only on requests, so the server calls no hook for settled parents.
    RequestsAlone = ("RequestsAlone", ConditionType::Pure, true);
    /// The hook asked for the time. If the last call for a parent asked for it, the server calls the hook at every trigger of
    /// this parent.
    ReadsClock = ("ReadsClock", ConditionType::Pure, false);
    /// The hook gave two different answers to the same request. The server calls it at every trigger until its module or a
    /// mount changes.
    AnswersDiffer = ("AnswersDiffer", ConditionType::Pure, false);
    /// No other client changes children back again and again.
    NoForeignChanges = ("NoForeignChanges", ConditionType::ChildrenStable, true);
    /// Another client changes children back again and again; the message names the first child and field.
    ValueFlapping = ("ValueFlapping", ConditionType::ChildrenStable, false);
    /// The answers of hooks have changed, and the server leaves children as they are, because their update strategy is
    /// `OnDelete`, the default. The message names the first child and field.
    LeftByStrategy = ("OnDelete", ConditionType::ChildrenDiffer, true);
    /// No child differs in this way any more.
    NoneLeft = ("NoneDiffers", ConditionType::ChildrenDiffer, false);
    /// No parent is throttled any more.
    NoneThrottled = ("NoneThrottled", ConditionType::AnswersSettle, true);
    /// Parents are reconciled one by one, since each of their reconciles changes something; the message names the first parent, and
    /// the field that changes each time.
    AnswersThrottled = ("Throttled", ConditionType::AnswersSettle, false);
    /// Ten reconciles of a parent or more followed each other and changed the same field, which the message names.
    AnswersChange = ("ChangesEachTime", ConditionType::AnswersSettle, false);
    /// No rollout waits for long any more.
    NoRolloutWaits = ("NoRolloutWaits", ConditionType::RolloutsProceed, true);
    /// Rollouts have waited for the same child for more than five minutes; the message names the first parent, the child, and what
    /// that one lacks.
    RolloutWaits = ("ChildNotReady", ConditionType::RolloutsProceed, false);
    /// The API server warns about writes, of a field that it drops above all; the message names the first parent and has the text.
    WritesWarned = ("ApiWarning", ConditionType::ApiWarnings, true);
    /// The latest writes brought no warning.
    NoApiWarnings = ("NoWarnings", ConditionType::ApiWarnings, false);
    /// No deletion waits.
    NothingHeld = ("NothingHeld", ConditionType::DeletionsHeld, false);
    /// After a change of the hooks or of the spec, reconciles ask for more deletions than the threshold allows. The message
    /// names both versions, counts, examples, and how to allow the deletions.
    ThresholdExceeded = ("ThresholdExceeded", ConditionType::DeletionsHeld, true);
    /// One server of a leader election writes, and the others stand by. The message names the one that writes.
    LeaderElected = ("LeaderElected", ConditionType::SingleWriter, true);
    /// Another server hosts the same controllers, and both write. The log of each server names the other one.
    OtherServer = ("OtherServer", ConditionType::SingleWriter, false);
    /// The controller's account may write all kinds that the spec declares, in all namespaces or in the namespace of the
    /// account.
    AllGranted = ("AllGranted", ConditionType::RightsGranted, true);
    /// The controller's account may not write a kind that the spec declares; the message names account, verb, resource and API
    /// group. `<parents>/finalizers` counts only if the API server guards owner references. The controller still runs, because
    /// the right may be granted in the namespaces of its parents, or never be needed. If the right to list or watch a kind is
    /// missing, the controller does not run.
    RightsMissing = ("RightsMissing", ConditionType::RightsGranted, false);
    /// All answers of [shadows](../shadows.md) have the same result as the answers of their hooks.
    ShadowsAgree = ("AnswersAgree", ConditionType::ShadowAgrees, true);
    /// Some answers of shadows have another result. The message names the place where most of them differ, and `status.shadows`
    /// has more.
    ShadowsDiffer = ("AnswersDiffer", ConditionType::ShadowAgrees, false);
    /// Shadows gave an answer that the server could not carry out, or none; the message has the latest failure.
    ShadowFails = ("ShadowFails", ConditionType::ShadowAgrees, false);
    /// The server refuses the spec of a shadow; the message names the field. The controller runs without the shadow.
    ShadowRefused = ("ShadowRefused", ConditionType::ShadowAgrees, false);
    /// `spec.paused` is true: all parents are paused.
    ControllerPaused = ("ControllerPaused", ConditionType::Paused, true);
    /// Parents have the annotation `metahook.dev/paused`; the message has their number and names one of them.
    ParentsPaused = ("ParentsPaused", ConditionType::Paused, true);
    /// No object is paused any more.
    NothingPaused = ("NothingPaused", ConditionType::Paused, false);
}

impl ConditionReason {
    pub fn as_str(self) -> &'static str {
        self.row().0
    }

    pub fn condition(self) -> ConditionType {
        self.row().1
    }

    pub fn is_true(self) -> bool {
        self.row().2
    }
}
