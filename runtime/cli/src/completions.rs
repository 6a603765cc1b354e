//! `metahook completions`: scripts that complete commands and flags in a shell.

use std::io::{self, Write};

use clap::{Args, CommandFactory};
use clap_complete::{Shell, generate};

use crate::Cli;

#[derive(Debug, Args)]
pub struct Completions {
    /// The shell that the script is for.
    #[arg(value_name = "SHELL", value_enum)]
    pub shell: Shell,
}

#[derive(Debug, thiserror::Error)]
pub enum CompletionsError {
    #[error("cannot print")]
    Print(#[from] io::Error),
}

impl Completions {
    pub fn run(&self, mut out: impl Write) -> Result<(), CompletionsError> {
        // The generator expects that what it writes to takes everything.
        let mut script = Vec::new();
        generate(self.shell, &mut Cli::command(), "metahook", &mut script);
        Ok(out.write_all(&script)?)
    }
}

#[cfg(test)]
mod tests {
    use clap::ValueEnum;

    use super::*;

    #[test]
    fn each_shell_gets_a_script_with_all_commands() {
        for &shell in Shell::value_variants() {
            let mut script = Vec::new();
            Completions { shell }.run(&mut script).unwrap();
            let script = String::from_utf8(script).unwrap();
            for command in Cli::command().get_subcommands() {
                assert!(script.contains(command.get_name()), "{shell}: {}", command.get_name());
            }
        }
    }
}
