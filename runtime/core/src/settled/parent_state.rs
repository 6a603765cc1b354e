//! How one parent stands.

use serde::{Deserialize, Serialize};

/// How a parent stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ParentState {
    /// Its last reconcile failed.
    Failing,
    /// The last reconcile wrote nothing.
    Settled,
    /// No reconcile has ended yet, or the last one wrote something, or was put off.
    Unsettled,
    Paused,
}

impl ParentState {
    pub const ALL: [Self; 4] = [Self::Failing, Self::Unsettled, Self::Settled, Self::Paused];

    /// As a request names it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Failing => "failing",
            Self::Settled => "settled",
            Self::Unsettled => "unsettled",
            Self::Paused => "paused",
        }
    }

    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.as_str() == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_state_has_a_name() {
        for state in ParentState::ALL {
            assert_eq!(ParentState::named(state.as_str()), Some(state));
            assert_eq!(serde_json::to_value(state).unwrap(), state.as_str());
        }
        assert_eq!(ParentState::named("Failing"), None);
    }
}
