//! Kept versions of modules and scripts: what a server keeps of those that it loaded, so that a refused one is not the end of a
//! controller after a restart.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::api::hook::Language;
use crate::api::packed::index_key;
use crate::hash::Fingerprint;

/// The label of all ConfigMaps with kept versions, and its value.
pub const KEPT_LABEL: [&str; 2] = ["metahook.dev/record", "module-versions"];

/// The label that tells of which module a version is kept.
pub const SOURCE_LABEL: &str = "metahook.dev/kept-source";

/// Annotations of each part: the digest of the version, when it was accepted, which part it is of how many, its bytes, and where the
/// module is stored.
pub const DIGEST: &str = "metahook.dev/digest";
pub const ACCEPTED: &str = "metahook.dev/accepted";
pub const PART: &str = "metahook.dev/part";
pub const BYTES: &str = "metahook.dev/bytes";
pub const STORED_IN: &str = "metahook.dev/stored-in";

/// Annotation of each part: the field manager that wrote the module to the ConfigMap that the spec names. Absent where it is unknown.
pub const WRITTEN_BY: &str = "metahook.dev/written-by";

/// Characters of a field manager that are kept.
const MAX_MANAGER: usize = 64;

/// The key of a part's bytes.
pub const BYTES_KEY: &str = "part";

/// Bytes of one part: a ConfigMap holds a MiB, with its metadata.
pub const PART_BYTES: usize = 960 << 10;

/// ConfigMaps of all versions together: with more a server would not see all of them in one list.
pub const MAX_PARTS: usize = 900;

/// How much is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeptBounds {
    /// Versions of one module; 0 keeps none.
    pub versions: usize,
    /// Bytes of all versions of all modules, as they are stored.
    pub bytes: u64,
}

impl Default for KeptBounds {
    fn default() -> Self {
        Self { versions: 3, bytes: 64 << 20 }
    }
}

/// One part of a kept version, without its bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeptPart {
    /// Name of the ConfigMap.
    pub name: String,
    /// The module that the version is of.
    pub source: String,
    pub digest: String,
    pub accepted: String,
    /// Which part it is, from 1, of how many.
    pub number: usize,
    pub count: usize,
    pub bytes: u64,
    pub written_by: Option<String>,
}

/// A version of which all parts are there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeptVersion {
    pub source: String,
    pub digest: String,
    pub accepted: String,
    /// Names of the ConfigMaps, in order.
    pub parts: Vec<String>,
    pub bytes: u64,
    /// The field manager that wrote it.
    pub written_by: Option<String>,
}

/// The value of [`SOURCE_LABEL`], of the namespace, the name and the key where a module is stored. Who reads it, and its pin, make no
/// other one.
pub fn source_id(language: Option<Language>, [namespace, name, key]: [&str; 3]) -> String {
    let language = language.map_or("", |language| language.as_str());
    Fingerprint::of(format!("{language}\n{namespace}\n{name}\n{key}").as_bytes()).to_string()
}

/// The name of a part. `digest`: 64 hexadecimal digits.
pub fn part_name(source: &str, digest: &str, number: usize) -> String {
    format!("metahook-kept-{source}-{}-{number}", digest.get(..16).unwrap_or(digest))
}

/// `n/m`, as [`PART`] has it.
pub fn parse_part(text: &str) -> Option<(usize, usize)> {
    let (number, count) = text.split_once('/')?;
    let (number, count) = (number.parse().ok()?, count.parse().ok()?);
    (1 <= number && number <= count).then_some((number, count))
}

/// The field manager that wrote the module under a key of a ConfigMap: of the entries in `metadata.managedFields` that own the key, or that
/// of its index, the newest one's.
pub fn last_writer(managed_fields: &Value, key: &str) -> Option<String> {
    let index = format!("f:{}", index_key(key));
    let key = format!("f:{key}");
    let owns = |entry: &&Value| {
        let has = |field: &str, key: &String| {
            let keys = entry.get("fieldsV1").and_then(|set| set.get(field));
            keys.is_some_and(|keys| keys.get(key).is_some())
        };
        has("f:binaryData", &key) || has("f:data", &key) || has("f:data", &index)
    };
    let text = |entry: &Value, field: &str| entry.get(field).and_then(Value::as_str).map(str::to_owned);
    // Times are in UTC, to the second.
    let newest = managed_fields.as_array()?.iter().filter(owns).max_by_key(|entry| text(entry, "time"))?;
    shown_manager(&text(newest, "manager")?)
}

/// A field manager as it is stored and printed: without control characters, and cut.
pub fn shown_manager(manager: &str) -> Option<String> {
    let shown: String = manager.chars().filter(|one| !one.is_control()).take(MAX_MANAGER).collect();
    let shown = shown.trim();
    (!shown.is_empty()).then(|| shown.to_owned())
}

