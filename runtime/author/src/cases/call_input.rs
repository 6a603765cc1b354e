//! `call.yaml` of a case: what a call is given beside its request.

use std::path::Path;
use std::time::SystemTime;

use jiff::Timestamp;
use metahook_core::api::hook::HookName;
use metahook_core::recording::{print_seed, read_seed};
use metahook_server::hook::wasm::run::Seed;
use metahook_server::telemetry::error_chain;
use serde::{Deserialize, Serialize};

use super::file;
use crate::documents;
use crate::yaml;

/// Input of a call beside its request. Values that the file does not name are as in a simulation.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct CallInput {
    pub(crate) hook: Option<HookName>,
    /// The time that the hook's clock begins at.
    pub(crate) time: Option<Timestamp>,
    /// The source of its random numbers.
    pub(crate) seed: Option<Seed>,
}

#[derive(Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Written {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    hook: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    time: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    seed: Option<String>,
}

impl CallInput {
    /// The file of this name in a case; there need not be one.
    pub(crate) fn read(folder: &Path, name: &str) -> Result<Self, String> {
        let Some(path) = file(folder, name) else { return Ok(Self::default()) };
        let (_, value) = documents::read_one_as_json(&path).map_err(|error| error_chain(&error))?;
        let read = serde_json::from_value(value).map_err(|error| error.to_string()).and_then(Self::of);
        read.map_err(|why| format!("{}: {why}", path.display()))
    }

    fn of(Written { hook, time, seed }: Written) -> Result<Self, String> {
        let hooks = [HookName::Sync, HookName::Finalize, HookName::Customize];
        let hook = hook.map(|name| {
            let found = hooks.into_iter().find(|hook| hook.as_str() == name);
            found.ok_or_else(|| format!("hook is {name:?}: write sync, finalize or customize"))
        });
        let time = time.map(|text| {
            let read = text.parse::<Timestamp>();
            read.map_err(|_other| format!("time is {text:?}: write one such as 2026-01-02T03:04:05Z"))
        });
        let seed = seed.map(|text| {
            let read = read_seed(&text);
            read.map(Seed).ok_or_else(|| "seed is not what a recording has: 32 bytes in base64".to_owned())
        });
        Ok(Self { hook: hook.transpose()?, time: time.transpose()?, seed: seed.transpose()? })
    }

    pub(crate) fn now(&self) -> Option<SystemTime> {
        self.time.map(SystemTime::from)
    }

    /// The content of the file.
    pub(crate) fn print(&self) -> String {
        let written = Written {
            hook: self.hook.map(|hook| hook.as_str().to_owned()),
            time: self.time.map(|time| time.to_string()),
            seed: self.seed.map(|seed| print_seed(&seed.0)),
        };
        yaml::print(&serde_json::to_value(written).unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn what_is_printed_is_read_to_the_nanosecond() {
        let folder = tempfile::tempdir().unwrap();
        let read = || CallInput::read(folder.path(), "call");
        assert!(read() == Ok(CallInput::default()), "there is no file");
        let time = Timestamp::from_nanosecond(1_700_000_000_123_456_789).unwrap();
        let all = CallInput { hook: Some(HookName::Finalize), time: Some(time), seed: Some(Seed([7; 32])) };
        for input in [all, CallInput { seed: None, ..all }, CallInput { time: None, ..all }] {
            std::fs::write(folder.path().join("call.yaml"), input.print()).unwrap();
            assert!(read() == Ok(input), "{}", input.print());
        }
        let now = SystemTime::UNIX_EPOCH + Duration::from_nanos(1_700_000_000_123_456_789);
        assert_eq!(all.now(), Some(now));
    }

    #[test]
    fn what_is_wrong_is_named_with_its_file() {
        let folder = tempfile::tempdir().unwrap();
        let refused = |content: &str| {
            std::fs::write(folder.path().join("call.2.yaml"), content).unwrap();
            CallInput::read(folder.path(), "call.2").err().unwrap_or_default()
        };
        for (content, says) in [
            ("hook: snyc", "call.2.yaml: hook is \"snyc\": write sync, finalize or customize"),
            ("time: yesterday", "call.2.yaml: time is \"yesterday\": write one such as 2026-"),
            ("seed: BwcH", "call.2.yaml: seed is not what a recording has"),
            ("sede: BwcH", "call.2.yaml: unknown field `sede`, expected one of `hook`, `time`, `seed`"),
        ] {
            let said = refused(content);
            assert!(said.contains(says), "{content}: {said}");
        }
    }
}
