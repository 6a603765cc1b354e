//! Reasons of Events and conditions, each with its meaning. The reference pages of the documentation are made from them.

#[cfg(test)]
mod tests;

use EventKind::{Normal, Warning};
use Subject::{Controllers, Parents};

/// Type of an Event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventKind {
    Normal,
    Warning,
}

impl EventKind {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Normal => "Normal",
            Self::Warning => "Warning",
        }
    }
}

/// Objects that Events of a reason are about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Subject {
    Controllers,
    Parents,
}

/// An enum whose variants are the rows of a table: the documentation of a variant is its meaning.
macro_rules! table {
    ($(#[doc = $doc:literal])+ $name:ident: $row:ty; $($(#[doc = $meaning:literal])+ $variant:ident = $value:expr;)+) => {
        $(#[doc = $doc])+
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        pub enum $name {
            $($(#[doc = $meaning])+ $variant,)+
        }

        impl $name {
            pub const ALL: &[Self] = &[$(Self::$variant),+];

            pub fn meaning(self) -> &'static str {
                match self {
                    $(Self::$variant => concat!($($meaning),+).trim_ascii(),)+
                }
            }

            fn row(self) -> $row {
                match self {
                    $(Self::$variant => $value,)+
                }
            }
        }
    };
}
pub(crate) use table;

table! {
    /// Reason of an Event of the server.
    EventReason: (&'static str, Subject, EventKind, &'static str);

    /// The server starts to run the controller.
    Starting = ("Starting", Controllers, Normal, "");
    /// Kinds are served, modules loaded, objects listed: reconciles begin.
    Started = ("Started", Controllers, Normal, "");
    /// The controller is deleted, or its spec changed. Reconciles under way end first.
    Stopping = ("Stopping", Controllers, Normal, "");
    /// The last reconcile has ended.
    Stopped = ("Stopped", Controllers, Normal, "");
    /// The controller cannot run: a spec that is refused, a kind that is not served, a module that cannot be loaded.
    CreateError = ("CreateError", Controllers, Warning, "Change what the message names; the server tries again by itself.");
    /// The parent's CustomResourceDefinition has no status subresource.
    NoStatus = ("SyncError", Controllers, Warning, "Add `subresources: {status: {}}` to its version.");
    /// The API server does not serve one of a DecoratorController's kinds, or an aggregated API fails: then the message names its
    /// `APIService`. Objects of the other kinds are decorated.
    KindNotServed = ("KindNotServed", Controllers, Warning, "Install the kind, or take it out; repair the APIService.");
    /// The spec names a kind twice. The last entry of children counts; all entries of decorated objects count.
    KindDeclaredAgain = ("KindDeclaredAgain", Controllers, Warning, "Take one out.");
    /// A DecoratorController names a kind in two versions. The version of the first entry counts, with the selectors of all.
    KindInTwoVersions = ("KindInTwoVersions", Controllers, Warning, "Name one version.");
    /// A hook names neither a module nor a script nor a webhook; the server does not call it.
    DisabledHook = ("DisabledHook", Controllers, Warning, "Name one, or take the hook out.");
    /// `resyncPeriodSeconds` is below 1 and is taken for 1.
    ShortResync = ("ShortResync", Controllers, Warning, "Ask for 1 or more.");
    /// A new module or mount cannot be loaded. The last good one stays in use.
    ModuleRefused = ("ModuleRefused", Controllers, Warning, "Change what the message names.");
    /// A hook has another module from now on. The message has both digests.
    ModuleReplaced = ("ModuleReplaced", Controllers, Normal, "");
    /// New certificates or credentials of a webhook cannot be used. The last good ones stay in use.
    TrustRefused = ("TrustRefused", Controllers, Warning, "Change what the message names.");
    /// A customize hook asked for Secrets of any namespace and gets them: the controller's hooks are webhooks, and its spec
    /// has no `relatedKinds`. Recorded once.
    SecretsRelated = ("SecretsRelated", Controllers, Warning, "List the kinds in `relatedKinds`.");
    /// Parents of a controller with modules or scripts are Secrets, of which hooks are shown those in the namespaces of
    /// `--mount-secret-namespaces` alone. The message names these.
    SecretsNotShown = ("SecretsNotShown", Controllers, Warning, "Add namespaces to the flag, or set `serviceAccountRef`.");
    /// A hook gave two answers to one request. The server skips no call until its module or a mount changes.
    ImpureHook = ("ImpureHook", Controllers, Warning, "Decide from the request alone.");
    /// Two DecoratorControllers want a label, annotation or status of one object to be different. The older one decides.
    DecoratorsConflict = ("DecoratorsConflict", Controllers, Warning, "Change one of the hooks.");
    /// The server may not write the status of controllers. The controller works all the same. Recorded once.
    StatusForbidden = ("StatusForbidden", Controllers, Warning, "Let the server update the resource that the message names.");
    /// The controller's account may not write, list or watch what the spec declares: see the condition `RightsGranted`. Or the spec names
    /// another ServiceAccount, which may not read what the controller starts with; the controller goes on with its spec
    /// before that, until the account may.
    RightsMissing = ("RightsMissing", Controllers, Warning, "Grant what the message names: `metahook rbac` prints it.");
    /// A shadow is refused. The controller runs without it.
    ShadowRefused = ("ShadowRefused", Controllers, Warning, "Change the field that the message names.");
    /// After a change of the hooks or of the spec, deletions beyond the threshold wait. The message names both versions,
    /// counts and examples.
    DeletionsHeld = ("DeletionsHeld", Controllers, Warning, "See [Deletions after a change](../operations.md#deletions-after-a-change).");
    /// `spec.paused` is true: the controller calls no hook and writes nothing.
    ControllerPaused = ("Paused", Controllers, Normal, "");
    /// `spec.paused` is no longer true: all parents are reconciled.
    Resumed = ("Resumed", Controllers, Normal, "");
    /// The object has the annotation `metahook.dev/paused: "true"`: no hook is called for it, and nothing is written. Or its deletion
    /// waits for a controller that is paused.
    Paused = ("Paused", Parents, Normal, "See [Pause](../operations.md#pause).");
    /// The annotation `metahook.dev/paused` has neither of its two values. The object is taken for paused.
    PauseUnclear = ("PauseUnclear", Parents, Warning, "Write `true` or `false`, or take the annotation off.");
    /// A reconcile failed. The message says at which step, and where in the answer.
    SyncError = ("SyncError", Parents, Warning, "See [Limits and errors](../limits.md).");
    /// The object is being deleted and waits for a controller that cannot clean up. The message says why, and names the
    /// command that lets the object go without its clean-up.
    FinalizerWaits = ("FinalizerWaits", Parents, Warning, "Put back what is missing, or give up the clean-up.");
    /// A webhook answered without a list of children, so all of them are deleted.
    MissingChildren = ("MissingChildren", Parents, Warning, "Answer with an empty list where that is meant.");
    /// A module of version v1 answered with a field that means nothing there, or with one field twice; the message names all.
    /// Version v2 refuses such answers.
    AnswerIgnored = ("AnswerIgnored", Parents, Warning, "Correct the field's name, or leave it out.");
    /// A webhook asked for a kind that the spec does not declare, or declares in another version, or for another namespace.
    /// The server creates the object once and then leaves it alone.
    UnmanagedChild = ("UnmanagedChild", Parents, Warning, "Declare the kind.");
    /// The API server took a write, with a warning: of a field that its kind does not have and that is dropped (a typo, in a
    /// child or in the status), of an API that is to go, or of a policy. Recorded once for each text.
    ApiWarning = ("ApiWarning", Parents, Warning, "Change what the message names in the hook's answer.");
    /// An attachment is not made, since another owner has an object of that name. The server leaves that object alone, and tries
    /// again when the parent is reconciled.
    NameTaken = ("NameTaken", Parents, Warning, "Have the hook choose another name, or delete the object.");
    /// A webhook asked for an annotation that is no string. The server writes that child without any annotations of the answer.
    AnnotationsLeftOut = ("AnnotationsLeftOut", Parents, Warning, "Answer with strings, or leave the annotation out.");
    /// The parent has more, or larger, children than a hook is shown. The rest is left as it is.
    ChildrenLeftOut = ("ChildrenLeftOut", Parents, Warning, "See [More children than a hook is shown](../composite.md#more-children-than-a-hook-is-shown).");
    /// Another controller makes children of the same kind for this parent. Each leaves the other's alone.
    ControllersOverlap = ("ControllersOverlap", Parents, Warning, "Give the children different names.");
    /// The cluster refuses the dry run that tells whether a child has to be recreated. The child stays as it is.
    DryRunRefused = ("DryRunRefused", Parents, Warning, "Delete the child to have it recreated.");
    /// Another client keeps changing a value of a child back. The server corrects it less and less often.
    ValueFlapping = ("ValueFlapping", Parents, Warning, "Stop the other client, or leave the field out of the answer.");
    /// The hook's answer has changed, and its child is left as it is: the update strategy is `OnDelete`, the default.
    ChildrenDiffer = ("ChildrenDiffer", Parents, Normal, "Set `updateStrategy.method` to have children updated or made anew; or delete the child.");
    /// The reconcile waited for memory for long. The budget is shared by all controllers, which take turns.
    MemoryShort = ("MemoryShort", Parents, Warning, "See [Memory](../limits.md#memory-of-reconciles).");
    /// The parent's own writes, and what others made of them, triggered more reconciles than `--self-triggered-max`, or more than
    /// ten in a row with a hook that reads the clock. They run one by one from now on, until another client changes the parent's spec, labels or annotations. Where two of them in a row change the same field, the message names it.
    Throttled = ("Throttled", Parents, Warning, "Let the hook's answers settle.");
    /// Ten reconciles of the parent or more followed each other, and each of the last five changed the same field, which the
    /// message names. A status that follows changes of other objects does not count.
    ChangesEachTime = ("ChangesEachTime", Parents, Warning, "Leave times, counters and random values out of the hook's answers.");
    /// The hook is of version v1 and has no names for related objects outside of its parent's namespace.
    RelatedHidden = ("RelatedHidden", Parents, Warning, "Declare version v2 for the hook and for customize.");
    /// A parent has more than 50 older ControllerRevisions. The server deletes the oldest.
    RevisionsPruned = ("RevisionsPruned", Parents, Warning, "Find out who writes ControllerRevisions besides the server.");
    /// The hook fails about an older state of the parent, or its ControllerRevision cannot be read. The rollout goes on without it.
    RevisionLeftOut = ("RevisionLeftOut", Parents, Warning, "Delete the ControllerRevision, or have the hook read what it keeps.");
    /// The server deleted children. The message names them, and says why: the hook's answer does not list them, or they are made anew,
    /// because of a field or a rolling update. One Event for each reason.
    ChildDeleted = ("ChildDeleted", Parents, Normal, "");
    /// The server deleted related objects, as the hook asked. One Event for each kind.
    DeletedRelated = ("DeletedRelated", Parents, Normal, "");
}

impl EventReason {
    pub fn as_str(self) -> &'static str {
        self.row().0
    }

    pub fn subject(self) -> Subject {
        self.row().1
    }

    pub fn kind(self) -> EventKind {
        self.row().2
    }

    /// Advice to the user: how to correct the cause.
    pub fn remedy(self) -> &'static str {
        self.row().3
    }
}

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
    /// The controller runs; the message counts the parents that fail, names the first, and says how it does.
    ParentsFailing = ("ParentsFailing", ConditionType::Ready, true);
    /// The controller runs, and each of its parents fails; the message names the first, and says how it does.
    AllParentsFailing = ("AllParentsFailing", ConditionType::Ready, false);
    /// A new module, mount or credential is refused: see the condition `ModulesLoaded`. The controller runs with the last good
    /// one.
    LastGoodInUse = ("LastGoodInUse", ConditionType::Ready, true);
    /// `spec.paused` is true: no hook is called, and nothing is written.
    ReadyPaused = ("Paused", ConditionType::Ready, true);
    /// A kind can no longer be watched. The server goes on with what it saw last.
    WatchBroken = ("NotListed", ConditionType::Ready, true);
    /// Parents wait: see the condition `DeletionsHeld`.
    WaitsForConsent = ("DeletionsHeld", ConditionType::Ready, false);
    /// A kind cannot be listed, so the controller does not start.
    NotListed = ("NotListed", ConditionType::Ready, false);
    /// The caches exceed `--cache-budget`, and the objects of this kind are the most: see [Memory of caches](../limits.md#memory-of-caches).
    /// Where it is a kind of parents or children, the controller does not run. Where it is one of related objects, the parents whose
    /// hook asks for them fail. The message names kind, namespace and bytes.
    CacheTooLarge = ("CacheTooLarge", ConditionType::Ready, false);
    /// The API server does not serve a kind of the spec.
    NotServed = ("KindNotServed", ConditionType::Ready, false);
    /// A module or mount is missing or wrong, and there is no earlier good one.
    ModuleNotLoaded = ("ModuleNotLoaded", ConditionType::Ready, false);
    /// Certificates or credentials of a webhook are missing or wrong, and there are no earlier good ones.
    TrustNotLoaded = ("TrustNotLoaded", ConditionType::Ready, false);
    /// The spec is refused; the message names the field.
    InvalidSpec = ("InvalidSpec", ConditionType::Ready, false);
    /// There is no enabled sync hook. A finalize hook is called all the same, for parents that go.
    NoSyncHook = ("NoSyncHook", ConditionType::Ready, false);
    /// The labels no longer match `--target-label-selector` of the server that ran the controller. No server has taken it over.
    NotSelected = ("NotSelected", ConditionType::Ready, false);
    /// Every module and mount is loaded, and certificates and credentials of webhooks are.
    Loaded = ("Loaded", ConditionType::ModulesLoaded, true);
    /// All hooks are webhooks that need nothing of the cluster.
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
    /// A mounted object has a key that is no file name.
    MountInvalid = ("MountInvalid", ConditionType::ModulesLoaded, false);
    /// The mounts of one hook are too large.
    MountsTooLarge = ("MountsTooLarge", ConditionType::ModulesLoaded, false);
    /// The mounts of all hooks together exceed `--mount-memory-max`.
    MountMemoryExceeded = ("MountMemoryExceeded", ConditionType::ModulesLoaded, false);
    /// An object with certificates or credentials of a webhook is missing.
    TrustNotFound = ("TrustNotFound", ConditionType::ModulesLoaded, false);
    /// The server cannot read such an object.
    TrustUnreadable = ("TrustUnreadable", ConditionType::ModulesLoaded, false);
    /// Such an object lacks a key, or what it has cannot be used.
    TrustInvalid = ("TrustInvalid", ConditionType::ModulesLoaded, false);
    /// The API server serves all kinds of the spec.
    AllServed = ("AllServed", ConditionType::KindsServed, true);
    /// It does not serve one of them, or an aggregated API fails; the message names kind and `APIService`.
    KindNotServed = ("KindNotServed", ConditionType::KindsServed, false);
    /// Answers depend on requests alone; settled parents cost no call.
    RequestsAlone = ("RequestsAlone", ConditionType::Pure, true);
    /// The hook asked for the time. The server calls it at every trigger for a parent whose last call did.
    ReadsClock = ("ReadsClock", ConditionType::Pure, false);
    /// The hook gave two answers to one request. The server calls it at every trigger until its module or a mount changes.
    AnswersDiffer = ("AnswersDiffer", ConditionType::Pure, false);
    /// No client keeps changing children back.
    NoForeignChanges = ("NoForeignChanges", ConditionType::ChildrenStable, true);
    /// A client does; the message names the first child and field.
    ValueFlapping = ("ValueFlapping", ConditionType::ChildrenStable, false);
    /// The answers of hooks have changed, and children are left as they are: their update strategy is `OnDelete`, the default. The
    /// message names the first child and field.
    LeftByStrategy = ("OnDelete", ConditionType::ChildrenDiffer, true);
    /// No child is left so any more.
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
    /// After a change of the hooks or of the spec, reconciles ask for more deletions than the threshold lets through.
    /// The message names both versions, counts, examples, and how to let them go on.
    ThresholdExceeded = ("ThresholdExceeded", ConditionType::DeletionsHeld, true);
    /// Of the servers of a leader election the one that the message names writes; the others stand by.
    LeaderElected = ("LeaderElected", ConditionType::SingleWriter, true);
    /// Another server hosts the same controllers, and both write. The logs of each name the other.
    OtherServer = ("OtherServer", ConditionType::SingleWriter, false);
    /// The controller's account may write all kinds that the spec declares, in all namespaces or in that of the account.
    AllGranted = ("AllGranted", ConditionType::RightsGranted, true);
    /// It may not; the message names account, verb, resource and API group. `<parents>/finalizers` counts where the API server guards
    /// owner references. The controller runs all the same: the right may be granted
    /// where its parents are, or never be needed. Where the right to list or watch a kind is missing, the controller does not run.
    RightsMissing = ("RightsMissing", ConditionType::RightsGranted, false);
    /// From all answers of [shadows](../shadows.md) the same follows as from those of their hooks.
    ShadowsAgree = ("AnswersAgree", ConditionType::ShadowAgrees, true);
    /// From some of them something else follows; the message names the place where most differ, and `status.shadows` more.
    ShadowsDiffer = ("AnswersDiffer", ConditionType::ShadowAgrees, false);
    /// Shadows gave no answer that could be carried out; the message has the latest failure.
    ShadowFails = ("ShadowFails", ConditionType::ShadowAgrees, false);
    /// The spec of a shadow is refused; the message names the field. The controller runs without the shadow.
    ShadowRefused = ("ShadowRefused", ConditionType::ShadowAgrees, false);
    /// `spec.paused` is true: all parents are paused.
    ControllerPaused = ("ControllerPaused", ConditionType::Paused, true);
    /// Parents have the annotation `metahook.dev/paused`; the message has their number and names one.
    ParentsPaused = ("ParentsPaused", ConditionType::Paused, true);
    /// Nothing is paused any more.
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
