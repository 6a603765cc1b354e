//! `metahook history`: the versions that a server keeps of a controller's modules and scripts, and which of them is meant.

use std::collections::BTreeSet;
use std::io;

use metahook_core::api::hook::HookName;
use metahook_core::object::id::ObjectId;
use metahook_server::cluster::api_client::ApiClient;
use metahook_server::cluster::objects::RequestError;
use metahook_server::hook::wasm::compile::ModuleError;
use metahook_server::hook::wasm::source::kept::Kept;

use crate::controllers::{self, FindError, plain};
use crate::deploy::packed::ApplyPackedError;
use crate::kept_places::{HookPlace, KeptPlaces, Trust};
use crate::pack::PackError;
use crate::version_figures::VersionFigures;

/// The namespace of a server in a cluster.
const DEFAULT_NAMESPACE: &str = "metacontroller";

#[derive(Debug, thiserror::Error)]
pub enum HistoryError {
    #[error(transparent)]
    Find(#[from] FindError),
    #[error(transparent)]
    Request(#[from] RequestError),
    #[error("{controller} calls no module and no script: there is nothing to go back to")]
    NoModules { controller: String },
    #[error(
        "no version of {controller} is kept in the namespace {namespace}{elsewhere}: name the server's by --server-namespace; a server keeps each version that it loads, unless --kept-versions is 0"
    )]
    NothingKept { controller: String, namespace: String, elsewhere: String },
    #[error("{digest}: no kept version of {controller} has a digest that begins so; kept are {kept}")]
    NotKept { controller: String, digest: String, kept: String },
    #[error("{digest:?} begins several digests: {found}; write more of it")]
    Ambiguous { digest: String, found: String },
    #[error("{digest} is kept for several hooks: name one with --hook, of {hooks}")]
    OfSeveralHooks { digest: String, hooks: String },
    #[error(
        "the only version of {controller} that is kept is the one that is stored, {digest}: there is none to go back to"
    )]
    NoOther { controller: String, digest: String },
    #[error(
        "{field} pins {pinned}, so that {digest} would be refused: set the pin to it first (what runs goes on meanwhile), then roll back again"
    )]
    Pinned { field: String, pinned: String, digest: String },
    #[error("the hooks of {controller} are stored in several places: name one with --hook, of {hooks}")]
    SeveralPlaces { controller: String, hooks: String },
    #[error("the kept version {digest} was edited: its bytes have the digest {found}")]
    Edited { digest: String, found: String },
    #[error("a part of the kept version {0} is gone")]
    Gone(String),
    #[error("the kept version {0} cannot be unpacked")]
    Unpack(String, #[source] ModuleError),
    #[error("the kept version {0}")]
    Pack(String, #[source] PackError),
    #[error(transparent)]
    Apply(#[from] ApplyPackedError),
    #[error(
        "{controller} has the version, but after {after} s {why}; `metahook status` shows more. Deletions that this return asks for may wait for your consent"
    )]
    NotSettled { controller: String, after: f64, why: String },
    #[error("cannot print")]
    Print(#[from] io::Error),
}

impl HistoryError {
    fn nothing_kept(id: &ObjectId, namespace: &str, others: &BTreeSet<String>) -> Self {
        let others = others.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
        let elsewhere = if others.is_empty() {
            others
        } else {
            format!(
                ", but versions that ran are in {others} (whoever may write ConfigMaps there may have stored them)"
            )
        };
        Self::NothingKept { controller: id.to_string(), namespace: namespace.to_owned(), elsewhere }
    }
}

fn is_kept(places: &[HookPlace]) -> bool {
    places.iter().any(|place| !place.kept.is_empty())
}

/// A version that is kept.
#[derive(Debug, PartialEq, Eq)]
pub struct HistoryLine {
    /// The hooks that call it, such as `sync, finalize`.
    pub hooks: String,
    pub digest: String,
    pub accepted: String,
    pub bytes: u64,
    /// The field manager that wrote it.
    pub written_by: Option<String>,
    pub figures: VersionFigures,
    /// It is the one that is called now.
    pub is_running: bool,
}

/// A controller, and the versions that are kept of its modules.
pub struct History {
    id: ObjectId,
    places: Vec<HookPlace>,
}

impl History {
    /// Reads what is kept of a controller's modules. `namespace`: the server's, where tenants write nothing; where it is not named the
    /// default, or else the only other one where versions are kept that ran: the controller's status names their digests.
    ///
    /// # Errors
    /// There is no such controller, or nothing is kept of it.
    pub async fn read(api: &ApiClient, name: &str, namespace: Option<&str>) -> Result<Self, HistoryError> {
        let (id, controller) = controllers::find(api, name).await?;
        let places = KeptPlaces::of(api, &controller);
        if places.is_empty() {
            return Err(HistoryError::NoModules { controller: id.to_string() });
        }
        let home = namespace.unwrap_or(DEFAULT_NAMESPACE);
        let kept = places.kept_in(home, Trust::All).await?;
        if is_kept(&kept) {
            return Ok(Self { id, places: kept });
        }
        let (mut found, mut names) = (Vec::new(), BTreeSet::new());
        for other in places.other_namespaces(home).await {
            let kept = places.kept_in(&other, Trust::Ran).await?;
            if is_kept(&kept) {
                found.push(kept);
                names.insert(other);
            }
        }
        match (found.pop(), found.is_empty() && namespace.is_none()) {
            (Some(places), true) => Ok(Self { id, places }),
            _ => Err(HistoryError::nothing_kept(&id, home, &names)),
        }
    }

    /// The newest first, place by place.
    pub fn lines(&self) -> Vec<HistoryLine> {
        let of_place = |place: &HookPlace| {
            let line = |kept: &Kept| HistoryLine {
                hooks: place.names(),
                digest: kept.version.digest.clone(),
                accepted: kept.version.accepted.clone(),
                bytes: kept.version.bytes,
                written_by: kept.version.written_by.clone(),
                figures: place.figures.get(&kept.version.digest).copied().unwrap_or_default(),
                is_running: place.running.as_ref() == Some(&kept.version.digest),
            };
            place.kept.iter().map(line).collect::<Vec<_>>()
        };
        self.places.iter().flat_map(of_place).collect()
    }

    /// The version to go back to. `to`: the beginning of its digest; else the newest one that is not stored now. `hook`: whose,
    /// where the hooks are stored in several places.
    ///
    /// # Errors
    /// No version is meant, or one of several.
    pub fn target(&self, to: Option<&str>, hook: Option<HookName>) -> Result<Target<'_>, HistoryError> {
        let controller = || self.id.to_string();
        let of_hook = |place: &&HookPlace| hook.is_none_or(|hook| place.hooks.contains(&hook));
        let places: Vec<_> = self.places.iter().filter(of_hook).collect();
        if let Some(to) = to {
            let digest = plain(&to.to_lowercase());
            let all = || places.iter().flat_map(|place| place.kept.iter().map(move |kept| (*place, kept)));
            let found: Vec<_> = all().filter(|(_, kept)| kept.version.digest.starts_with(&digest)).collect();
            return match found.as_slice() {
                [(place, kept)] => Ok(Target { controller: &self.id, place, kept }),
                [] => {
                    let kept = digests(all().map(|(_, kept)| kept));
                    Err(HistoryError::NotKept { controller: controller(), digest, kept })
                }
                several => Err(several_found(digest, several)),
            };
        }
        let [place] = places.as_slice() else {
            let hooks = self.places.iter().map(HookPlace::names).collect::<Vec<_>>().join("; ");
            return Err(HistoryError::SeveralPlaces { controller: controller(), hooks });
        };
        let other = place.kept.iter().find(|kept| place.stored.as_ref() != Some(&kept.version.digest));
        other.map(|kept| Target { controller: &self.id, place, kept }).ok_or_else(|| HistoryError::NoOther {
            controller: controller(),
            digest: place.stored.clone().unwrap_or_default(),
        })
    }
}

