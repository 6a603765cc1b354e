//! `metahook pack`: a module's file to ConfigMaps, printed or applied.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use clap::Args;
use clap::builder::{OsStringValueParser, TypedValueParser};
use metahook_core::api::packed::index_key;

use metahook_author::deploy::packed::{ApplyPackedError, apply_packed};
use metahook_author::pack::size::measure;
use metahook_author::pack::{PackError, PackTarget, Packed, optimize, pack};
use metahook_author::progress::Progress;
use metahook_server::cluster::api_client::{ApiClient, ConnectError};
use metahook_server::cluster::transport::READ_TIMEOUT;

#[derive(Debug, Args)]
pub struct Pack {
    /// The module's file: WebAssembly as the compiler made it.
    #[arg(value_parser = OsStringValueParser::new().map(PathBuf::from))]
    pub module: PathBuf,
    #[command(flatten)]
    pub place: PackTarget,
    /// Write to the cluster instead of stdout, and remove the parts of the previous module.
    #[arg(long)]
    pub apply: bool,
    /// Leave the module as it is, byte for byte: strip nothing, run no wasm-opt.
    #[arg(long)]
    pub no_optimize: bool,
    /// Kubeconfig of the API server for --apply; else $KUBECONFIG, ~/.kube/config, or the Pod's service account.
    #[arg(long, value_name = "FILE", value_parser = OsStringValueParser::new().map(PathBuf::from))]
    pub kubeconfig: Option<PathBuf>,
}

#[derive(Debug, thiserror::Error)]
pub enum PackCommandError {
    #[error("{} cannot be read", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error(transparent)]
    Pack(#[from] PackError),
    #[error("cannot print")]
    Print(#[from] io::Error),
    #[error(transparent)]
    Connect(#[from] ConnectError),
    #[error(transparent)]
    Applied(#[from] ApplyPackedError),
}

impl Pack {
    /// Manifests go to `out`, remarks about them to `say`.
    pub async fn run(&self, mut out: impl Write, mut say: impl Write) -> Result<(), PackCommandError> {
        let place = &self.place;
        place.check()?;
        let module = std::fs::read(&self.module)
            .map_err(|source| PackCommandError::Read { path: self.module.clone(), source })?;
        let progress = Progress::of_stderr();
        let module = self.optimized(module, &progress, &mut say)?;
        match measure(&module) {
            Ok(report) => write!(say, "{report}")?,
            Err(why) => writeln!(say, "its sections cannot be read: {why}")?,
        }
        let step = progress.step("compressing the module");
        let packed = pack(&module, place)?;
        drop(step);
        describe(&packed, place, &mut say)?;
        if self.apply {
            let _step = progress.step("writing to the cluster");
            let api = ApiClient::connect(self.kubeconfig.as_deref(), None, READ_TIMEOUT).await?;
            Ok(apply_packed(&api, &packed, place, &mut say).await?)
        } else {
            Ok(writeln!(out, "{:#}", packed.list())?)
        }
    }

    fn optimized(
        &self,
        module: Vec<u8>,
        progress: &Progress,
        say: &mut impl Write,
    ) -> Result<Vec<u8>, PackCommandError> {
        writeln!(say, "{}: {} bytes", self.module.display(), module.len())?;
        if self.no_optimize {
            return Ok(module);
        }
        let step = progress.step("running wasm-opt");
        let (small, why) = optimize(Path::new("wasm-opt"), &module)?;
        drop(step);
        match why {
            None => writeln!(say, "wasm-opt and stripping: {} bytes", small.len())?,
            Some(why) => writeln!(say, "stripping: {} bytes; wasm-opt was not used: {why}", small.len())?,
        }
        Ok(small)
    }
}

fn describe(
    packed: &Packed,
    PackTarget { namespace, name, key }: &PackTarget,
    say: &mut impl Write,
) -> io::Result<()> {
    writeln!(say, "stored: {} bytes", packed.stored)?;
    match packed.parts.len() {
        0 => writeln!(say, "ConfigMap {namespace}/{name}, key {key}")?,
        count => writeln!(say, "ConfigMap {namespace}/{name}, key {}, and {count} parts", index_key(key))?,
    }
    writeln!(say, "sha256: {}", packed.sha256)
}
