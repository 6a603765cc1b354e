//! Calls that were made again, as text for people.

use std::io::{self, Write};

use metahook_core::counted;
use metahook_server::telemetry::escape;
use serde_json::Value;

use super::{Compared, Plans, ReplaySummary, Replayed};
use crate::{line_diff, yaml};

/// Prints a call that did not answer the same.
///
/// # Errors
/// The output is closed.
pub fn print_one(mut out: impl Write, one: &Replayed, colours: bool) -> Result<(), io::Error> {
    let of = format!("{} hook, {}", one.hook, one.parent);
    match &one.compared {
        Compared::Same => Ok(()),
        Compared::Different { recorded, now, replaced, plans } => {
            writeln!(out, "# {}: another answer", escape(&of))?;
            if *replaced {
                let remark = "  (its request shows Secrets, which were replaced when it was recorded: --with-secrets keeps them)";
                writeln!(out, "{remark}")?;
            }
            let difference = line_diff::print(&shown(recorded), &shown(now), colours);
            out.write_all(difference.as_bytes())?;
            match plans {
                None => Ok(()),
                Some(Plans::Same) => writeln!(out, "# the server would write the same"),
                Some(Plans::Different { recorded, now }) => {
                    writeln!(out, "# the server would write:")?;
                    let difference = line_diff::print(&shown(recorded), &shown(now), colours);
                    out.write_all(difference.as_bytes())
                }
                Some(Plans::Unknown { why }) => {
                    writeln!(out, "# what the server would write is unknown: {}", escape(why))
                }
            }
        }
        Compared::OtherEnd { recorded, now } => {
            writeln!(out, "# {}: another end", escape(&of))?;
            for (sign, end) in [("-", recorded), ("+", now)] {
                let end =
                    end.as_deref().map_or_else(|| "an answer".to_owned(), |error| format!("error: {error}"));
                writeln!(out, "{sign} {}", escape(&end))?;
            }
            Ok(())
        }
        Compared::NotMade { why } => writeln!(out, "# {}: not called: {}", escape(&of), escape(why)),
    }
}

fn shown(answer: &Value) -> String {
    let text = yaml::print(answer);
    text.lines().map(|line| escape(line) + "\n").collect()
}

/// Prints the numbers: `12 calls: 10 same, 1 different, 1 not called; +7 % instructions`.
///
/// # Errors
/// The output is closed.
pub fn print_summary(mut out: impl Write, summary: &ReplaySummary) -> Result<(), io::Error> {
    let ReplaySummary { calls, same, different, same_plan, not_made, recorded_instructions, instructions } =
        summary;
    let calls = counted(*calls, "call", "calls");
    let not_made = if *not_made > 0 { format!(", {not_made} not called") } else { String::new() };
    let percent = match (i128::from(*recorded_instructions), i128::from(*instructions)) {
        (0, _) => String::new(),
        (recorded, now) => format!("; {:+} % instructions", (now - recorded) * 100 / recorded),
    };
    let same_plan =
        if *same_plan > 0 { format!(" ({same_plan} with the same writes)") } else { String::new() };
    writeln!(out, "{calls}: {same} same, {different} different{same_plan}{not_made}{percent}")
}
