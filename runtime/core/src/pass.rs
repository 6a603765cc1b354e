//! One pass over one parent, as far as it is decided: what it sees, what it asks the hook, what it makes of the answer.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value};

use crate::children::{self, NoSelector};
use crate::claim::{self, Claim};
use crate::fingerprint::{Fingerprint, Fingerprinter};
use crate::object::Object;
use crate::object::id::Resource;
use crate::object::map::ChildMap;
use crate::object::selector::Selector;
use crate::plan::desired::{Bounds, Desired, DesiredError, Rule};
use crate::plan::ledger::Past;
use crate::plan::{self, Owner, Plan};
use crate::protocol::request;
use crate::protocol::response::{self, Mode, Response, ResponseError};
use crate::spec::hook::HookVersion;
use crate::trigger::Selection;

/// What a controller's spec says, as its passes need it. It is fixed as long as the controller runs: another spec is
/// another controller, which knows nothing of what this one found.
#[derive(Debug, Clone)]
pub struct Terms {
    /// The controller's name.
    pub controller: String,
    /// The values of Secrets are recorded as hashes.
    pub hash_secrets: bool,
    pub selection: Selection,
    pub rules: Vec<Rule>,
    pub generate_selector: bool,
    /// The controller as hooks see it.
    pub snapshot: String,
    pub version: HookVersion,
    pub settings: Option<String>,
    pub max_children: usize,
}

/// Everything a pass reads that may be different the next time. Its decisions are made from this, and this is what its
/// fingerprint is made of, so that none of it can be forgotten.
#[derive(Debug)]
pub struct Seen {
    pub parent: Arc<Object>,
    /// What the hook is made of: its module, and the files it may read.
    pub hook: Fingerprint,
    /// Which children the parent has; made from its uid or its spec.
    pub selector: Selector,
    /// What is the parent's, and what could be; without what it leaves alone.
    pub claims: Vec<Claimed>,
}

/// One object and what becomes of it.
#[derive(Debug)]
pub struct Claimed {
    pub resource: Arc<Resource>,
    pub object: Arc<Object>,
    pub claim: Claim,
}

/// What a pass wants done, once its claims are carried out.
#[derive(Debug, Default)]
pub struct Decided {
    pub plan: Plan,
    /// What the plan is made from.
    pub desired: Desired,
    pub status: Map<String, Value>,
    pub resync_after: Option<Duration>,
}

