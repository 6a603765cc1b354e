//! Metacontroller's flags that are accepted and have no effect, and what is said of them.

use clap::{Arg, ArgMatches, Args, Command, FromArgMatches};

const IGNORED: [&str; 3] = ["pprof-address", "zap-stacktrace-level", "zap-time-encoding"];

/// The ignored flags that were given.
#[derive(Debug)]
pub struct IgnoredFlags(Vec<&'static str>);

impl Args for IgnoredFlags {
    fn augment_args(command: Command) -> Command {
        command.args(IGNORED.map(|name| Arg::new(name).long(name).hide(true)))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for IgnoredFlags {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        // 0 is no address.
        let is_meant = |name: &str| matches.get_one::<String>(name).is_some_and(|value| value != "0");
        Ok(Self(IGNORED.into_iter().filter(|name| is_meant(name)).collect()))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl IgnoredFlags {
    pub(super) fn warning(&self) -> Option<String> {
        let given: Vec<_> = self.0.iter().map(|name| format!("--{name}")).collect();
        let given = (!given.is_empty()).then(|| given.join(", "))?;
        Some(format!("accepted, and without effect in this version of metahook: {given}"))
    }
}
