//! Properties of hooks: what holds for a good one whatever it is asked; each with the input that breaks it, made smaller.

pub mod reconciles;
mod requests;
mod shrink;
mod specs;
mod texts;

use std::collections::BTreeMap;
use std::error::Error;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use metahook_core::api::hook::HookName;
use metahook_core::hook::Usage;
use metahook_core::json::difference::same;
use metahook_core::json::hidden::{hide, shown_differences};
use metahook_core::object::id::Gvk;
use serde_json::Value;

use crate::call::RequestOf;
use crate::sandbox::{Input, Sandbox};
use metahook_server::hook::wasm::run::{CallError, Seed};
use metahook_server::hook::{HookCallError, LoadedHook};
use metahook_server::telemetry::error_chain;
use requests::{
    is_allowed, reversed, with_many_children, with_specs, with_status, with_unicode, with_unknown_fields,
    without_status,
};
use shrink::{below, shrink};

/// Requests that each property is tried with.
const MAX_SAMPLES: usize = 20;

/// The clock of a second call differs by this.
const LATER: Duration = Duration::from_hours(24 * 40);

/// The share of a limit, in percent, that no call should come near: a larger parent would exceed it.
const BUDGET_PERCENT: u64 = 50;

/// Parts that are kept of a request that is made smaller: a hook is never asked without.
const KEPT: [&str; 8] = [
    "/parent/metadata/name",
    "/parent/metadata/namespace",
    "/parent/spec",
    "/object/metadata/name",
    "/object/metadata/namespace",
    "/object/spec",
    "/children",
    "/attachments",
];

/// A request that the hook is asked with.
#[derive(Debug, Clone, PartialEq)]
pub struct Sample {
    pub hook: HookName,
    pub request: Value,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Property {
    Accepted,
    SameAnswer,
    KeyOrder,
    UnknownFields,
    NoStatus,
    AnySpec,
    Unicode,
    ManyChildren,
}

const ALL: [Property; 8] = [
    Property::Accepted,
    Property::SameAnswer,
    Property::KeyOrder,
    Property::UnknownFields,
    Property::NoStatus,
    Property::AnySpec,
    Property::Unicode,
    Property::ManyChildren,
];

/// Result for one property.
#[derive(Debug)]
pub struct Verdict {
    pub property: &'static str,
    /// `None`: no request could be made for it.
    pub holds: Option<Result<(), Violation>>,
}

/// A property that does not hold.
#[derive(Debug)]
pub struct Violation {
    pub why: String,
    /// The request, without the values of Secrets.
    pub input: Value,
}

/// A module under trial.
pub struct PropertyCheck {
    pub sandbox: Arc<Sandbox>,
    /// The module as each hook, with the limits of that; none where there is no module.
    pub hooks: BTreeMap<HookName, LoadedHook>,
    /// The kinds of parents, with the schemas of their definitions.
    pub parents: Vec<(Gvk, Value)>,
}

impl Property {
    fn name(self) -> &'static str {
        match self {
            Self::Accepted => "the server takes each answer",
            Self::SameAnswer => "the same request gets the same answer, also later",
            Self::KeyOrder => "the order of keys in a request does not matter",
            Self::UnknownFields => "unknown fields do no harm",
            Self::NoStatus => "a parent may have no status yet",
            Self::AnySpec => "each spec that the definition allows is one to the hook",
            Self::Unicode => "texts may have any characters",
            Self::ManyChildren => "1,000 children are no problem",
        }
    }

    /// The requests that the property is about; where this one gives none there is none.
    fn requests(self, sample: &Value, parents: &[(Gvk, Value)]) -> Vec<Value> {
        let one = match self {
            Self::Accepted | Self::SameAnswer | Self::KeyOrder => Some(sample.clone()),
            Self::UnknownFields => with_unknown_fields(sample),
            Self::NoStatus => without_status(sample),
            Self::AnySpec => return with_specs(sample, parents),
            Self::Unicode => with_unicode(sample, parents),
            Self::ManyChildren => with_many_children(sample),
        };
        one.into_iter().collect()
    }
}

