//! Meanings of the fields of requests and answers, as their schemas and the reference page have them.

pub(super) const CONTROLLER: &str =
    "The controller object as it was when the server started to run it, with an empty status.";
pub(super) const PARENT: &str = "The object for which the server calls the hook, without `managedFields`.";
pub(super) const CHILDREN: &str = "The objects that the controller made for this object, by kind and then by name. Each declared kind has a key, even without objects: `<Kind>.<version>` for the core group, else `<Kind>.<group>/<version>`.";
pub(super) const RELATED: &str =
    "The objects that the rules of the customize hook select, by kind and then by name.";
pub(super) const FINALIZING: &str = "True in a call of the finalize hook.";
pub(super) const SETTINGS: &str =
    "The `settings` of the hook in the controller's spec. Absent without them, and for webhooks.";

pub(super) const STATUS: &str = "Replaces the whole status of the parent; the server adds `observedGeneration`. Default: an empty status.";
pub(super) const DECORATOR_STATUS: &str =
    "Replaces the whole status of the object. Default: the status stays as it is.";
pub(super) const DESIRED: &str = "All objects that should exist for this object. The server creates and updates them, and deletes those that are not listed. A webhook may leave the field out, which lists nothing.";
pub(super) const RESYNC: &str = "The server reconciles the object again after this time. A value below 0.1 counts as 0.1; the server ignores 0 and less.";
pub(super) const FINALIZED: &str = "In an answer of the finalize hook: whether the server removes its finalizer, so that the object can go. Default: false.";
pub(super) const EVENTS: &str = "Events that the server records on the object, at most 10 different ones.";
pub(super) const EVENT_TYPE: &str = "The type of the Event. Default: `Normal`.";
pub(super) const EVENT_REASON: &str = "The reason of the Event: a word for programs, at most 128 bytes.";
pub(super) const EVENT_MESSAGE: &str = "The message of the Event: a sentence for people.";
pub(super) const DELETE_RELATED: &str = "Related objects that the server deletes. The field `relatedDeletion` of the controller's spec must name their kinds.";
pub(super) const LABELS: &str =
    "Labels that the server sets on the object. `null` removes a label. Other labels stay as they are.";
pub(super) const ANNOTATIONS: &str = "Annotations that the server sets on the object. `null` removes an annotation. Other annotations stay as they are.";

pub(super) const API_VERSION: &str = "Group and version of the kind, such as `apps/v1`.";
pub(super) const KIND: &str = "The kind, such as `Pod`.";
pub(super) const NAMESPACE: &str = "Namespace of the object; absent if the object is cluster-scoped.";
pub(super) const NAME: &str = "Name of the object.";
pub(super) const UID: &str = "The uid of the object, as the request shows it.";

pub(super) const RULES: &str =
    "Rules that select related objects, at most 10,000. Default: no related objects.";
pub(super) const RESOURCE: &str = "Plural name of the kind, in lower case, such as `pods`.";
pub(super) const RULE_NAMESPACE: &str = "Selects objects in this namespace. Default: all namespaces; with a hook of version v1, the parent's own.";
pub(super) const RULE_NAMES: &str = "Selects objects with these names. Not together with a selector.";
pub(super) const RULE_LABELS: &str =
    "Selects objects by their labels, with `matchLabels` and `matchExpressions`. Default: all objects.";
pub(super) const RULE_NAMESPACES: &str = "Selects objects by the labels of their namespaces. Not together with `namespace`, and not for cluster-scoped kinds.";
