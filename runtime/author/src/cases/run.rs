//! One case run: its calls or its reconciles, and each file that they are compared with.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use metahook_core::api::policy::LimitBounds;
use metahook_core::bundle::gvk;
use metahook_core::json::difference::same;
use serde_json::Value;

use super::call_input::CallInput;
use super::{Case, CaseKind, file};
use crate::call::{RequestOf, check_request};
use crate::documents::{self, Document, DocumentError};
use crate::kinds::KnownKinds;
use crate::render::Simulation;
use crate::render::rounds::Rounds;
use crate::render::setup::{Options, spec_limits};
use crate::request_kinds::{hook_of, with_kinds};
use crate::sandbox::{Input, simulated_time};
use crate::schemas::MAX_FAULTS;
use crate::{line_diff, yaml};
use metahook_server::telemetry::error_chain;

/// Reconciles of a case, unless its plan says otherwise.
const CYCLES: u64 = 30;
const MAX_CYCLES: u64 = 1000;

/// Calls of one case.
const MAX_CALLS: usize = 1000;

/// Outcome of a case.
#[derive(Debug, Default)]
pub struct Outcome {
    pub compared: Vec<Compared>,
    /// Why there is nothing to compare.
    pub errors: Vec<String>,
    /// Instructions of all calls of modules.
    pub instructions: u64,
    pub log: Vec<String>,
    pub took: Duration,
}

/// A file with what is to come out, and what came out.
#[derive(Debug)]
pub struct Compared {
    pub file: PathBuf,
    /// `None`: there is no such file.
    expected: Option<Value>,
    found: Value,
}

impl Compared {
    /// The error that the plan ends in.
    pub fn error(&self) -> Option<&str> {
        let last = failed(&self.found)?.get("rounds")?.as_array()?.last()?;
        last.get("errors")?.get(0)?.as_str()
    }

    /// The error that the plan consists of, where the file's does not end in one.
    pub fn only_error(&self) -> Option<&str> {
        let round = self.found.get("rounds")?.as_array().filter(|rounds| rounds.len() == 1)?.first()?;
        let count = |field| round.get(field)?.as_array().map(Vec::len);
        let is_only = (count("changes")?, count("errors")?) == (0, 1);
        self.error().filter(|_| is_only && self.is_new_error() && !self.is_missing())
    }

    /// The plan ends in an error, and the file's does not.
    pub fn is_new_error(&self) -> bool {
        failed(&self.found).is_some() && self.expected.as_ref().and_then(failed).is_none()
    }

    pub fn is_same(&self) -> bool {
        self.expected.as_ref().is_some_and(|expected| same(expected, &self.found))
    }

    pub fn is_missing(&self) -> bool {
        self.expected.is_none()
    }

    /// The file as it would have to be.
    pub fn content(&self) -> String {
        if self.file.extension().is_some_and(|ending| ending == "json") {
            return format!("{:#}\n", self.found);
        }
        yaml::print(&self.found)
    }

    /// The differences, without the values of Secrets.
    pub fn diff(&self, colours: bool) -> String {
        let text = line_diff::print_objects(self.expected.as_ref(), Some(&self.found), colours);
        if text.is_empty() { "values of Secrets differ, which are not shown\n".to_owned() } else { text }
    }
}

/// The plan, if it ends in an error.
fn failed(plan: &Value) -> Option<&Value> {
    Some(plan).filter(|plan| plan.get("end").is_some_and(|end| *end == "failed"))
}

/// Runs a case. `shared`: documents for all cases, of which one that is in the case's folder takes the place.
pub async fn run(case: &Case, shared: &[Document], options: &Options) -> Outcome {
    let start = Instant::now();
    let mut outcome = Outcome::default();
    let ran = match case.kind {
        CaseKind::Calls => calls(case, shared, options, &mut outcome).await,
        CaseKind::Reconciles => reconciles(case, shared, options, &mut outcome).await,
    };
    outcome.errors.extend(ran.err());
    outcome.took = start.elapsed();
    outcome
}

fn chain(error: &DocumentError) -> String {
    error_chain(error)
}

fn expected(folder: &Path, name: &str, found: Value) -> Result<Compared, String> {
    let (file, expected) = match file(folder, name) {
        Some(path) => {
            let (_, value) = documents::read_one_as_json(&path).map_err(|error| chain(&error))?;
            (path, Some(value))
        }
        None => (folder.join(format!("{name}.yaml")), None),
    };
    Ok(Compared { file, expected, found })
}

