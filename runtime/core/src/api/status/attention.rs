//! Remarks about a controller that runs: what needs attention although nothing fails, read from its conditions.

use serde::Serialize;

use crate::api::reason::ConditionReason::{
    self, AnswersChange, AnswersDiffer, AnswersThrottled, LeftByStrategy, OtherServer, RightsMissing,
    RolloutWaits, ShadowFails, ShadowRefused, ShadowsDiffer, ValueFlapping, WritesWarned,
};
use crate::api::status::Condition;
use crate::shorten_middle;

/// Bytes of a message.
const MAX_MESSAGE: usize = 1024;

/// One remark.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Attention {
    /// Type of the condition.
    pub condition: &'static str,
    pub reason: &'static str,
    pub message: String,
}

/// Reasons that need attention, the most urgent one first. Those of the condition `Ready` are shown as such, and so are those that
/// it repeats.
const REASONS: [ConditionReason; 12] = [
    OtherServer,
    AnswersThrottled,
    ValueFlapping,
    AnswersChange,
    AnswersDiffer,
    RolloutWaits,
    RightsMissing,
    WritesWarned,
    LeftByStrategy,
    ShadowRefused,
    ShadowFails,
    ShadowsDiffer,
];

/// The remarks about a controller: at most one for each of the reasons.
pub fn attention(conditions: &[Condition]) -> Vec<Attention> {
    let remark = |reason: ConditionReason| {
        let condition = reason.condition().as_str();
        let is = |one: &&Condition| one.kind == condition && one.reason == reason.as_str();
        let Condition { message, .. } = conditions.iter().find(is)?;
        let message = shorten_middle(message, MAX_MESSAGE);
        Some(Attention { condition, reason: reason.as_str(), message })
    };
    REASONS.into_iter().filter_map(remark).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::reason::ConditionReason::{
        AllServed, NoForeignChanges, NoneLeft, ReadsClock, RequestsAlone, Running,
    };
    use crate::api::status::{ControllerStatus, Finding, Report, next};

    fn found(report: Report) -> Vec<(&'static str, String)> {
        let report =
            Report { ready: Finding::new(Running, ""), kinds: Finding::new(AllServed, ""), ..report };
        let status = next(&ControllerStatus::default(), &report, "t").unwrap();
        attention(&status.conditions).into_iter().map(|it| (it.reason, it.message)).collect()
    }

    #[test]
    fn a_controller_that_is_well_gets_no_remark() {
        let well = Report {
            pure: Finding::new(ReadsClock, "it may well settle"),
            stable: Finding::new(NoForeignChanges, ""),
            differing: Finding::new(NoneLeft, ""),
            ..Report::default()
        };
        assert_eq!(found(well), []);
        assert_eq!(found(Report::default()), [], "nothing is known yet");
    }

    #[test]
    fn the_most_urgent_remark_comes_first() {
        let fought = Report {
            differing: Finding::new(LeftByStrategy, "b"),
            stable: Finding::new(ValueFlapping, "a"),
            shadow: Finding::new(ShadowsDiffer, "s"),
            settles: Finding::new(AnswersThrottled, "t"),
            pure: Finding::new(RequestsAlone, "no remark"),
            ..Report::default()
        };
        let expected =
            [("Throttled", "t"), ("ValueFlapping", "a"), ("OnDelete", "b"), ("AnswersDiffer", "s")];
        assert_eq!(found(fought), expected.map(|(reason, message)| (reason, message.to_owned())));
    }

    #[test]
    fn a_long_message_is_cut() {
        let condition = Condition {
            kind: ValueFlapping.condition().as_str().to_owned(),
            status: "False".to_owned(),
            reason: ValueFlapping.as_str().to_owned(),
            message: "m".repeat(1 << 20),
            last_transition_time: "t".to_owned(),
            observed_generation: None,
        };
        let all = attention(&vec![condition; 100]);
        assert!(all.len() == 1 && all[0].message.len() <= MAX_MESSAGE);
    }
}