/// Why a property does not hold for a request.
#[derive(Debug, PartialEq)]
struct Fault {
    /// Faults of one kind are the same fault, whatever their words.
    kind: &'static str,
    why: String,
}

impl Fault {
    /// Whether both are of one kind; of errors of a script, whether their place and type are the same, as in
    /// `the script failed: hook.py:55: KeyError: 'name'`.
    fn is_the_same(&self, other: &Self) -> bool {
        fn place(why: &str) -> Option<(&str, &str)> {
            let (_, error) = why.split_once("the script failed: ")?;
            let (place, error) = error.split_once(": ")?;
            Some((place, error.split([':', ';']).next()?))
        }
        self.kind == other.kind && place(&self.why) == place(&other.why)
    }
}

/// Pointers of what stays of a request: a server shows each declared kind of children, also without objects.
fn kept_of(request: &Value) -> Vec<String> {
    let kinds = ["children", "attachments"].into_iter().flat_map(|field| {
        let kinds = request[field].as_object().into_iter().flat_map(|kinds| kinds.keys());
        kinds.map(move |kind| below(&format!("/{field}"), kind))
    });
    KEPT.map(str::to_owned).into_iter().chain(kinds).collect()
}

/// An answer that the server would read, or why there is none.
struct Answered {
    answer: Result<Value, Fault>,
    /// The hook ended itself with an error, as it may about a parent that makes no sense.
    declined: bool,
    usage: Usage,
}

