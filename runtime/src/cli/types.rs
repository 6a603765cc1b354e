//! `metahook types`: types of the kinds in definitions, in the language of a hook.

use std::io::{self, Write};
use std::path::PathBuf;

use clap::Args;
use clap::builder::{OsStringValueParser, TypedValueParser};

use crate::author::documents::{self, DocumentError};
use crate::author::kinds::{KindError, KnownKinds};
use crate::author::types;
pub use crate::author::types::Language;

#[derive(Debug, Args)]
pub struct Types {
    /// A file with CustomResourceDefinitions, or a folder with such files; several times for several.
    #[arg(short = 'f', long = "file", value_name = "FILE", required = true, value_parser = OsStringValueParser::new().map(PathBuf::from))]
    pub file: Vec<PathBuf>,
    /// The language of the types.
    #[arg(long, value_enum, default_value_t = Language::Rust)]
    pub lang: Language,
    /// Only of this kind, such as `Thing`.
    #[arg(long)]
    pub kind: Option<String>,
    /// The version of the kinds, such as `v1`, if it is not the one that is stored.
    #[arg(long, value_name = "VERSION")]
    pub api_version: Option<String>,
}

#[derive(Debug, thiserror::Error)]
pub enum TypesError {
    #[error("-f")]
    Document(#[source] DocumentError),
    #[error("-f")]
    Kinds(#[from] KindError),
    #[error(
        "-f: no CustomResourceDefinition has {asked}{}",
        if known.is_empty() { ": give the file with the definition".to_owned() } else { format!(": they have {known}") }
    )]
    None { asked: String, known: String },
    #[error("cannot print")]
    Print(#[from] io::Error),
}

/// Kinds that an error names.
const MAX_NAMED: usize = 10;

impl TypesError {
    /// 2: the files are at fault.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Document(_) | Self::Kinds(_) | Self::None { .. } => 2,
            Self::Print(_) => 1,
        }
    }
}

impl Types {
    pub fn run(&self, mut out: impl Write) -> Result<(), TypesError> {
        let all = documents::read_all(&self.file).map_err(TypesError::Document)?;
        let kinds = KnownKinds::of(&all)?;
        let mut asked = kinds.defined(self.api_version.as_deref());
        asked.retain(|(gvk, _)| self.kind.as_ref().is_none_or(|kind| *kind == *gvk.kind));
        if asked.is_empty() {
            let version = self.api_version.as_ref().map(|version| format!(" in version {version}"));
            let asked = format!("{}{}", self.kind.as_deref().unwrap_or("kinds"), version.unwrap_or_default());
            let known = kinds.defined(None).into_iter().take(MAX_NAMED).map(|(gvk, _)| gvk.to_string());
            return Err(TypesError::None { asked, known: known.collect::<Vec<_>>().join(", ") });
        }
        let text = types::print(&asked, self.lang).map_err(io::Error::other)?;
        Ok(out.write_all(text.as_bytes())?)
    }
}
