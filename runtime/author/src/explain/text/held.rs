//! Deletions that the deletion brake holds, and the ways out.

use metahook_core::counted;
use metahook_core::trace::TracedObject;

use super::name;

/// `children`: the number of all whose deletion is held; the first are named.
pub(super) fn rows(children: usize, objects: &[TracedObject]) -> Vec<(&'static str, String)> {
    let counted = counted(children, "child", "children");
    let first = format!(
        "after a change of the hooks or of the spec the answer deletes {counted}: nothing is written for this parent until a user decides"
    );
    let mut rows = vec![("held", first)];
    rows.extend(objects.iter().map(|object| ("held", format!("delete {}", name(object)))));
    let more = children.saturating_sub(objects.len());
    if more > 0 {
        rows.push(("held", format!("{more} more")));
    }
    rows
}

/// How a user lets the reconcile go on. They help with the present hold alone: `version` is that of the hooks which ask for it.
pub(super) fn ways_out(controller: &str, version: &str) -> [(&'static str, String); 2] {
    let (kind, controller) = controller.split_once(' ').unwrap_or(("", controller));
    let wrong =
        format!("where the change was wrong: metahook rollback {controller}, or put the earlier spec back");
    let meant = format!(
        "where it was meant: kubectl annotate --overwrite {} {controller} metahook.dev/allow-deletions={version}",
        kind.to_lowercase()
    );
    [("way out", wrong), ("way out", meant)]
}
