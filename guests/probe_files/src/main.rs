//! Knows a hook that reads the mount `/etc/greeting` and tries to do more than that.

use std::fs;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::time::UNIX_EPOCH;

use metahook_sdk::{Object, SyncRequest, SyncResponse};
use serde_json::{Value, json};

const MOUNT: &str = "/etc/greeting";

fn sync(_: &SyncRequest<Object<'_>>) -> SyncResponse {
    let status = look().unwrap_or_else(|error| json!({ "error": error.to_string() }));
    SyncResponse::new().status(status)
}

fn look() -> std::io::Result<Value> {
    let name = format!("{MOUNT}/name");
    let names: std::io::Result<Vec<_>> =
        fs::read_dir(MOUNT)?.map(|entry| entry.map(|it| it.file_name())).collect();
    let names: Vec<_> = names?.iter().map(|name| name.to_string_lossy().into_owned()).collect();
    let mut end = String::new();
    let mut file = fs::File::open(&name)?;
    file.seek(SeekFrom::End(-2))?;
    file.read_to_string(&mut end)?;
    let told = fs::metadata(&name)?;
    let changed = told.modified()?.duration_since(UNIX_EPOCH).unwrap_or_default();
    let refused = |done: std::io::Result<()>| done.err().and_then(|error| error.raw_os_error());
    Ok(json!({
        "names": names,
        "content": fs::read_to_string(&name)?,
        "end": end,
        "told": [told.len(), file.metadata()?.len(), changed.as_secs()],
        "refused": [
            refused(fs::write(&name, "Mars")),
            refused(fs::write(format!("{MOUNT}/other"), "Mars")),
            refused(fs::remove_file(&name)),
            refused(fs::rename(&name, format!("{MOUNT}/other"))),
            refused(fs::create_dir(format!("{MOUNT}/other"))),
            refused(fs::read(format!("{MOUNT}/../passwd")).map(drop)),
            refused(fs::read("/etc/passwd").map(drop)),
            refused(fs::read(format!("{MOUNT}/missing")).map(drop)),
        ],
    }))
}

fn main() -> std::process::ExitCode {
    metahook_sdk::run(sync)
}