/// A kept version, and where it is put back.
pub struct Target<'a> {
    pub(crate) controller: &'a ObjectId,
    pub(crate) place: &'a HookPlace,
    pub(crate) kept: &'a Kept,
}

fn several_found(digest: String, found: &[(&HookPlace, &Kept)]) -> HistoryError {
    let all: BTreeSet<_> = found.iter().map(|(_, kept)| &*kept.version.digest).collect();
    if all.len() == 1 {
        let hooks = found.iter().map(|(place, _)| place.names()).collect::<Vec<_>>().join("; ");
        return HistoryError::OfSeveralHooks { digest, hooks };
    }
    HistoryError::Ambiguous { digest, found: all.into_iter().collect::<Vec<_>>().join(", ") }
}

fn digests<'a>(kept: impl Iterator<Item = &'a Kept>) -> String {
    kept.map(|kept| kept.version.digest.get(..12).unwrap_or(&kept.version.digest))
        .collect::<Vec<_>>()
        .join(", ")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use metahook_core::api::kept::KeptVersion;
    use metahook_core::bundle::ModulePlace;
    use metahook_core::object::id::{Gvk, Key, Resource};

    use super::*;

    fn controller() -> ObjectId {
        let resource = Resource {
            gvk: Gvk::new("metacontroller.k8s.io/v1alpha1", "CompositeController"),
            plural: "compositecontrollers".into(),
            namespaced: false,
            has_status: true,
        };
        ObjectId { resource: resource.into(), key: Key::new("", "c") }
    }

    fn kept(digest: &str, accepted: u8) -> Kept {
        let version = KeptVersion {
            source: "s".to_owned(),
            digest: digest.to_owned(),
            accepted: format!("2026-01-0{accepted}"),
            parts: Vec::new(),
            bytes: 3,
            written_by: None,
        };
        Kept { version, namespace: "server".to_owned(), owners: Vec::new() }
    }

    fn place(hook: HookName, stored: &str, kept: Vec<Kept>) -> HookPlace {
        let place = ModulePlace {
            namespace: "n".to_owned(),
            name: "m".to_owned(),
            key: "hook.wasm".to_owned(),
            language: None,
        };
        let stored = Some(stored.to_owned());
        HookPlace {
            place,
            hooks: vec![hook],
            running: None,
            stored,
            pins: BTreeMap::new(),
            kept,
            figures: BTreeMap::new(),
        }
    }

    fn target(places: Vec<HookPlace>, to: Option<&str>, hook: Option<HookName>) -> Result<String, String> {
        let history = History { id: controller(), places };
        let target = history.target(to, hook);
        target.map(|target| target.kept.version.digest.clone()).map_err(|error| error.to_string())
    }

    #[test]
    fn the_way_back_leads_to_the_newest_version_that_is_not_stored() {
        let versions = || vec![kept("cc1", 3), kept("bb1", 2), kept("aa1", 1)];
        let one = |stored: &str, to: Option<&str>| {
            target(vec![place(HookName::Sync, stored, versions())], to, None)
        };
        assert_eq!(one("cc1", None).as_deref(), Ok("bb1"));
        assert_eq!(one("bb1", None).as_deref(), Ok("cc1"));
        assert_eq!(one("refused", None).as_deref(), Ok("cc1"), "the one that runs in its place");
        assert_eq!(one("cc1", Some("sha256:AA")).as_deref(), Ok("aa1"));
        assert!(one("cc1", Some("dd")).unwrap_err().ends_with("kept are cc1, bb1, aa1"));
        assert!(one("cc1", Some("")).unwrap_err().contains("begins several digests"));
        let only = target(vec![place(HookName::Sync, "aa1", vec![kept("aa1", 1)])], None, None);
        assert!(
            only.unwrap_err().contains("that is kept is the one that is stored, aa1"),
            "there is no other"
        );
    }

    #[test]
    fn other_namespaces_with_kept_versions_are_named() {
        let error = |others: &[&str]| {
            let others = others.iter().map(|one| (*one).to_owned()).collect();
            HistoryError::nothing_kept(&controller(), "metacontroller", &others).to_string()
        };
        assert!(error(&["a", "b"]).contains("metacontroller, but versions that ran are in a, b (whoever"));
        assert!(error(&[]).contains("namespace metacontroller: name the server's"));
    }

    #[test]
    fn hooks_in_several_places_are_named() {
        let both = || {
            vec![
                place(HookName::Sync, "aa1", vec![kept("aa1", 2), kept("bb1", 1)]),
                place(HookName::Finalize, "cc1", vec![kept("cc1", 2), kept("dd1", 1)]),
            ]
        };
        assert!(target(both(), None, None).unwrap_err().ends_with("of sync; finalize"));
        assert_eq!(target(both(), None, Some(HookName::Finalize)).as_deref(), Ok("dd1"));
        assert_eq!(target(both(), Some("bb"), None).as_deref(), Ok("bb1"));
        let same = || {
            [HookName::Sync, HookName::Finalize].map(|hook| place(hook, "bb1", vec![kept("aa1", 1)])).into()
        };
        assert!(target(same(), Some("aa"), None).unwrap_err().ends_with("--hook, of sync; finalize"));
        assert_eq!(target(same(), Some("aa"), Some(HookName::Finalize)).as_deref(), Ok("aa1"));
    }
}
