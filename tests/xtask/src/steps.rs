//! Steps of a command: announced before the first, numbered as they begin.

use std::time::Instant;

use binaries::elapsed::elapsed;
use binaries::paths;

pub(crate) struct Steps {
    count: usize,
    begun: usize,
    start: Instant,
}

impl Steps {
    /// Prints what the command will do: each step's name, and what it takes as a rule.
    pub(crate) fn announce(command: &str, steps: &[(&str, String)]) -> Self {
        let plural = if steps.len() == 1 { "" } else { "s" };
        eprintln!("cargo xtask {command}: {} step{plural} (times are those of two cores)", steps.len());
        for (number, (name, takes)) in (1..).zip(steps) {
            eprintln!("  {number}. {name:<11} {takes}");
        }
        Self { count: steps.len(), begun: 0, start: Instant::now() }
    }

    pub(crate) fn begin(&mut self, name: &str) {
        self.begun += 1;
        let after = elapsed(self.start);
        eprintln!("\n== {name} (step {} of {}, after {after})", self.begun, self.count);
    }
}

/// One of two texts: for a machine where the workspace was never compiled, and for the others.
pub(crate) fn usual_time(first: &str, later: &str) -> String {
    let compiled = paths::target().is_ok_and(|target| target.join("debug/.fingerprint").is_dir());
    if compiled { later.to_owned() } else { format!("{first}; later {later}") }
}
