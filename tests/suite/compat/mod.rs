//! The contract with users of Metacontroller, section by section.

pub(crate) mod api_objects;
pub(crate) mod child_conflicts;
pub(crate) mod child_management;
pub(crate) mod child_values;
pub(crate) mod customize;
pub(crate) mod decorated;
pub(crate) mod decorator_attachments;
pub(crate) mod decorator_controller;
pub(crate) mod decorator_finalizers;
pub(crate) mod decorator_hooks;
pub(crate) mod decorator_object;
pub(crate) mod decorators_together;
pub(crate) mod event_rows;
pub(crate) mod hook_protocol;
mod kinds;
pub(crate) mod metrics;
pub(crate) mod migration;
pub(crate) mod mild_answers;
pub(crate) mod owner_versions;
pub(crate) mod parent_finalizers;
pub(crate) mod parent_reconcile;
pub(crate) mod parent_revisions;
pub(crate) mod policies;
pub(crate) mod rolling_update;
pub(crate) mod webhook_etag;
pub(crate) mod webhook_trust;