async fn calls(
    case: &Case,
    shared: &[Document],
    options: &Options,
    outcome: &mut Outcome,
) -> Result<(), String> {
    let files = &options.files;
    let kinds = KnownKinds::of(shared).map_err(|error| error_chain(&error))?;
    for number in 1..=MAX_CALLS {
        let name = |what: &str| if number == 1 { what.to_owned() } else { format!("{what}.{number}") };
        let Some(path) = file(&case.folder, &name("request")) else { return Ok(()) };
        let (text, value) = documents::read_one_as_json(&path).map_err(|error| chain(&error))?;
        check_request(&value)
            .map_err(|error| format!("{}: {error}, or call the file parent.yaml", path.display()))?;
        let given = CallInput::read(&case.folder, &name("call"))?;
        let hook = given.hook.unwrap_or_else(|| hook_of(shared, &value));
        let request = RequestOf::new(&value, Some(hook));
        let module = files.modules.of_hook(shared, request.hook);
        let module = module.ok_or_else(|| {
            let build = files.modules.build;
            format!("a request needs a module (`{build}` makes one) or a script: name its file with --module")
        })?;
        let limits = spec_limits(shared, request.hook).map_err(|error| error_chain(&error))?;
        let limits = limits.unwrap_or_else(|| LimitBounds::default().of(module.is_script()).default);
        let hook = files.hook(module, limits);
        let (text, value) = with_kinds(shared, request.hook, text, value);
        let input = Input {
            controller: if request.controller.is_empty() { "metahook" } else { &request.controller },
            hook: request.hook,
            request: text.into(),
            now: given.now().unwrap_or_else(|| simulated_time(number as u64)),
            seed: given.seed.unwrap_or_default(),
        };
        let called = files.sandbox.call(&hook, input).await;
        outcome.instructions += called.usage.map_or(0, |usage| usage.instructions);
        outcome.log.extend(called.log.text.lines().map(str::to_owned));
        let at = |why: String| format!("{}: the {} hook: {why}", path.display(), request.hook);
        let answer = called.answer.map_err(|error| at(error_chain(&error)))?;
        request.check(&answer).map_err(|error| at(error_chain(&error)))?;
        let answer = serde_json::from_slice(&answer).map_err(|error| at(error.to_string()))?;
        outcome.errors.extend(faults(&kinds, &value, &answer).into_iter().map(at));
        outcome.compared.push(expected(&case.folder, &name("response"), answer)?);
    }
    Err(format!("the case has more than {MAX_CALLS} requests: make it several"))
}

/// Parts of an answer's children and status that the API server would drop, or refuse them for.
fn faults(kinds: &KnownKinds, request: &Value, answer: &Value) -> Vec<String> {
    let mut all = Vec::new();
    for list in ["children", "attachments"] {
        for (nth, child) in answer.get(list).and_then(Value::as_array).into_iter().flatten().enumerate() {
            let found = kinds.faults(&gvk(child), child);
            all.extend(found.into_iter().map(|fault| format!("{list}[{nth}]: {fault}")));
        }
    }
    let parent = request.get("parent").or_else(|| request.get("object"));
    if let (Some(parent), Some(status)) = (parent, answer.get("status")) {
        all.extend(kinds.status_faults(&gvk(parent), status));
    }
    all.truncate(MAX_FAULTS);
    all
}

async fn reconciles(
    case: &Case,
    shared: &[Document],
    options: &Options,
    outcome: &mut Outcome,
) -> Result<(), String> {
    let mut own = Vec::new();
    for name in ["parent", "observed", "controller"] {
        if let Some(path) = file(&case.folder, name) {
            own.extend(documents::read(&path).map_err(|error| chain(&error))?);
        }
    }
    let has_controller = own.iter().any(is_controller);
    let shared = shared.iter().filter(|document| !(has_controller && is_controller(document)));
    let all: Vec<_> = shared.cloned().chain(own).collect();
    let mut compared = expected(&case.folder, "plan", Value::Null)?;
    let asked = compared.expected.as_ref().and_then(|plan| plan.get("cycles")).cloned();
    let cycles = match &asked {
        None => CYCLES,
        Some(number) => {
            number.as_u64().filter(|number| (1..=MAX_CYCLES).contains(number)).ok_or_else(|| {
                format!(
                    "{}: cycles is {number}, and is to be a number from 1 to {MAX_CYCLES}",
                    compared.file.display()
                )
            })?
        }
    };
    let mut simulation = Simulation::of(&all, options.clone()).map_err(|error| error_chain(&error))?;
    simulation.label_children().map_err(|error| error_chain(&error))?;
    let rounds = simulation.run(usize::try_from(cycles).unwrap_or(usize::MAX)).await;
    for call in rounds.rounds.iter().flatten().flat_map(|one| &one.calls) {
        outcome.instructions += call.instructions.unwrap_or_default();
        outcome.log.extend(call.log.lines().map(str::to_owned));
    }
    outcome.errors.extend(ignored(&rounds));
    outcome
        .errors
        .extend(rounds.rounds.iter().flatten().flat_map(|one| &one.faults).take(MAX_FAULTS).cloned());
    compared.found = rounds.plan();
    if let (Some(asked), Some(fields)) = (asked, compared.found.as_object_mut()) {
        fields.insert("cycles".to_owned(), asked);
    }
    outcome.compared.push(compared);
    Ok(())
}

/// Parts of answers that the server would ignore, each once.
fn ignored(rounds: &Rounds) -> BTreeSet<String> {
    rounds.rounds.iter().flatten().flat_map(|one| &one.ignored).cloned().collect()
}

fn is_controller(document: &Document) -> bool {
    let kind = document.value.get("kind").and_then(Value::as_str).unwrap_or_default();
    matches!(kind, "CompositeController" | "DecoratorController")
}
