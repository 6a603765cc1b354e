//! Flags of `metahook serve`, and the settings of a server that they make.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use clap::builder::TypedValueParser;
use metahook_core::object::selector::Selector;
use metahook_core::pacing::self_triggered::SelfTriggerLimits;
use metahook_core::reconcile::shown::ObservedBounds;
use metahook_server::controller::Options;
use metahook_server::hook::web::RedirectPolicy;
use metahook_server::inspection::InspectionSettings;
use metahook_server::server::Settings;
use metahook_server::telemetry::Format;

use crate::values::{
    Address, FlagError, address, bytes, duration, local_address, pause, read_timeout, selector,
};
use crate::{hook_flags, metacontroller_flags};

#[derive(Debug, Args)]
pub struct Serve {
    /// Kubeconfig of the API server; else $KUBECONFIG, the Pod's service account, or ~/.kube/config.
    #[arg(long, value_name = "FILE", value_parser = clap::builder::OsStringValueParser::new().map(PathBuf::from))]
    pub kubeconfig: Option<PathBuf>,
    /// Host only controllers with these labels, for example `team=a,stage!=test`.
    #[arg(long, value_name = "SELECTOR", default_value = "", value_parser = selector)]
    pub target_label_selector: Selector,
    /// Reconciles at once of each controller, of all its kinds together.
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..))]
    pub workers: u16,
    /// Interval at which the server asks which kinds the API server serves.
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = duration)]
    pub discovery_interval: Duration,
    /// Interval at which all parents are reconciled again, unless the controller has resyncPeriodSeconds; 0 turns it off.
    #[arg(long, value_name = "DURATION", default_value = "30m", value_parser = pause)]
    pub cache_flush_interval: Duration,
    /// The server repeats a list or a watch that received nothing from the API server for this long; at most 1m.
    #[arg(long, value_name = "DURATION", default_value = "1m", value_parser = read_timeout)]
    pub api_read_timeout: Duration,
    /// Calls of hooks that run at once; two per core when absent. One controller gets at most a quarter of them, and a call that runs for 250 ms while others wait hands its place on.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    pub hook_concurrency: Option<u16>,
    /// Memory that reconciles may take at once, with the traces of --trace-memory-max; when absent three quarters of what the cgroup's memory limit leaves beside mounts and a compilation, or 512Mi without a limit. One reconcile may have three quarters of what traces leave.
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
    pub memory_budget: Option<u64>,
    /// Memory that the caches of all watched objects may take; when absent half of the cgroup's memory limit, or of the machine's memory without a limit. Beyond it the controllers of the largest kind stop, with the reason `CacheTooLarge`.
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
    pub cache_budget: Option<u64>,
    /// Children that an answer may have.
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    pub max_children: usize,
    /// Children of a parent that a hook is shown; 50000 when absent, or twice --max-children where that is more.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub max_observed_children: Option<u32>,
    /// Bytes of a request to a webhook; children beyond them are not shown.
    #[arg(long, value_name = "BYTES", default_value = "256Mi", value_parser = bytes)]
    pub max_webhook_request: u64,
    /// Bytes of the answer of a webhook, unpacked; the values in it may take four times as much memory, and 128Mi at least.
    #[arg(long, value_name = "BYTES", default_value = "32Mi", value_parser = bytes)]
    pub max_webhook_answer: u64,
    /// Redirects of webhooks that are followed, never from https to http.
    #[arg(long, value_name = "WHICH", value_enum, default_value_t)]
    pub webhook_redirects: RedirectPolicy,
    /// After this many reconciles that its own writes triggered, a parent gets one every 10 s. A change of its spec, labels or annotations by another client resets the count.
    #[arg(long, value_name = "N", default_value_t = SelfTriggerLimits::default().max, value_parser = clap::value_parser!(u32).range(1..))]
    pub self_triggered_max: u32,
    /// Reconciles per second of each controller that are beyond the tenth of their parents.
    #[arg(long, value_name = "N", default_value_t = SelfTriggerLimits::default().rate, value_parser = clap::value_parser!(u32).range(1..))]
    pub self_triggered_rate: u32,
    /// Check that hooks are pure: at one in N triggers of settled parents the server calls the hook although nothing changed, and compares the answers; 0 turns this off.
    #[arg(long, value_name = "N", default_value_t = 1000)]
    pub purity_check: u64,
    /// Gives hooks other random numbers at each call, so that there are hooks that answer differently.
    #[cfg(debug_assertions)]
    #[arg(long, hide = true)]
    pub seed_each_call: bool,
    /// Address for probes (/healthz, /readyz), for example `:8081`; 0 turns them off.
    #[arg(long, value_name = "ADDRESS", default_value = "0", value_parser = address)]
    pub health_probe_bind_address: Address,
    /// Address for metrics (/metrics), for example `:9999`; 0 turns them off.
    #[arg(long, value_name = "ADDRESS", default_value = "0", value_parser = address)]
    pub metrics_address: Address,
    /// Address where `metahook explain` looks into the server, on localhost, for example `127.0.0.1:9797`; 0 turns it off.
    #[arg(long, value_name = "ADDRESS", default_value = "0", value_parser = local_address)]
    pub inspection_address: Address,
    /// Memory that the traces of the latest reconciles take, which `metahook explain` shows; it counts in --memory-budget, and has to be less. Where --inspection-address is 0 there are none.
    #[arg(long, value_name = "BYTES", default_value = "4Mi", value_parser = bytes)]
    pub trace_memory_max: u64,
    /// Format of the log.
    #[arg(long, value_name = "FORMAT", value_enum, default_value_t = Format::Json)]
    pub log_format: Format,
    /// Level of the log: error, warn, info, debug, trace, or a filter like `metahook=debug`.
    #[arg(long, value_name = "LEVEL", default_value = "info")]
    pub log_level: String,
    #[command(flatten)]
    pub hook_limits: hook_flags::HookLimits,
    #[command(flatten)]
    pub hook_policy: hook_flags::PolicyFlags,
    #[command(flatten)]
    pub customize: hook_flags::CustomizeFlags,
    #[command(flatten)]
    pub modules: hook_flags::ModuleFlags,
    #[command(flatten)]
    pub metacontroller_flags: metacontroller_flags::MetacontrollerFlags,
}