/// An answer that is not carried out.
#[derive(Debug, thiserror::Error)]
pub enum AnswerError {
    #[error(transparent)]
    Response(#[from] ResponseError),
    #[error(transparent)]
    Desired(#[from] DesiredError),
}

impl Terms {
    /// Looks at a parent and at what `candidates` names for each kind of children.
    pub fn see(
        &self,
        parent: &Arc<Object>,
        hook: Fingerprint,
        candidates: impl Fn(&Arc<Resource>) -> Vec<Arc<Object>>,
    ) -> Result<Seen, NoSelector> {
        let selector = children::selector(parent, self.generate_selector)?;
        let mut claims = Vec::new();
        for rule in &self.rules {
            for object in candidates(&rule.resource) {
                let claim = claim::decide(parent, &selector, &object);
                if claim != Claim::Leave {
                    claims.push(Claimed { resource: Arc::clone(&rule.resource), object, claim });
                }
            }
        }
        Ok(Seen { parent: Arc::clone(parent), hook, selector, claims })
    }

    /// What the hook is asked.
    pub fn request(&self, parent: &Object, children: &ChildMap) -> Vec<u8> {
        let (settings, naming) = (self.settings.as_deref(), self.version.naming());
        request::Sync { controller: &self.snapshot, parent, children, settings, naming }.bytes()
    }

    /// What is to be done because the hook answered this.
    ///
    /// # Errors
    /// Whatever is wrong with an answer refuses all of it.
    pub fn decide(
        &self,
        seen: &Seen,
        children: &ChildMap,
        answer: &[u8],
        past: Past<'_>,
    ) -> Result<Decided, AnswerError> {
        let mode = match self.version {
            HookVersion::V1 => Mode::Loose,
            HookVersion::V2 => Mode::Strict,
        };
        let Response { status, children: wanted, resync_after } =
            response::sync(answer, mode, self.max_children)?;
        let bounds =
            Bounds { rules: &self.rules, selector: &seen.selector, generated: self.generate_selector };
        let desired = plan::desired::desired(&seen.parent, bounds, wanted)?;
        let plan = plan::children::children(self.owner(&seen.parent), children, &desired, past);
        Ok(Decided { plan, desired, status, resync_after })
    }

    /// Whose children they are, and how they are written.
    pub fn owner<'a>(&'a self, parent: &'a Object) -> Owner<'a> {
        Owner { parent, controller: &self.controller, rules: &self.rules, hash_secrets: self.hash_secrets }
    }

    /// No children yet, of any of the declared kinds.
    pub fn no_children(&self) -> ChildMap {
        let mut children = ChildMap::default();
        for rule in &self.rules {
            children.declare(&rule.resource);
        }
        children
    }
}

impl Seen {
    /// The same for two passes exactly if they see the same. An object is told by uid and version, and by the deletion
    /// that was asked for and that no version tells of yet.
    pub fn fingerprint(&self) -> Fingerprint {
        let mut all = Fingerprinter::default();
        all.add(self.hook.as_bytes());
        for object in std::iter::once(&self.parent).chain(self.claims.iter().map(|claimed| &claimed.object)) {
            all.add(object.uid.as_str().as_bytes());
            all.add(object.version.as_str().as_bytes());
            all.add(&[u8::from(object.deleting)]);
        }
        all.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::testing::{Build, a, resource};
    use crate::spec::composite::UpdateMethod;

    fn terms() -> Terms {
        Terms {
            controller: "c".to_owned(),
            hash_secrets: false,
            selection: Selection::default(),
            rules: vec![Rule::new(resource("v1", "Pod"), UpdateMethod::InPlace)],
            generate_selector: true,
            snapshot: "{}".to_owned(),
            version: HookVersion::V1,
            settings: None,
            max_children: 10,
        }
    }

    fn parent() -> Build {
        a("e/v1", "P", "n/p").uid("p").version("1")
    }

    fn child(name: &str) -> Build {
        a("v1", "Pod", &format!("n/{name}")).label(children::UID_LABEL, "p").controlled_by("p")
    }

    fn seen(parent: Build, hook: &[u8], pods: Vec<Build>) -> Fingerprint {
        let pods: Vec<_> = pods.into_iter().map(Build::object).collect();
        let seen = terms().see(&parent.object(), Fingerprint::of(hook), |_| pods.clone());
        seen.unwrap().fingerprint()
    }

    #[test]
    fn whatever_a_pass_reads_is_in_its_fingerprint() {
        let usual = || seen(parent(), b"module", vec![child("a")]);
        assert_eq!(usual(), usual());
        for (what, other) in [
            ("the parent's version", seen(parent().version("2"), b"module", vec![child("a")])),
            ("another parent of that name", seen(parent().uid("q"), b"module", vec![child("a")])),
            ("the hook", seen(parent(), b"other", vec![child("a")])),
            ("a child's version", seen(parent(), b"module", vec![child("a").version("2")])),
            ("another child of that name", seen(parent(), b"module", vec![child("a").uid("b")])),
            ("a deletion asked for", seen(parent(), b"module", vec![child("a").deleting()])),
            ("a child that went", seen(parent(), b"module", vec![])),
            ("a child that came", seen(parent(), b"module", vec![child("a"), child("b")])),
            (
                "an orphan that matches",
                seen(
                    parent(),
                    b"module",
                    vec![child("a"), a("v1", "Pod", "n/o").label(children::UID_LABEL, "p")],
                ),
            ),
        ] {
            assert_ne!(usual(), other, "{what}");
        }
    }

    #[test]
    fn what_a_parent_leaves_alone_is_not_in_it() {
        let stranger = a("v1", "Pod", "n/x");
        assert_eq!(seen(parent(), b"m", vec![stranger]), seen(parent(), b"m", vec![]));
    }
}