/// The versions that are whole, the newest first.
pub fn versions(parts: impl IntoIterator<Item = KeptPart>) -> Vec<KeptVersion> {
    let mut all = BTreeMap::<(String, String), BTreeMap<usize, KeptPart>>::new();
    for part in parts {
        all.entry((part.source.clone(), part.digest.clone())).or_default().insert(part.number, part);
    }
    let whole = all.into_iter().filter_map(|((source, digest), parts)| {
        let first = parts.get(&1)?;
        let (accepted, written_by) = (first.accepted.clone(), first.written_by.clone());
        (parts.len() == first.count && parts.values().all(|part| part.count == first.count)).then(|| {
            KeptVersion {
                source,
                digest,
                accepted,
                written_by,
                bytes: parts.values().map(|part| part.bytes).sum(),
                parts: parts.into_values().map(|part| part.name).collect(),
            }
        })
    });
    let mut versions: Vec<_> = whole.collect();
    versions
        .sort_by(|one, other| other.accepted.cmp(&one.accepted).then_with(|| one.digest.cmp(&other.digest)));
    versions
}

/// Names of the ConfigMaps that go: versions beyond the bounds, and halves that nobody is writing. Room goes to what was just
/// kept; then to the newest version of each module, the smallest first, so that few large ones do not displace those of everybody else;
/// then to the others, the newest first. `young`: halves that were accepted later may be written now, by another server.
pub fn surplus(
    parts: &[KeptPart],
    bounds: KeptBounds,
    (source, digest): (&str, &str),
    young: &str,
) -> BTreeSet<String> {
    let versions = versions(parts.iter().cloned());
    let mut newest = BTreeSet::new();
    let mut ranked: Vec<_> = versions
        .iter()
        .map(|version| {
            let is_new = version.source == source && version.digest == digest;
            let is_newest = newest.insert(&version.source);
            ((!is_new, !is_newest, if is_newest { version.bytes } else { 0 }), version)
        })
        .collect();
    ranked.sort_by_key(|(rank, _)| *rank);
    let mut of_source = BTreeMap::<&str, usize>::new();
    let (mut whole, mut kept, mut bytes) = (BTreeSet::new(), BTreeSet::new(), 0);
    for ((is_other, _, _), version) in ranked {
        let names = version.parts.iter().map(String::as_str);
        whole.extend(names.clone());
        let count = of_source.entry(&version.source).or_default();
        let is_within = *count < bounds.versions
            && bytes + version.bytes <= bounds.bytes
            && kept.len() + version.parts.len() <= MAX_PARTS;
        if !is_other || is_within {
            *count += 1;
            bytes += version.bytes;
            kept.extend(names);
        }
    }
    let goes = |part: &&KeptPart| {
        let is_half = !whole.contains(part.name.as_str());
        if is_half { part.accepted.as_str() <= young } else { !kept.contains(part.name.as_str()) }
    };
    parts.iter().filter(goes).map(|part| part.name.clone()).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn part(source: &str, digest: &str, (number, count): (usize, usize)) -> KeptPart {
        KeptPart {
            name: part_name(source, digest, number),
            source: source.to_owned(),
            digest: digest.to_owned(),
            accepted: format!("2026-01-0{digest}"),
            number,
            count,
            bytes: 10,
            written_by: None,
        }
    }

    fn whole(source: &str, digest: &str) -> KeptPart {
        part(source, digest, (1, 1))
    }

    fn left(parts: &[KeptPart], bounds: KeptBounds, new: (&str, &str)) -> Vec<String> {
        let surplus = surplus(parts, bounds, new, "2026-01-08");
        parts.iter().filter(|part| !surplus.contains(&part.name)).map(|part| part.name.clone()).collect()
    }

    #[test]
    fn another_place_or_language_makes_another_module() {
        let id = |key: &str, language| source_id(language, ["n", "m", key]);
        let ours = id("hook.wasm", None);
        assert_eq!(ours, id("hook.wasm", None));
        assert_ne!(ours, id("other.wasm", None));
        assert_ne!(ours, id("hook.wasm", Some(Language::Python)));
        assert_ne!(ours, source_id(None, ["n2", "m", "hook.wasm"]));
        let name = part_name(&ours, &"a".repeat(64), 12);
        assert!(crate::object::id::is_dns_name(&name), "{name}");
    }

    #[test]
    fn the_newest_manager_of_the_key_wrote_the_module() {
        let entry = |manager: &str, time: &str, fields: Value| json!({ "manager": manager, "operation": "Update", "time": time, "fieldsType": "FieldsV1", "fieldsV1": fields });
        let (binary, text) = (
            json!({ "f:binaryData": { ".": {}, "f:hook.wasm": {} } }),
            |key: &str| json!({ "f:data": { (format!("f:{key}")): {} } }),
        );
        let cases = [
            (json!([entry("kubectl", "2026-01-01T00:00:00Z", binary.clone())]), Some("kubectl")),
            (
                json!([
                    entry("argo", "2026-01-02T00:00:00Z", binary.clone()),
                    entry("kubectl", "2026-01-01T00:00:00Z", text("hook.wasm")),
                    entry("labels", "2026-01-03T00:00:00Z", json!({ "f:metadata": { "f:labels": {} } })),
                    entry("notes", "2026-01-04T00:00:00Z", text("README")),
                ]),
                Some("argo"),
            ),
            (json!([entry("metahook", "2026-01-01T00:00:00Z", text("hook.wasm.json"))]), Some("metahook")),
            (json!([entry("no-time", "", binary.clone())]), Some("no-time")),
            (json!([entry("a\u{1b}[31mb\n", "", binary.clone())]), Some("a[31mb")),
            (json!([entry(&"é".repeat(65), "", binary.clone())]), Some(&*"é".repeat(64))),
            (json!([entry("\u{7}", "", binary)]), None),
            (json!([entry("notes", "", text("README"))]), None),
            (json!([{ "manager": "odd", "fieldsV1": "text" }, 3]), None),
            (json!([]), None),
            (Value::Null, None),
        ];
        for (fields, wanted) in cases {
            assert_eq!(last_writer(&fields, "hook.wasm").as_deref(), wanted, "{fields}");
        }
    }

    #[test]
    fn a_version_counts_where_all_of_its_parts_are_there() {
        let parts = [part("s", "1", (1, 2)), part("s", "1", (2, 2)), part("s", "2", (1, 2)), whole("s", "3")];
        let found = versions(parts);
        assert_eq!(found.iter().map(|one| &*one.digest).collect::<Vec<_>>(), ["3", "1"], "the newest first");
        assert_eq!((found[1].parts.len(), found[1].bytes), (2, 20));
        assert_eq!(parse_part("2/3"), Some((2, 3)));
        for bad in ["", "3/2", "0/1", "a/1", "1/1/1"] {
            assert_eq!(parse_part(bad), None, "{bad}");
        }
    }

    #[test]
    fn the_oldest_versions_of_a_module_go_first_and_halves_always() {
        let bounds = KeptBounds { versions: 2, bytes: 1000 };
        let parts =
            [whole("s", "1"), whole("s", "2"), whole("s", "3"), whole("t", "1"), part("s", "4", (1, 2))];
        assert_eq!(
            left(&parts, bounds, ("s", "3")),
            [&parts[1].name, &parts[2].name, &parts[3].name].map(String::clone)
        );
        // One that is accepted again is the newest, whatever its time says.
        assert_eq!(
            left(&parts[..3], bounds, ("s", "1")),
            [&parts[0].name, &parts[2].name].map(String::clone)
        );
    }

    #[test]
    fn the_bytes_of_all_modules_are_bounded_and_what_is_new_stays() {
        let parts = [whole("s", "1"), whole("t", "2"), whole("u", "3")];
        let bounds = |bytes| KeptBounds { versions: 3, bytes };
        assert_eq!(left(&parts, bounds(30), ("u", "3")).len(), 3);
        assert_eq!(left(&parts, bounds(29), ("u", "3")), [&parts[1].name, &parts[2].name].map(String::clone));
        assert_eq!(left(&parts, bounds(0), ("s", "1")), [parts[0].name.clone()]);
        // The only version of a module stays before the second one of another.
        let parts = [whole("s", "1"), whole("t", "2"), whole("t", "3")];
        assert_eq!(left(&parts, bounds(29), ("t", "3")), [&parts[0].name, &parts[2].name].map(String::clone));
        // A large one does not displace small ones.
        let large = KeptPart { bytes: 25, ..whole("u", "4") };
        let parts = [whole("s", "1"), large, whole("t", "5")];
        assert_eq!(left(&parts, bounds(30), ("t", "5")), [&parts[0].name, &parts[2].name].map(String::clone));
    }

    #[test]
    fn so_many_config_maps_are_kept_as_one_list_shows() {
        let bounds = KeptBounds { versions: 3, bytes: u64::MAX };
        let parts: Vec<_> = (0..=MAX_PARTS).map(|nth| whole(&format!("s{nth}"), "1")).collect();
        assert_eq!(left(&parts, bounds, ("s7", "1")).len(), MAX_PARTS);
        assert!(left(&parts, bounds, ("s7", "1")).contains(&parts[7].name));
    }

    #[test]
    fn a_half_that_may_be_written_now_stays() {
        let bounds = KeptBounds { versions: 3, bytes: 1000 };
        let parts = [whole("s", "1"), part("t", "8", (1, 2)), part("t", "9", (1, 2))];
        assert_eq!(left(&parts, bounds, ("s", "1")), [&parts[0].name, &parts[2].name].map(String::clone));
    }
}