impl Serve {
    pub fn log_format(&self) -> Format {
        self.metacontroller_flags.log_format().unwrap_or(self.log_format)
    }

    pub fn log_level(&self) -> String {
        self.metacontroller_flags.log_level().unwrap_or_else(|| self.log_level.clone())
    }

    /// A hook has to see all children that it may ask for.
    fn observed(&self) -> Result<ObservedBounds, FlagError> {
        let default = ObservedBounds::default().children.max(self.max_children.saturating_mul(2));
        let children = self.max_observed_children.map_or(default, |given| size(given.into()));
        if children < self.max_children {
            return Err(FlagError::FewerObserved);
        }
        Ok(ObservedBounds { children, webhook_request: size(self.max_webhook_request) })
    }

    pub fn settings(self) -> Result<Settings, FlagError> {
        let observed = self.observed()?;
        let cores = std::thread::available_parallelism().map_or(2, std::num::NonZero::get);
        Ok(Settings {
            kubeconfig: self.kubeconfig.filter(|path| !path.as_os_str().is_empty()),
            context: None,
            selector: self.target_label_selector,
            election: self.metacontroller_flags.election(),
            options: Options {
                applying: self.metacontroller_flags.applying(),
                workers: usize::from(self.workers),
                max_children: self.max_children,
                observed,
                max_webhook_answer: size(self.max_webhook_answer),
                purity_check: self.purity_check,
                self_triggered: SelfTriggerLimits {
                    max: self.self_triggered_max,
                    rate: self.self_triggered_rate,
                },
                resync: Some(self.cache_flush_interval).filter(|interval| !interval.is_zero()),
                customize: self.customize.bounds(),
                discovery_interval: self.discovery_interval,
            },
            webhook_redirects: self.webhook_redirects,
            hook_concurrency: self.hook_concurrency.map_or(cores * 2, usize::from),
            #[cfg(debug_assertions)]
            seed_each_call: self.seed_each_call,
            hook_policy: self.hook_policy.policy(self.hook_limits.bounds()?),
            mount_memory: self.hook_policy.mount_memory_max,
            memory_budget: self.memory_budget,
            cache_budget: self.cache_budget,
            kept: self.modules.kept(),
            modules: self.modules.settings(cores),
            rate: self.metacontroller_flags.rate()?,
            events: self.metacontroller_flags.events(),
            read_timeout: self.api_read_timeout,
            probes: self.health_probe_bind_address.0,
            metrics: self.metrics_address.0,
            inspection: self
                .inspection_address
                .0
                .map(|address| InspectionSettings { address, trace_memory: size(self.trace_memory_max) }),
        })
    }
}

