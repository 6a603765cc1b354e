//! `metahook man`: the manual's pages, made of the commands and flags.

use std::fs;
use std::io::{self, Write};
use std::path::PathBuf;

use clap::builder::{OsStringValueParser, TypedValueParser};
use clap::{Args, Command, CommandFactory};

use crate::Cli;

#[derive(Debug, Args)]
pub struct Man {
    /// Write a page for each command into this folder: metahook.1, metahook-run.1, ... The command creates a folder that is missing.
    #[arg(long, value_name = "FOLDER", value_parser = OsStringValueParser::new().map(PathBuf::from))]
    pub dir: Option<PathBuf>,
}

#[derive(Debug, thiserror::Error)]
pub enum ManError {
    #[error("--dir: {} cannot be written: name another folder", path.display())]
    Write { path: PathBuf, source: io::Error },
    #[error("cannot print")]
    Print(#[from] io::Error),
}

impl ManError {
    /// 2: the folder is at fault.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Write { .. } => 2,
            Self::Print(_) => 1,
        }
    }
}

impl Man {
    pub fn run(&self, mut out: impl Write) -> Result<(), ManError> {
        let mut command = Cli::command();
        command.build();
        let Some(folder) = &self.dir else {
            return Ok(out.write_all(&page(&command)?)?);
        };
        let failed = |path: PathBuf| move |source| ManError::Write { path, source };
        fs::create_dir_all(folder).map_err(failed(folder.clone()))?;
        // That about help is nobody's question.
        let all = command.get_subcommands().filter(|one| one.get_name() != "help");
        for one in std::iter::once(&command).chain(all) {
            let name = one.get_display_name().unwrap_or_else(|| one.get_name());
            let path = folder.join(format!("{name}.1"));
            fs::write(&path, page(one)?).map_err(failed(path))?;
        }
        Ok(())
    }
}

fn page(command: &Command) -> io::Result<Vec<u8>> {
    let mut page = Vec::new();
    clap_mangen::Man::new(command.clone()).render(&mut page)?;
    Ok(page)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_command_has_a_page_with_its_flags() {
        let folder = tempfile::tempdir().unwrap();
        let dir = folder.path().join("man");
        Man { dir: Some(dir.clone()) }.run(Vec::new()).unwrap();
        let page = |name: &str| fs::read_to_string(dir.join(name)).unwrap();
        for command in Cli::command().get_subcommands() {
            let page = page(&format!("metahook-{}.1", command.get_name()));
            for flag in command.get_arguments().filter(|flag| !flag.is_hide_set()) {
                let Some(flag) = flag.get_long() else { continue };
                assert!(page.contains(&format!("\\-\\-{}", flag.replace('-', "\\-"))), "{flag}: {page}");
            }
        }
        assert!(page("metahook.1").contains("Exit codes"));
        let mut out = Vec::new();
        Man { dir: None }.run(&mut out).unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), page("metahook.1"));
    }

    #[test]
    fn a_folder_that_is_a_file_is_named() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let error = Man { dir: Some(file.path().to_owned()) }.run(Vec::new()).unwrap_err();
        assert!(error.to_string().contains("cannot be written: name another folder"), "{error}");
        assert_eq!(error.exit_code(), 2);
    }
}
