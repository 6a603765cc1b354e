//! The JavaScript runner: an interpreter that is kept as it is after its start, and runs one hook of a script a call.
//!
//! `<controller> compile <file>` makes bytecode of the script on stdin. `<controller> <hook> <file>` runs the bytecode in
//! /hook/.code, calls the script's function for the hook with the request on stdin, and writes the answer to stdout.
//! The script prints to stderr, which is the log. A number behind the file is the budget that a call before used up: an
//! error stops this one on its way, and says where.

mod bytecode;
mod engine;
mod integers;
mod misfit;
mod script;

use std::io::{Read, Write};
use std::process::ExitCode;

const USAGE: &str = "the arguments are CONTROLLER compile|sync|finalize|customize FILE";

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            _ = std::io::stderr().write_all(format!("{}\n", why.trim_end()).as_bytes());
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), String> {
    let mut arguments = std::env::args().skip(1);
    let (Some(hook), Some(file)) = (arguments.next(), arguments.next()) else { return Err(USAGE.into()) };
    let mut input = Vec::new();
    std::io::stdin().read_to_end(&mut input).map_err(|error| format!("cannot read stdin: {error}"))?;
    if let Some(budget) = arguments.next().and_then(|budget| budget.parse().ok()) {
        engine::stop_within(budget);
    }
    let answer = match hook.as_str() {
        "compile" => script::compile(&file, input)?,
        "sync" | "finalize" | "customize" => script::call(&hook, &file, input)?,
        _ => return Err(USAGE.into()),
    };
    let mut stdout = std::io::stdout().lock();
    stdout
        .write_all(&answer)
        .and_then(|()| stdout.flush())
        .map_err(|error| format!("cannot write the answer: {error}"))
}

/// Starts the engine for the program that snapshots the runner: it calls this, and keeps what it leaves in memory.
#[expect(unsafe_code, reason = "an export has a name of its own")]
#[unsafe(export_name = "wizer-initialize")]
pub extern "C" fn initialize() {
    engine::start();
}
