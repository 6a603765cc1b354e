//! `metahook new`: a folder with a hook that builds, is checked and tested without a cluster.

use std::io::{self, Write};
use std::path::Path;

use clap::Args;

use metahook_author::scaffold::{Language, Name, Scaffold, ScaffoldError, Template, write};

#[derive(Debug, Args)]
pub struct New {
    /// The name of the folder, the crate and the controller: lower case letters, digits and dashes.
    #[arg(value_name = "NAME", value_parser = Name::parse)]
    pub name: Name,
    /// The language of the hook.
    #[arg(long, value_name = "LANGUAGE", value_enum, default_value_t = Language::Rust)]
    pub lang: Language,
    /// The example that the hook begins with.
    #[arg(long, value_name = "TEMPLATE", value_enum, default_value_t = Template::Composite)]
    pub from: Template,
    /// The same as --from decorator.
    #[arg(long, conflicts_with = "from")]
    pub decorator: bool,
}

#[derive(Debug, thiserror::Error)]
pub enum NewError {
    #[error(transparent)]
    Scaffold(#[from] ScaffoldError),
    #[error("cannot print")]
    Print(#[from] io::Error),
}

impl New {
    /// Writes the scaffold; the next steps go to `out`.
    pub fn run(&self, mut out: impl Write) -> Result<(), NewError> {
        let template = if self.decorator { Template::Decorator } else { self.from };
        let name = self.name.to_string();
        let Scaffold { files, build } = Scaffold::new(&self.name, template, self.lang);
        write(Path::new(&name), &files)?;
        writeln!(out, "wrote {} files to {name}; {name}/README.md says what comes next:", files.len())?;
        let build = build.map(|build| format!("{build} && ")).unwrap_or_default();
        Ok(writeln!(out, "  cd {name} && {build}metahook test")?)
    }
}
