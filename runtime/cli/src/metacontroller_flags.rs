//! Metacontroller's command line: the name it is called by, its flags, and Go's way of writing them.

use std::ffi::OsString;
use std::path::Path;

use clap::Args;
use clap::builder::NonEmptyStringValueParser;
use metahook_core::api::common::ApplyStrategy;
use metahook_core::children::desired::Applying;
use metahook_core::pacing::Rate;

use crate::ignored_flags::IgnoredFlags;
use crate::values::{FlagError, apply_strategy};
use metahook_server::controller::troubleshooting::{BODIES, DIFFERENCES};
use metahook_server::server::Election;
use metahook_server::telemetry::Format;

/// Flags that Metacontroller's manifests and charts pass. Differences are logged at start.
#[derive(Debug, Args)]
#[command(next_help_heading = "Metacontroller's flags")]
pub struct MetacontrollerFlags {
    /// json or console: as --log-format json or text.
    #[arg(long, value_name = "ENCODER", value_parser = ["json", "console"])]
    pub zap_encoder: Option<String>,
    /// debug, info, error or a number: as --log-level. From 5 on, the log shows what each write changes; from 6 on, also requests to hooks and their answers. Values of Secrets are hidden.
    #[arg(long, value_name = "LEVEL")]
    pub zap_log_level: Option<String>,
    /// Log as text, at the level debug.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value_t = false, action = clap::ArgAction::Set)]
    pub zap_devel: bool,
    /// Apply strategy of children where the controller names none.
    #[arg(long, value_name = "STRATEGY", default_value = "dynamic-apply", value_parser = apply_strategy)]
    pub apply_strategy: ApplyStrategy,
    /// Field manager of server-side apply.
    #[arg(long, value_name = "NAME", default_value = "metacontroller", value_parser = field_manager)]
    pub apply_strategy_ssa_field_manager: String,
    /// Requests to the API server per second; without it and --client-go-burst there is no limit.
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub client_go_qps: Option<f64>,
    /// Requests to the API server at once, before the limit per second holds.
    #[arg(long, value_name = "N")]
    pub client_go_burst: Option<u32>,
    /// Events per second about one object with one reason, once those of --events-burst are written; 0 is one in 5 minutes.
    #[arg(long, value_name = "N", value_parser = events_qps, default_value = "0")]
    pub events_qps: f64,
    /// Events at once about one object with one reason; 0 is 25.
    #[arg(long, value_name = "N", default_value_t = 25)]
    pub events_burst: u32,
    /// Only the server that holds the Lease writes; the others stand by, with caches filled and modules loaded.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value_t = false, action = clap::ArgAction::Set)]
    pub leader_election: bool,
    /// What the leader holds; there are only leases.
    #[arg(long, value_name = "LOCK", default_value = "leases", value_parser = ["leases"])]
    pub leader_election_resource_lock: String,
    /// Namespace of the Lease; the Pod's or the kubeconfig's when empty.
    #[arg(long, value_name = "NAMESPACE", default_value = "")]
    pub leader_election_namespace: String,
    /// Name of the Lease.
    #[arg(long, value_name = "NAME", default_value = "metacontroller", value_parser = NonEmptyStringValueParser::new())]
    pub leader_election_id: String,
    #[command(flatten)]
    pub ignored: IgnoredFlags,
}

fn events_qps(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(rate) if f64::is_finite(rate) && rate >= 0.0 => Ok(rate),
        _ => Err("write a number of Events per second from 0 on, such as 0.0033".to_owned()),
    }
}

/// The API server takes no other names.
fn field_manager(text: &str) -> Result<String, String> {
    if (1..=128).contains(&text.len()) && !text.chars().any(char::is_control) {
        return Ok(text.to_owned());
    }
    Err("a field manager has 1 to 128 characters that can be printed".to_owned())
}

impl MetacontrollerFlags {
    pub(super) fn applying(&self) -> Applying {
        Applying {
            strategy: self.apply_strategy,
            manager: self.apply_strategy_ssa_field_manager.as_str().into(),
        }
    }

    pub(super) fn log_format(&self) -> Option<Format> {
        match self.zap_encoder.as_deref() {
            Some("console") => Some(Format::Text),
            Some(_) => Some(Format::Json),
            None => self.zap_devel.then_some(Format::Text),
        }
    }

