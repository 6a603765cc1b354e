//! `metahook schema`: JSON Schemas of a controller's parents, requests and answers, for editors and generators of types.

use std::io::{self, Write};
use std::path::PathBuf;

use clap::builder::{OsStringValueParser, TypedValueParser};
use clap::{Args, ValueEnum};
use serde_json::Value;

use crate::crds::{CrdsError, definitions};
use metahook_author::documents::{self, DocumentError};
use metahook_author::kinds::KnownKinds;
use metahook_author::render::setup::{SetupError, hook_kinds};
use metahook_author::schemas::hooks::{self, controllers};

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Subject {
    /// CompositeControllers and DecoratorControllers; the only one that needs no file.
    Controller,
    /// The objects that the controller's hooks are asked about.
    Parent,
    /// The request of sync and finalize hooks.
    SyncRequest,
    SyncResponse,
    CustomizeRequest,
    CustomizeResponse,
}

#[derive(Debug, Args)]
pub struct Schema {
    /// The document that the schema describes.
    #[arg(value_name = "SUBJECT", value_enum)]
    pub of: Subject,
    /// A file with the controller, or with definitions of the kinds that it names, or a folder with such files; several times for several.
    #[arg(short = 'f', long = "file", value_name = "FILE", value_parser = OsStringValueParser::new().map(PathBuf::from))]
    pub file: Vec<PathBuf>,
}

#[derive(Debug, thiserror::Error)]
pub enum SchemaError {
    #[error("-f")]
    Document(#[source] DocumentError),
    #[error(transparent)]
    Setup(#[from] SetupError),
    #[error("the argument -f FILE is needed: it names the controller whose hooks the schema is of")]
    NoFile,
    #[error(transparent)]
    Definitions(#[from] CrdsError),
    #[error("cannot print")]
    Print(#[from] io::Error),
}

impl SchemaError {
    /// 2: the files are at fault.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Document(_) | Self::Setup(_) | Self::NoFile => 2,
            Self::Definitions(_) | Self::Print(_) => 1,
        }
    }
}

impl Schema {
    pub fn run(&self, mut out: impl Write) -> Result<(), SchemaError> {
        let schema = match self.of {
            Subject::Controller => {
                let all: Vec<_> = definitions()?.into_iter().map(|(_, definition)| definition).collect();
                controllers(&all)
            }
            Subject::Parent => self.of_hooks(hooks::Subject::Parent)?,
            Subject::SyncRequest => self.of_hooks(hooks::Subject::SyncRequest)?,
            Subject::SyncResponse => self.of_hooks(hooks::Subject::SyncResponse)?,
            Subject::CustomizeRequest => self.of_hooks(hooks::Subject::CustomizeRequest)?,
            Subject::CustomizeResponse => self.of_hooks(hooks::Subject::CustomizeResponse)?,
        };
        Ok(writeln!(out, "{schema:#}")?)
    }

    fn of_hooks(&self, subject: hooks::Subject) -> Result<Value, SchemaError> {
        if self.file.is_empty() {
            return Err(SchemaError::NoFile);
        }
        let all = documents::read_all(&self.file).map_err(SchemaError::Document)?;
        let kinds = KnownKinds::of(&all).map_err(SetupError::kinds)?;
        Ok(hook_kinds(&all, &kinds)?.schema(subject))
    }
}