impl PropertyCheck {
    /// Tries all properties with these requests.
    pub async fn run(&self, samples: &[Sample]) -> Vec<Verdict> {
        let mut all = Vec::new();
        for property in ALL {
            let mut holds = None;
            'property: for sample in samples.iter().take(MAX_SAMPLES) {
                for request in property.requests(&sample.request, &self.parents) {
                    // What is wrong with the request itself is the first property's concern.
                    if property != Property::Accepted
                        && self.breaks(Property::Accepted, sample.hook, &sample.request).await.is_some()
                    {
                        continue;
                    }
                    let Some(fault) = self.breaks(property, sample.hook, &request).await else {
                        holds = Some(Ok(()));
                        continue;
                    };
                    holds = Some(Err(self.smaller(property, sample.hook, request, fault).await));
                    break 'property;
                }
            }
            all.push(Verdict { property: property.name(), holds });
        }
        all
    }

    /// The fault, with a smaller request that shows it.
    async fn smaller(&self, property: Property, hook: HookName, request: Value, fault: Fault) -> Violation {
        let must_be_allowed = is_allowed(&request, &self.parents);
        let again = async |request: &Value| {
            if must_be_allowed && !is_allowed(request, &self.parents) {
                return false;
            }
            self.breaks(property, hook, request).await.is_some_and(|found| found.is_the_same(&fault))
        };
        let kept = kept_of(&request);
        let kept: Vec<_> = kept.iter().map(String::as_str).collect();
        let mut input = shrink(request, &kept, again).await;
        // The smaller one may show it in other words.
        let fault = self.breaks(property, hook, &input).await.unwrap_or(fault);
        hide(&mut input);
        Violation { why: fault.why, input }
    }

    /// Why a property does not hold for a request.
    async fn breaks(&self, property: Property, hook: HookName, request: &Value) -> Option<Fault> {
        let now = SystemTime::now();
        let first = self.call(hook, request.to_string(), now).await;
        let second = match property {
            Property::SameAnswer => self.call(hook, request.to_string(), now + LATER).await,
            Property::KeyOrder => self.call(hook, reversed(request), now).await,
            Property::Unicode | Property::AnySpec if first.declined => return None,
            Property::ManyChildren => {
                return first.answer.err().or_else(|| self.over_budget(hook, first.usage));
            }
            Property::Accepted
            | Property::UnknownFields
            | Property::NoStatus
            | Property::AnySpec
            | Property::Unicode => {
                return first.answer.err();
            }
        };
        match (first.answer, second.answer) {
            (Ok(one), Ok(other)) if same(&one, &other) => None,
            // It may note the time of a change in the status, where it is what it goes by from then on.
            (Ok(one), Ok(_))
                if property == Property::SameAnswer && self.rests(hook, request, &one, now).await =>
            {
                None
            }
            (Ok(one), Ok(other)) => {
                let why = format!("the answers differ: {}", shown_differences(&other, &one, true));
                Some(Fault { kind: "Differs", why })
            }
            // That it fails is another property's concern.
            (Err(_), Err(_)) => None,
            (Err(fault), Ok(_)) | (Ok(_), Err(fault)) => {
                Some(Fault { why: format!("one of the two calls fails: {}", fault.why), ..fault })
            }
        }
    }

    /// Whether the answer to the same request, but with this answer's status, is the same also later.
    async fn rests(&self, hook: HookName, request: &Value, answer: &Value, now: SystemTime) -> bool {
        let Some(next) = with_status(request, answer) else { return false };
        let [one, other] = [now, now + LATER].map(|now| self.call(hook, next.to_string(), now));
        match (one.await.answer, other.await.answer) {
            (Ok(one), Ok(other)) => same(&one, &other),
            _ => false,
        }
    }

    fn over_budget(&self, hook: HookName, used: Usage) -> Option<Fault> {
        let Some(LoadedHook::Wasm { limits, .. }) = self.hooks.get(&hook) else { return None };
        let parts = [
            ("instructions", used.instructions, limits.instructions),
            ("memory", used.memory, limits.memory),
        ];
        let over = parts
            .into_iter()
            .find(|(_, used, limit)| used.saturating_mul(100) > limit.saturating_mul(BUDGET_PERCENT));
        over.map(|(what, used, limit)| {
            let why = format!(
                "the call takes {used} of limits.{what}, which are {limit}: more than {BUDGET_PERCENT} % of it, so that a larger parent may exceed it"
            );
            Fault { kind: "Budget", why }
        })
    }

    async fn call(&self, hook: HookName, request: String, now: SystemTime) -> Answered {
        let value: Value = serde_json::from_str(&request).unwrap_or_default();
        let of = RequestOf::new(&value, Some(hook));
        let Some(loaded) = self.hooks.get(&hook) else {
            let answer = Err(Fault { kind: "Module", why: "there is no module".to_owned() });
            return Answered { answer, declined: false, usage: Usage::default() };
        };
        let controller = if of.controller.is_empty() { "metahook" } else { &of.controller };
        let input = Input { controller, hook, request: request.into(), now, seed: Seed::default() };
        let called = self.sandbox.call(loaded, input).await;
        let declined = matches!(called.answer, Err(HookCallError::Wasm(CallError::Exit { .. })));
        let fault =
            |kind, error: &dyn Error| Fault { kind, why: format!("the {hook} hook: {}", error_chain(error)) };
        let answer = called.answer.map_err(|error| fault(error.category(), &error)).and_then(|answer| {
            of.check(&answer).map_err(|error| fault("Answer", &error))?;
            serde_json::from_slice(&answer).map_err(|error| fault("Answer", &error))
        });
        Answered { answer, declined, usage: called.usage.unwrap_or_default() }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_smaller_request_shows_the_same_error() {
        let fault = |why: &str| Fault { kind: "Hook", why: why.to_owned() };
        let products = fault("the script failed: hook.py:41: KeyError: 'products'; by hook.py:41 in sync");
        for (why, is_the_same) in [
            ("the script failed: hook.py:41: KeyError: 'items'", true),
            ("the script failed: hook.py:55: KeyError: 'Deployment.apps/v1'; by hook.py:55", false),
            ("the script failed: hook.py:41: TypeError: none", false),
            ("it trapped", false),
        ] {
            assert_eq!(fault(why).is_the_same(&products), is_the_same, "{why}");
        }
        assert!(fault("it trapped at a").is_the_same(&fault("it trapped at b")), "a module has no lines");
    }

    #[test]
    fn a_declared_kind_and_the_spec_stay_in_a_smaller_request() {
        let request = json!({ "parent": {}, "children": { "Pod.v1": { "a": {} }, "Job.batch/v1": {} } });
        let kept = kept_of(&request);
        for pointer in ["/parent/spec", "/children/Pod.v1", "/children/Job.batch~1v1"] {
            assert!(kept.iter().any(|kept| kept == pointer), "{pointer} is not in {kept:?}");
        }
    }
}
