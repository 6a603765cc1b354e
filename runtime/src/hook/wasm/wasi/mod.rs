//! Functions that a hook can call: WASI preview 1. A hook gets its arguments, its pipes, clocks and random numbers of its
//! own, and its mounts to read; all other functions of WASI are refused, and there are no others.
//!
//! Nothing differs from call to call but the real time. Random numbers come from the installation's key and the parent's uid,
//! time is virtual (a sleep is over at once, and the clocks say that it took place), and mounts show no times, devices or foreign
//! order. A call that never read the real time is pure: the same request would have given the same answer.

mod call;
mod clock;
mod descriptors;
mod errno;
mod memory;
mod mounts;
mod paths;
mod random;
mod refused;
mod state;
mod streams;

use wasmtime::{Engine, Linker};

pub(super) use call::YIELD_INTERVAL;
pub use mounts::{Files, MountedFiles, MountedFolder};
pub use random::Seed;
pub(crate) use random::Seeds;
pub use state::Call;
pub(super) use state::{CallState, RefusedGrowth};

use call::{Guest, WasiResult, copy_cost, long, short};
use clock::{Clock, Kind};
use errno::Failure;
use memory::{Span, after, length};
use paths::{Mode, Path};
use random::Random;
use streams::List;

const WASI: &str = "wasi_snapshot_preview1";

/// Instructions that a call into the host costs at least, where it can take long.
const CALL_COST: u64 = 100;

/// The cost of a look into a mount, and of each entry of a listing.
const LOOKUP_COST: u64 = 5_000;
const ENTRY_COST: u64 = 500;

/// The cost of each event of a poll: sleeping takes no time, so this cost ends a loop of sleeps.
const EVENT_COST: u64 = 1_000;

/// The hook ended itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the hook exited with code {0}")]
pub(super) struct Exit(pub(super) i32);

/// All functions that a hook can call.
pub(super) fn linker(engine: &Engine) -> wasmtime::Result<Linker<CallState>> {
    let mut linker = Linker::new(engine);
    process(&mut linker)?;
    clocks_and_random(&mut linker)?;
    streams(&mut linker)?;
    descriptors(&mut linker)?;
    folders(&mut linker)?;
    refused::functions(&mut linker)?;
    #[cfg(test)]
    linker.func_wrap("test", "panic", || -> () { panic!("a test asked for it") })?;
    Ok(linker)
}

/// Arguments, an empty environment, the end.
fn process(linker: &mut Linker<CallState>) -> wasmtime::Result<()> {
    linker.func_wrap(WASI, "args_sizes_get", |guest: Guest<'_>, count: u32, size: u32| {
        short(guest, |state, memory| {
            memory.write_u32(count, 2)?;
            Ok(memory.write_u32(size, length(state.args.text.len())?)?)
        })
    })?;
    linker.func_wrap(WASI, "args_get", |guest: Guest<'_>, list: u32, text: u32| {
        short(guest, |state, memory| {
            for (number, start) in (0..).zip(state.args.starts()) {
                memory.write_u32(after(list, number * 4)?, after(text, length(start)?)?)?;
            }
            Ok(memory.write(text, &state.args.text)?)
        })
    })?;
    linker.func_wrap(WASI, "environ_sizes_get", |guest: Guest<'_>, count: u32, size: u32| {
        short(guest, |_, memory| {
            memory.write_u32(count, 0)?;
            Ok(memory.write_u32(size, 0)?)
        })
    })?;
    linker.func_wrap(WASI, "environ_get", |_: u32, _: u32| 0_u32)?;
    linker.func_wrap(WASI, "proc_exit", |code: i32| -> wasmtime::Result<()> { Err(Exit(code).into()) })?;
    linker.func_wrap(WASI, "sched_yield", || 0_u32)?;
    Ok(())
}

fn clocks_and_random(linker: &mut Linker<CallState>) -> wasmtime::Result<()> {
    linker.func_wrap(WASI, "clock_res_get", |guest: Guest<'_>, clock: u32, to: u32| {
        short(guest, |_, memory| {
            Kind::of(clock)?;
            Ok(memory.write_u64(to, Clock::resolution())?)
        })
    })?;
    linker.func_wrap(WASI, "clock_time_get", |guest: Guest<'_>, clock: u32, _precision: u64, to: u32| {
        short(guest, |state, memory| Ok(memory.write_u64(to, state.clock.read(Kind::of(clock)?))?))
    })?;
    linker.func_wrap_async(
        WASI,
        "poll_oneoff",
        |guest: Guest<'_>, (subscriptions, events, count, happened): (u32, u32, u32, u32)| {
            long(guest, CALL_COST, move |state, memory| {
                let events = streams::poll(state, memory, subscriptions, events, count)?;
                memory.write_u32(happened, events)?;
                Ok(EVENT_COST * u64::from(events))
            })
        },
    )?;
    linker.func_wrap_async(WASI, "random_get", |guest: Guest<'_>, (at, len): (u32, u32)| {
        long(guest, CALL_COST, move |state, memory| {
            Random::check(len).map_err(Failure::trap)?;
            state.random.fill(memory.bytes_mut(Span { at, len })?);
            Ok(len.into())
        })
    })?;
    Ok(())
}

