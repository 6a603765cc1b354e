//! Reasons of Events and conditions, each with its meaning. The reference pages of the documentation are made from them.

mod conditions;
#[cfg(test)]
mod tests;

pub use conditions::{ConditionReason, ConditionType};

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
    /// The controller cannot run: the server refuses the spec, the API server does not serve a kind, or a module cannot be
    /// loaded.
    CreateError = ("CreateError", Controllers, Warning, "Change what the message names; the server tries again by itself.");
    /// The parent's CustomResourceDefinition has no status subresource.
    NoStatus = ("SyncError", Controllers, Warning, "Add `subresources: {status: {}}` to its version.");
    /// The API server does not serve one of a DecoratorController's kinds. Or an aggregated API fails, and the message names
    /// its `APIService`. The controller decorates the objects of its other kinds.
    KindNotServed = ("KindNotServed", Controllers, Warning, "Install the kind, or remove it from the spec. Repair the APIService.");
    /// The spec names a kind twice. The last entry of children counts; all entries of decorated objects count.
    KindDeclaredAgain = ("KindDeclaredAgain", Controllers, Warning, "Remove one of the entries.");
    /// A DecoratorController names a kind in two versions. The version of the first entry counts, with the selectors of all.
    KindInTwoVersions = ("KindInTwoVersions", Controllers, Warning, "Name one version.");
    /// A hook names neither a module nor a script nor a webhook; the server does not call it.
    DisabledHook = ("DisabledHook", Controllers, Warning, "Name one, or remove the hook.");
    /// `resyncPeriodSeconds` is below 1. The server uses 1.
    ShortResync = ("ShortResync", Controllers, Warning, "Set 1 or more.");
    /// The server cannot load a new module or mount. The last good one stays in use.
    ModuleRefused = ("ModuleRefused", Controllers, Warning, "Change what the message names.");
    /// From now on the server calls another module for a hook. The message has both digests.
    ModuleReplaced = ("ModuleReplaced", Controllers, Normal, "");
    /// New certificates or credentials of a webhook cannot be used. The last good ones stay in use.
    TrustRefused = ("TrustRefused", Controllers, Warning, "Change what the message names.");
    /// A customize hook asked for Secrets of any namespace and gets them: the controller's hooks are webhooks, and its spec
    /// has no `relatedKinds`. Recorded once.
    SecretsRelated = ("SecretsRelated", Controllers, Warning, "List the kinds in `relatedKinds`.");
    /// The parents of a controller with modules or scripts are Secrets. The server shows its hooks only the Secrets in the
    /// namespaces of `--mount-secret-namespaces`. The message names these namespaces.
    SecretsNotShown = ("SecretsNotShown", Controllers, Warning, "Add namespaces to the flag, or set `serviceAccountRef`.");
    /// A hook gave two different answers to the same request. The server skips no call until its module or a mount changes.
    ImpureHook = ("ImpureHook", Controllers, Warning, "Let the answer depend only on the request.");
    /// Two DecoratorControllers want different values for a label, an annotation or the status of one object. The older one
    /// decides.
    DecoratorsConflict = ("DecoratorsConflict", Controllers, Warning, "Change one of the hooks.");
    /// The server may not write the status of controllers. The controller still works. Recorded once.
    StatusForbidden = ("StatusForbidden", Controllers, Warning, "Grant the server the right to update the resource that the message names.");
    /// The controller's account may not write, list or watch a kind that the spec declares: see the condition `RightsGranted`.
    /// Or the spec names another ServiceAccount, and this account may not read what the controller starts with. The controller
    /// then goes on with its earlier spec until the account may.
    RightsMissing = ("RightsMissing", Controllers, Warning, "Grant what the message names: `metahook rbac` prints it.");
    /// The server refuses a shadow. The controller runs without it.
    ShadowRefused = ("ShadowRefused", Controllers, Warning, "Change the field that the message names.");
    /// The hooks or the spec changed, and deletions above the threshold wait. The message names both versions, counts and
    /// examples.
    DeletionsHeld = ("DeletionsHeld", Controllers, Warning, "See [Deletions after a change](../operations.md#deletions-after-a-change).");
    /// `spec.paused` is true: the controller calls no hook and writes nothing.
    ControllerPaused = ("Paused", Controllers, Normal, "");
    /// `spec.paused` is no longer true: all parents are reconciled.
    Resumed = ("Resumed", Controllers, Normal, "");
    /// The object has the annotation `metahook.dev/paused: "true"`: the server calls no hook for it and writes nothing. Or its
    /// deletion waits for a controller that is paused.
    Paused = ("Paused", Parents, Normal, "See [Pause](../operations.md#pause).");
    /// The annotation `metahook.dev/paused` is neither `true` nor `false`. The server treats the object as paused.
    PauseUnclear = ("PauseUnclear", Parents, Warning, "Write `true` or `false`, or remove the annotation.");
    /// A reconcile failed. The message names the step, and the place in the answer.
    SyncError = ("SyncError", Parents, Warning, "See [Limits and errors](../limits.md).");
    /// The object is being deleted and waits for a controller that cannot clean up. The message says why, and names the
    /// command that lets the object go without its clean-up.
    FinalizerWaits = ("FinalizerWaits", Parents, Warning, "Put back what is missing, or give up the clean-up.");
    /// A webhook answered without a list of children, so the server deletes all children.
    MissingChildren = ("MissingChildren", Parents, Warning, "If this is intended, answer with an empty list.");
    /// A module of version v1 answered with a field that has no meaning there, or with the same field twice. The message names
    /// all such fields. Version v2 refuses such answers.
    AnswerIgnored = ("AnswerIgnored", Parents, Warning, "Correct the field's name, or leave the field out.");
    /// A webhook asked for a kind that the spec does not declare, or declares in another version, or for another namespace.
    /// The server creates the object once and then leaves it alone.
    UnmanagedChild = ("UnmanagedChild", Parents, Warning, "Declare the kind.");
    /// The API server accepted a write with a warning. The warning is about a field that the kind does not have and that the
    /// API server drops (a typo, in a child or in the status), about an API that will be removed, or about a policy. Recorded
    /// once for each text, kind and version of the hook.
    ApiWarning = ("ApiWarning", Parents, Warning, "Change what the message names in the hook's answer.");
    /// The server does not create an attachment, because another owner has an object of that name. The server leaves that
    /// object alone, and tries again when the parent is reconciled.
    NameTaken = ("NameTaken", Parents, Warning, "Have the hook choose another name, or delete the object.");
    /// A webhook asked for an annotation that is not a string. The server writes that child without any annotations of the
    /// answer.
    AnnotationsLeftOut = ("AnnotationsLeftOut", Parents, Warning, "Answer with strings, or leave the annotation out.");
    /// The parent has more children, or larger ones, than the server shows a hook. The server leaves the other children as they
    /// are.
    ChildrenLeftOut = ("ChildrenLeftOut", Parents, Warning, "See [More children than a hook is shown](../composite.md#more-children-than-a-hook-is-shown).");
    /// Another controller makes children of the same kind for this parent. Each controller leaves the children of the other one
    /// alone.
    ControllersOverlap = ("ControllersOverlap", Parents, Warning, "Give the children different names.");
    /// The API server refuses the dry run that shows whether a child has to be recreated. The child stays as it is.
    DryRunRefused = ("DryRunRefused", Parents, Warning, "Delete the child to have it recreated.");
    /// Another client changes a value of a child back again and again. The server corrects it less and less often.
    ValueFlapping = ("ValueFlapping", Parents, Warning, "Stop the other client, or leave the field out of the answer.");
    /// The hook's answer has changed, and the server leaves the child as it is, because the update strategy is `OnDelete`, the
    /// default.
    ChildrenDiffer = ("ChildrenDiffer", Parents, Normal, "Set `updateStrategy.method` to have children updated or recreated, or delete the child.");
    /// The reconcile waited a long time for memory. All controllers share the budget and take turns.
    MemoryShort = ("MemoryShort", Parents, Warning, "See [Memory](../limits.md#memory-of-reconciles).");
    /// The parent's own writes, and the reactions of other clients to them, triggered more reconciles than
    /// `--self-triggered-max`, or more than ten in a row with a hook that reads the clock. From now on the server runs these
    /// reconciles one by one, until another client changes the parent's spec, labels or annotations. If two of them in a row
    /// change the same field, the message names it.
    Throttled = ("Throttled", Parents, Warning, "Change the hook so that its answers settle.");
    /// The parent had ten or more reconciles in a row, and each of the last five changed the same field. The message names the
    /// field. A status that follows changes of other objects does not count.
    ChangesEachTime = ("ChangesEachTime", Parents, Warning, "Leave times, counters and random values out of the hook's answers.");
    /// The hook is of version v1, which cannot name related objects outside of the parent's namespace.
    RelatedHidden = ("RelatedHidden", Parents, Warning, "Declare version v2 for the hook and for customize.");
    /// A parent has more than 50 older ControllerRevisions. The server deletes the oldest.
    RevisionsPruned = ("RevisionsPruned", Parents, Warning, "Find out which client writes ControllerRevisions besides the server.");
    /// The hook fails for an older state of the parent, or the server cannot read its ControllerRevision. The rollout goes on
    /// without this state.
    RevisionLeftOut = ("RevisionLeftOut", Parents, Warning, "Delete the ControllerRevision, or change the hook so that it can read the older state.");
    /// The server deleted children. The message names them, and says why: the hook's answer does not list them, or the server
    /// recreates them because of a field or a rolling update. One Event for each reason.
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