    /// Numbers are verbosity: 0 is info; from 1 on each reconcile is logged, from 5 on what a write changes, from 6 on what hooks
    /// are asked and answer.
    pub(super) fn log_level(&self) -> Option<String> {
        let level = self.zap_log_level.as_deref().or(self.zap_devel.then_some("debug"))?;
        Some(match level.parse::<u32>() {
            Ok(0) => "info".to_owned(),
            Ok(1..=4) => "info,metahook=debug".to_owned(),
            Ok(5) => format!("info,metahook=debug,{DIFFERENCES}=trace"),
            Ok(_) => format!("info,metahook=debug,{DIFFERENCES}=trace,{BODIES}=trace"),
            Err(_) if level == "panic" => "error".to_owned(),
            Err(_) => level.to_owned(),
        })
    }

    /// How many requests there may be.
    pub(super) fn rate(&self) -> Result<Option<Rate>, FlagError> {
        Rate::of(self.client_go_qps, self.client_go_burst).map_err(FlagError::Rate)
    }

    /// How many Events about one object with one reason there may be.
    pub(super) fn events(&self) -> Rate {
        Rate::of_events(Some(self.events_qps), Some(self.events_burst))
    }

    pub(super) fn election(&self) -> Option<Election> {
        let namespace = Some(&self.leader_election_namespace).filter(|namespace| !namespace.is_empty());
        let name = self.leader_election_id.clone();
        self.leader_election.then(|| Election { namespace: namespace.cloned(), name })
    }

    /// Flags without effect.
    pub fn warnings(&self) -> Vec<String> {
        self.ignored.warning().into_iter().collect()
    }
}

/// Called `metacontroller`, the program is `metahook serve`, listens for probes and scrapes, and takes `-flag` for `--flag`.
pub(super) fn translate(arguments: impl IntoIterator<Item = OsString>) -> Vec<OsString> {
    let mut arguments = arguments.into_iter();
    let name = arguments.next().unwrap_or_default();
    if Path::new(&name).file_name().is_none_or(|file| file != "metacontroller") {
        return std::iter::once(name).chain(arguments).collect();
    }
    let flags: Vec<OsString> = arguments.map(two_dashes).collect();
    let named = |flag: &str| flags.iter().any(|one| one.to_string_lossy().starts_with(flag));
    let defaults = [("--health-probe-bind-address", ":8081"), ("--metrics-address", ":9999")]
        .into_iter()
        .filter(|(flag, _)| !named(flag))
        .map(|(flag, address)| format!("{flag}={address}").into());
    [name, "serve".into()].into_iter().chain(defaults).chain(flags.clone()).collect()
}