fn streams(linker: &mut Linker<CallState>) -> wasmtime::Result<()> {
    linker.func_wrap_async(
        WASI,
        "fd_read",
        |guest: Guest<'_>, (fd, at, count, read): (u32, u32, u32, u32)| {
            long(guest, CALL_COST, move |state, memory| {
                let len = streams::read(state, memory, fd, List { at, count })?;
                memory.write_u32(read, len)?;
                Ok(copy_cost(len))
            })
        },
    )?;
    linker.func_wrap_async(
        WASI,
        "fd_pread",
        |guest: Guest<'_>, (fd, at, count, position, read): (u32, u32, u32, u64, u32)| {
            long(guest, CALL_COST, move |state, memory| {
                let len = streams::read_at(state, memory, fd, List { at, count }, position)?;
                memory.write_u32(read, len)?;
                Ok(copy_cost(len))
            })
        },
    )?;
    linker.func_wrap_async(
        WASI,
        "fd_write",
        |guest: Guest<'_>, (fd, at, count, written): (u32, u32, u32, u32)| {
            long(guest, CALL_COST, move |state, memory| {
                let len = streams::write(state, memory, fd, List { at, count })?;
                memory.write_u32(written, len)?;
                Ok(copy_cost(len))
            })
        },
    )?;
    linker.func_wrap(WASI, "fd_seek", |guest: Guest<'_>, fd: u32, distance: i64, from: u32, to: u32| {
        short(guest, |state, memory| Ok(memory.write_u64(to, streams::seek(state, fd, distance, from)?)?))
    })?;
    linker.func_wrap(WASI, "fd_tell", |guest: Guest<'_>, fd: u32, to: u32| {
        short(guest, |state, memory| Ok(memory.write_u64(to, streams::seek(state, fd, 0, 1)?)?))
    })?;
    Ok(())
}

fn descriptors(linker: &mut Linker<CallState>) -> wasmtime::Result<()> {
    linker.func_wrap(WASI, "fd_close", |guest: Guest<'_>, fd: u32| {
        short(guest, |state, _| Ok(state.files.close(fd)?))
    })?;
    linker.func_wrap(WASI, "fd_renumber", |guest: Guest<'_>, from: u32, to: u32| {
        short(guest, |state, _| Ok(state.files.renumber(from, to)?))
    })?;
    linker.func_wrap(WASI, "fd_fdstat_get", |guest: Guest<'_>, fd: u32, to: u32| {
        short(guest, |state, memory| paths::status(state, memory, fd, to))
    })?;
    // No descriptor blocks, is written to a disk, or has rights to give up.
    linker.func_wrap(WASI, "fd_fdstat_set_flags", |guest: Guest<'_>, fd: u32, _flags: u32| {
        check_open(guest, fd)
    })?;
    linker.func_wrap(WASI, "fd_fdstat_set_rights", |guest: Guest<'_>, fd: u32, _: u64, _: u64| {
        check_open(guest, fd)
    })?;
    linker.func_wrap(WASI, "fd_sync", check_open)?;
    linker.func_wrap(WASI, "fd_datasync", check_open)?;
    linker.func_wrap(WASI, "fd_advise", |guest: Guest<'_>, fd: u32, _: u64, _: u64, _: u32| {
        check_open(guest, fd)
    })?;
    Ok(())
}

/// Does nothing with an open descriptor.
fn check_open(guest: Guest<'_>, fd: u32) -> WasiResult {
    short(guest, |state, _| Ok(state.files.get(fd).map(drop)?))
}

fn folders(linker: &mut Linker<CallState>) -> wasmtime::Result<()> {
    linker.func_wrap(WASI, "fd_prestat_get", |guest: Guest<'_>, fd: u32, to: u32| {
        short(guest, |state, memory| paths::prestat(state, memory, fd, to))
    })?;
    linker.func_wrap(WASI, "fd_prestat_dir_name", |guest: Guest<'_>, fd: u32, at: u32, len: u32| {
        short(guest, |state, memory| paths::prestat_name(state, memory, fd, Span { at, len }))
    })?;
    linker.func_wrap_async(WASI, "fd_filestat_get", |guest: Guest<'_>, (fd, to): (u32, u32)| {
        long(guest, LOOKUP_COST, move |state, memory| paths::stat(state, memory, fd, to).map(|()| 0))
    })?;
    linker.func_wrap_async(
        WASI,
        "path_filestat_get",
        |guest: Guest<'_>, (fd, _lookup, at, len, to): (u32, u32, u32, u32, u32)| {
            long(guest, LOOKUP_COST, move |state, memory| {
                paths::stat_path(state, memory, Path { fd, at, len }, to).map(|()| 0)
            })
        },
    )?;
    linker.func_wrap_async(
        WASI,
        "path_open",
        |guest: Guest<'_>,
         (fd, _lookup, at, len, flags, rights, _below, _status, to): (
            u32,
            u32,
            u32,
            u32,
            u32,
            u64,
            u64,
            u32,
            u32,
        )| {
            long(guest, LOOKUP_COST, move |state, memory| {
                let opened = paths::open(state, memory, Path { fd, at, len }, Mode { flags, rights })?;
                memory.write_u32(to, opened)?;
                Ok(0)
            })
        },
    )?;
    linker.func_wrap_async(
        WASI,
        "fd_readdir",
        |guest: Guest<'_>, (fd, at, len, from, to): (u32, u32, u32, u64, u32)| {
            long(guest, LOOKUP_COST, move |state, memory| {
                let (written, read) = paths::list(state, memory, fd, Span { at, len }, from)?;
                memory.write_u32(to, written)?;
                let read = u64::try_from(read).unwrap_or(u64::MAX);
                Ok(ENTRY_COST.saturating_mul(read))
            })
        },
    )?;
    Ok(())
}
