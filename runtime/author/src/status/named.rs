//! Parents of a controller by name, as text for people: those that fail, are throttled or wait, and those that take longest.

use std::io::{self, Write};

use jiff::Timestamp;
use metahook_core::overview::{ControllerOverview, ParentGroup, ThrottledParent};
use metahook_core::pacing::self_triggered::SELF_TRIGGER_REFILL;
use metahook_core::{counted, one_line};
use metahook_server::telemetry::escape;

use crate::status::{age, since};

pub(super) fn print_named(
    out: &mut impl Write,
    running: &ControllerOverview,
    now: Timestamp,
) -> Result<(), io::Error> {
    let Some(named) = &running.named else {
        return writeln!(
            out,
            "\nParents are not named: that needs the right to list all objects of their kind, in all namespaces."
        );
    };
    print_groups(out, "Failing now", &named.failing, now)?;
    print_throttled(out, &named.throttled, running.parents.throttled)?;
    print_groups(out, "Waiting now", &named.waiting, now)?;
    if named.slowest.is_empty() {
        return Ok(());
    }
    writeln!(out, "\nSlowest of the latest reconciles:")?;
    for slow in &named.slowest {
        let millis = format!("{}.{} ms", slow.took_us / 1000, slow.took_us / 100 % 10);
        writeln!(out, "  {millis:>11}  {}  at {}", escape(&slow.parent), escape(&slow.began))?;
    }
    Ok(())
}

/// `count`: all that are throttled.
fn print_throttled(
    out: &mut impl Write,
    throttled: &[ThrottledParent],
    count: usize,
) -> Result<(), io::Error> {
    if throttled.is_empty() {
        return Ok(());
    }
    writeln!(out, "\n{}:", throttled_title())?;
    for one in throttled {
        writeln!(out, "  {} {}", escape(&one.parent), escape(&one_line(&wait_and_cause(one))))?;
    }
    match count.saturating_sub(throttled.len()) {
        0 => Ok(()),
        more => writeln!(out, "  and {more} more"),
    }
}

fn print_groups(
    out: &mut impl Write,
    title: &str,
    groups: &[ParentGroup],
    now: Timestamp,
) -> Result<(), io::Error> {
    if groups.is_empty() {
        return Ok(());
    }
    writeln!(out, "\n{title}:")?;
    for group in groups {
        let ParentGroup { category, message, count, parents, .. } = group;
        let why = match (&**category, &**message) {
            (category, "") => format!("{category}: see their Events, the server no longer has the message"),
            ("", message) => message.to_owned(),
            (category, message) => format!("{category}: {message}"),
        };
        let last = since_last(group, now);
        writeln!(out, "  {}{last}: {}", counted(*count, "parent", "parents"), escape(&one_line(&why)))?;
        let more = count.saturating_sub(parents.len());
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        writeln!(out, "      {}{more}", escape(&parents.join(", ")))?;
    }
    Ok(())
}

pub(crate) fn throttled_title() -> String {
    format!("Throttled now, one reconcile each {} s", SELF_TRIGGER_REFILL.as_secs())
}

/// How long a throttled parent waits, and why.
pub(crate) fn wait_and_cause(ThrottledParent { why, next_millis, .. }: &ThrottledParent) -> String {
    let next = next_millis.map_or_else(
        || "is reconciled now".to_owned(),
        |millis| format!("waits {} s more", millis.div_ceil(1000)),
    );
    format!("{next}: {why}")
}

/// The time since the latest reconcile of a group, such as `, last 4m ago`; empty where it is not known.
pub(crate) fn since_last(group: &ParentGroup, now: Timestamp) -> String {
    since(&group.last, now).map_or_else(String::new, |last| format!(", last {} ago", age(last)))
}