fn two_dashes(argument: OsString) -> OsString {
    match argument.to_str() {
        Some(text) if text.starts_with('-') && !text.starts_with("--") && text.len() > 2 => {
            format!("-{text}").into()
        }
        _ => argument,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use clap::Parser;

    use super::*;
    use crate::{Cli, Command, Serve};

    fn serve(line: &str) -> Result<Serve, String> {
        let arguments = translate(line.split(' ').map(Into::into));
        let cli = Cli::try_parse_from(arguments).map_err(|error| error.to_string())?;
        let Command::Serve(serve) = cli.command else { panic!("another command") };
        Ok(*serve)
    }

    #[test]
    fn the_arguments_of_its_manifests_and_chart_are_taken() {
        let chart = "/usr/bin/metacontroller --zap-log-level=4 --discovery-interval=20s --cache-flush-interval=30m --health-probe-bind-address=:8081";
        let serve = serve(chart).unwrap();
        assert_eq!(serve.log_level(), "info,metahook=debug");
        assert_eq!(serve.settings().unwrap().probes, Some(([0_u16; 8], 8081).into()));
    }

    #[test]
    fn the_arguments_that_its_users_give_are_taken() {
        let users = "metacontroller --zap-log-level=4 --zap-devel=false --zap-encoder=json --zap-stacktrace-level=error --discovery-interval=1m --cache-flush-interval=10m --metrics-address=:9999 --client-go-qps=150 --client-go-burst=300 --workers=50 --events-qps=0.0033 --events-burst=25 --pprof-address=:6060";
        let serve = serve(users).unwrap();
        assert_eq!((serve.log_format(), serve.log_level().as_str()), (Format::Json, "info,metahook=debug"));
        let warnings = serve.metacontroller_flags.warnings();
        assert!(
            matches!(warnings.as_slice(), [one] if one.ends_with(": --pprof-address, --zap-stacktrace-level")),
            "{warnings:?}"
        );
        let settings = serve.settings().unwrap();
        assert_eq!(settings.options.workers, 50);
        assert_eq!(settings.options.discovery_interval, Duration::from_mins(1));
        assert_eq!(settings.options.resync, Some(Duration::from_mins(10)));
        assert_eq!(settings.rate, Some(Rate { per_second: 150.0, burst: 300 }));
        assert_eq!(settings.events, Rate { per_second: 0.0033, burst: 25 });
        assert_eq!(settings.metrics, Some(([0_u16; 8], 9999).into()));
        assert_eq!(settings.probes, Some(([0_u16; 8], 8081).into()));
    }

    #[test]
    fn a_profile_that_is_turned_off_is_not_warned_of() {
        let warnings = |line: &str| serve(line).unwrap().metacontroller_flags.warnings().len();
        assert_eq!(warnings("metacontroller --pprof-address=0"), 0);
        assert_eq!(warnings("metacontroller --pprof-address=:6060"), 1);
    }

    /// As Go's flags; a chart adds arguments to those that are there.
    #[test]
    fn of_a_flag_that_is_given_twice_the_last_one_counts() {
        let settings = |line: &str| serve(line).unwrap().settings().unwrap();
        let flags = "--workers=9 --workers=3 --zap-log-level=0 -zap-log-level 4 --leader-election --leader-election=false";
        let twice = settings(&format!("metacontroller {flags}"));
        assert_eq!(twice, settings("metacontroller --workers=3 --zap-log-level=4"));
    }

    /// Its limit on requests to the API server is the one default that differs.
    #[test]
    fn a_flag_that_is_given_its_default_changes_nothing() {
        let settings = |line: &str| serve(line).unwrap().settings().unwrap();
        let default = settings("metacontroller");
        for flag in [
            "discovery-interval=30s",
            "cache-flush-interval=30m",
            "metrics-address=:9999",
            "workers=5",
            "events-qps=0.0033333333333333335",
            "events-burst=25",
            "pprof-address=0",
            "leader-election=false",
            "leader-election-resource-lock=leases",
            "leader-election-namespace=",
            "leader-election-id=metacontroller",
            "health-probe-bind-address=:8081",
            "target-label-selector=",
            "apply-strategy=dynamic-apply",
            "apply-strategy-ssa-field-manager=metacontroller",
            "kubeconfig=",
            "zap-devel=false",
            "zap-encoder=json",
            "zap-log-level=info",
            "zap-stacktrace-level=error",
            "zap-time-encoding=rfc3339",
        ] {
            for dashes in ["-", "--"] {
                assert_eq!(settings(&format!("metacontroller {dashes}{flag}")), default, "{flag}");
            }
        }
        assert_eq!(default.rate, None);
    }

    #[test]
    fn each_level_and_format_of_its_log_is_taken() {
        let log = |flags: &str| {
            let serve = serve(&format!("metacontroller {flags}")).unwrap();
            (serve.log_format(), serve.log_level())
        };
        for (flags, format, level) in [
            ("--zap-log-level=debug", Format::Json, "debug"),
            ("--zap-log-level=info", Format::Json, "info"),
            ("--zap-log-level=error", Format::Json, "error"),
            ("--zap-log-level=panic", Format::Json, "error"),
            ("--zap-log-level=0", Format::Json, "info"),
            ("--zap-log-level=4", Format::Json, "info,metahook=debug"),
            ("--zap-log-level=5", Format::Json, "info,metahook=debug,metahook::differences=trace"),
            (
                "--zap-log-level=7",
                Format::Json,
                "info,metahook=debug,metahook::differences=trace,metahook::bodies=trace",
            ),
            ("--zap-devel", Format::Text, "debug"),
            ("--zap-devel --zap-encoder=json --zap-log-level=info", Format::Json, "info"),
            ("--zap-encoder=console", Format::Text, "info"),
        ] {
            assert_eq!(log(flags), (format, level.to_owned()), "{flags}");
        }
    }

    #[test]
    fn it_listens_for_probes_and_scrapes_by_default() {
        assert!(serve("metacontroller").unwrap().settings().unwrap().probes.is_some());
        assert!(
            serve("metacontroller -health-probe-bind-address 0")
                .unwrap()
                .settings()
                .unwrap()
                .probes
                .is_none()
        );
        assert!(serve("metahook serve").unwrap().settings().unwrap().probes.is_none());
        assert_eq!(
            serve("metacontroller").unwrap().settings().unwrap().metrics,
            Some(([0_u16; 8], 9999).into())
        );
        assert!(serve("metahook serve").unwrap().settings().unwrap().metrics.is_none());
    }

    #[test]
    fn flags_are_written_as_go_writes_them() {
        let serve = serve(
            "metacontroller -workers 7 -zap-devel -leader-election=true --zap-encoder json -pprof-address=:6060",
        )
        .unwrap();
        assert_eq!(serve.workers, 7);
        assert_eq!((serve.log_format(), serve.log_level().as_str()), (Format::Json, "debug"));
        assert_eq!(serve.metacontroller_flags.warnings().len(), 1, "--pprof-address");
    }

    #[test]
    fn a_leader_is_elected_where_a_flag_says_so() {
        let election = |line: &str| serve(line).unwrap().settings().unwrap().election;
        assert_eq!(election("metacontroller --leader-election-id=x"), None);
        let usual = Election { namespace: None, name: "metacontroller".to_owned() };
        assert_eq!(election("metacontroller --leader-election"), Some(usual));
        let named = "metacontroller --leader-election --leader-election-resource-lock=leases --leader-election-namespace=n --leader-election-id=x";
        let named_election = Election { namespace: Some("n".to_owned()), name: "x".to_owned() };
        assert_eq!(election(named), Some(named_election));
        let lock = serve("metacontroller --leader-election-resource-lock=endpoints").unwrap_err();
        assert!(lock.contains("--leader-election-resource-lock") && lock.contains("leases"), "{lock}");
        assert!(serve("metacontroller --leader-election-id=").is_err());
    }

    #[test]
    fn requests_are_limited_where_a_flag_says_so() {
        let rate = |line: &str| serve(line).unwrap().settings().map(|settings| settings.rate);
        assert_eq!(rate("metacontroller"), Ok(None));
        assert_eq!(rate("metacontroller -client-go-qps=-1"), Ok(None));
        let limited = Rate::of(Some(0.5), Some(3)).unwrap();
        assert_eq!(rate("metacontroller -client-go-qps 0.5 -client-go-burst 3"), Ok(limited));
        let refused = rate("metacontroller --client-go-burst=0").unwrap_err().to_string();
        assert!(refused.starts_with("--client-go-qps and --client-go-burst: "), "{refused}");
        assert!(serve("metacontroller --client-go-qps=many").is_err());
    }

    #[test]
    fn events_are_limited_as_the_flags_say() {
        let events = |line: &str| serve(line).map(|serve| serve.settings().unwrap().events);
        assert_eq!(events("metacontroller"), Ok(Rate::OF_EVENTS));
        assert_eq!(events("metacontroller --events-qps=0 --events-burst=0"), Ok(Rate::OF_EVENTS));
        let rate = Rate { per_second: 0.5, burst: 7 };
        assert_eq!(events("metacontroller -events-qps 0.5 -events-burst 7"), Ok(rate));
        for wrong in ["--events-qps=-1", "--events-qps=inf", "--events-qps=x", "--events-burst=-1"] {
            let refused = events(&format!("metacontroller {wrong}")).unwrap_err();
            assert!(refused.contains(wrong.split('=').next().unwrap()), "{refused}");
        }
    }

    #[test]
    fn children_are_applied_as_the_flags_say() {
        let applying = |line: &str| serve(line).unwrap().settings().unwrap().options.applying;
        let (usual, server) = (ApplyStrategy::DynamicApply, ApplyStrategy::ServerSideApply);
        assert_eq!(
            applying("metacontroller"),
            Applying { strategy: usual, manager: "metacontroller".into() }
        );
        assert_eq!(
            applying(
                "metacontroller --apply-strategy=server-side-apply --apply-strategy-ssa-field-manager=me"
            ),
            Applying { strategy: server, manager: "me".into() }
        );
        assert_eq!(applying("metacontroller --apply-strategy="), applying("metacontroller"));
    }

    #[test]
    fn what_is_not_served_is_refused_by_name() {
        assert!(serve("metacontroller --apply-strategy=by-hand").unwrap_err().contains("--apply-strategy"));
        assert!(serve("metacontroller --no-such-flag").is_err());
    }
}