fn size(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use metahook_core::api::customize::CustomizeBounds;
    use metahook_core::api::policy::{BrakeLimits, HookPolicy, LimitBounds};
    use metahook_core::hook::DEFAULT_WEBHOOK_ANSWER;

    use clap::Parser;

    use super::*;
    use crate::{Cli, Command};

    fn parse(args: &[&str]) -> Result<Settings, String> {
        let args = ["metahook", "serve"].iter().chain(args);
        let cli = Cli::try_parse_from(args).map_err(|error| error.to_string())?;
        let Command::Serve(serve) = cli.command else { panic!("another command") };
        serve.settings().map_err(|error| error.to_string())
    }

    #[test]
    fn parents_are_resynced_as_by_metacontroller_or_never() {
        let resync = |flag: &str| parse(&[flag]).unwrap().options.resync;
        assert_eq!(resync("--cache-flush-interval=30m"), resync("--workers=5"));
        assert_eq!(resync("--cache-flush-interval=90s"), Some(Duration::from_secs(90)));
        assert_eq!(resync("--cache-flush-interval=0"), None);
    }

    #[test]
    fn a_hook_is_shown_all_children_that_it_may_ask_for() {
        let observed = |flags: &[&str]| parse(flags).map(|settings| settings.options.observed.children);
        assert_eq!(parse(&[]).unwrap().options.observed, ObservedBounds::default());
        assert_eq!(observed(&["--max-children=40000"]), Ok(80_000));
        assert_eq!(observed(&["--max-children=3", "--max-observed-children=4"]), Ok(4));
        let error = observed(&["--max-observed-children=9999"]).unwrap_err();
        assert!(error.starts_with("--max-observed-children is below --max-children"), "{error}");
    }

    #[test]
    fn the_answers_of_webhooks_are_bounded_as_the_flag_says() {
        let answer = |flags: &[&str]| parse(flags).unwrap().options.max_webhook_answer;
        assert_eq!(answer(&[]), DEFAULT_WEBHOOK_ANSWER);
        assert_eq!(answer(&["--max-webhook-answer=256Mi"]), 256 << 20);
    }

    #[test]
    fn an_empty_kubeconfig_is_none() {
        assert_eq!(parse(&["--kubeconfig", ""]).unwrap().kubeconfig, None);
        assert_eq!(parse(&["--kubeconfig=x"]).unwrap().kubeconfig, Some("x".into()));
    }

    #[test]
    fn bad_values_name_their_flag() {
        for (flag, value) in [
            ("--target-label-selector", "a in"),
            ("--discovery-interval", "0s"),
            ("--api-read-timeout", "61s"),
            ("--workers", "0"),
            ("--deletion-brake-percent", "101"),
            ("--module-size-max", "0"),
            ("--module-functions-max", "0"),
            ("--module-compile-timeout", "soon"),
            ("--mount-memory-max", "0"),
            ("--cache-budget", "0"),
            ("--cache-budget", "half"),
            ("--max-webhook-answer", "0"),
            ("--max-webhook-answer", "much"),
        ] {
            let error = parse(&[&format!("{flag}={value}")]).unwrap_err();
            assert!(error.contains(flag), "{error}");
        }
    }

    #[test]
    fn the_limits_of_the_flags_are_those_of_the_types() {
        assert_eq!(parse(&[]).unwrap().hook_policy.limits, LimitBounds::default());
        assert_eq!(parse(&[]).unwrap().options.customize, CustomizeBounds::default());
        let limits = parse(&["--hook-memory=1Mi", "--hook-memory-max=2Mi"]).unwrap().hook_policy.limits;
        assert_eq!((limits.default.memory, limits.ceiling.memory), (1 << 20, 2 << 20));
    }

    #[test]
    fn the_deletion_brake_of_the_flags_is_that_of_the_types() {
        assert_eq!(parse(&[]).unwrap().hook_policy.deletion_brake, BrakeLimits::default());
    }

    #[test]
    fn namespaces_are_lists_and_an_empty_one_names_nothing() {
        assert_eq!(parse(&["--module-namespaces="]).unwrap().hook_policy, HookPolicy::default());
        let flags = ["--module-namespaces=a,b", "--require-pin", "--mount-secret-namespaces=c"];
        let expected = HookPolicy {
            limits: LimitBounds::default(),
            module_namespaces: ["a".to_owned(), "b".to_owned()].into(),
            require_pin: true,
            mount_secret_namespaces: ["c".to_owned()].into(),
            ..HookPolicy::default()
        };
        assert_eq!(parse(&flags).unwrap().hook_policy, expected);
    }

    #[test]
    fn a_default_above_its_ceiling_is_refused() {
        let error = parse(&["--hook-timeout=2m"]).unwrap_err();
        assert_eq!(error, "--hook-timeout is above --hook-timeout-max: lower the one or raise the other");
    }
}
