//! What a hook can call: WASI preview 1, of which it gets its arguments, its pipes, clocks and random numbers of its
//! own, and its mounts to read. Everything else is refused; nothing else is there.

mod call;
mod clock;
mod descriptors;
mod errno;
mod memory;
mod mounts;
mod paths;
mod poll;
mod random;
mod refused;
pub(crate) mod seeds;
mod sink;
pub(crate) mod state;
mod streams;

use wasmtime::{Engine, Linker};

pub(crate) use clock::Clock;
pub(crate) use descriptors::Descriptors;
pub use mounts::{Files, MountedFiles, MountedFolder};
pub(crate) use random::Random;

use call::{Answer, Hook, bytes, long, short};
use clock::Kind;
use errno::Failure;
use memory::{Span, after, length};
use paths::{How, Path};
use state::Host;
use streams::List;

const WASI: &str = "wasi_snapshot_preview1";

/// Instructions that a call into the host counts for, if it is one that can take long.
const CALL: u64 = 100;

/// What it counts for to look into a mount, and for each entry of a folder.
const LOOK: u64 = 5_000;
const ENTRY: u64 = 500;

/// What it counts for to wait for one thing: a loop of sleeps takes no time, so this is what ends it.
const WAIT: u64 = 1_000;

/// The hook ended itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the hook exited with code {0}")]
pub(crate) struct Exit(pub(crate) i32);

/// All that a hook can call.
pub(crate) fn linker(engine: &Engine) -> wasmtime::Result<Linker<Host>> {
    let mut linker = Linker::new(engine);
    process(&mut linker)?;
    time_and_chance(&mut linker)?;
    streams(&mut linker)?;
    descriptors(&mut linker)?;
    folders(&mut linker)?;
    refused::functions(&mut linker)?;
    #[cfg(test)]
    linker.func_wrap("test", "panic", || -> () { panic!("as the test wants it") })?;
    Ok(linker)
}

/// Arguments, an empty environment, the end.
fn process(linker: &mut Linker<Host>) -> wasmtime::Result<()> {
    linker.func_wrap(WASI, "args_sizes_get", |hook: Hook<'_>, count: u32, size: u32| {
        short(hook, |host, memory| {
            memory.write_u32(count, 2)?;
            Ok(memory.write_u32(size, length(host.args.text().len())?)?)
        })
    })?;
    linker.func_wrap(WASI, "args_get", |hook: Hook<'_>, list: u32, text: u32| {
        short(hook, |host, memory| {
            for (number, start) in (0..).zip(host.args.starts()) {
                memory.write_u32(after(list, number * 4)?, after(text, length(start)?)?)?;
            }
            Ok(memory.write(text, host.args.text())?)
        })
    })?;
    linker.func_wrap(WASI, "environ_sizes_get", |hook: Hook<'_>, count: u32, size: u32| {
        short(hook, |_, memory| {
            memory.write_u32(count, 0)?;
            Ok(memory.write_u32(size, 0)?)
        })
    })?;
    linker.func_wrap(WASI, "environ_get", |_: u32, _: u32| 0_u32)?;
    linker.func_wrap(WASI, "proc_exit", |code: i32| -> wasmtime::Result<()> { Err(Exit(code).into()) })?;
    linker.func_wrap(WASI, "sched_yield", || 0_u32)?;
    Ok(())
}

fn time_and_chance(linker: &mut Linker<Host>) -> wasmtime::Result<()> {
    linker.func_wrap(WASI, "clock_res_get", |hook: Hook<'_>, clock: u32, to: u32| {
        short(hook, |_, memory| {
            Kind::of(clock)?;
            Ok(memory.write_u64(to, Clock::resolution())?)
        })
    })?;
    linker.func_wrap(WASI, "clock_time_get", |hook: Hook<'_>, clock: u32, _precision: u64, to: u32| {
        short(hook, |host, memory| Ok(memory.write_u64(to, host.clock.read(Kind::of(clock)?))?))
    })?;
    linker.func_wrap_async(
        WASI,
        "poll_oneoff",
        |hook: Hook<'_>, (subscriptions, events, count, happened): (u32, u32, u32, u32)| {
            long(hook, CALL, move |host, memory| {
                let events = poll::poll(host, memory, (subscriptions, events, count))?;
                memory.write_u32(happened, events)?;
                Ok(WAIT * u64::from(events))
            })
        },
    )?;
    linker.func_wrap_async(WASI, "random_get", |hook: Hook<'_>, (at, len): (u32, u32)| {
        long(hook, CALL, move |host, memory| {
            Random::check(len).map_err(Failure::ends)?;
            host.random.fill(memory.bytes_mut(Span { at, len })?);
            Ok(len.into())
        })
    })?;
    Ok(())
}

fn streams(linker: &mut Linker<Host>) -> wasmtime::Result<()> {
    linker.func_wrap_async(
        WASI,
        "fd_read",
        |hook: Hook<'_>, (fd, at, count, read): (u32, u32, u32, u32)| {
            long(hook, CALL, move |host, memory| {
                let len = streams::read(host, memory, fd, List { at, count })?;
                memory.write_u32(read, len)?;
                Ok(bytes(len))
            })
        },
    )?;
    linker.func_wrap_async(
        WASI,
        "fd_pread",
        |hook: Hook<'_>, (fd, at, count, position, read): (u32, u32, u32, u64, u32)| {
            long(hook, CALL, move |host, memory| {
                let len = streams::read_at(host, memory, fd, (List { at, count }, position))?;
                memory.write_u32(read, len)?;
                Ok(bytes(len))
            })
        },
    )?;
    linker.func_wrap_async(
        WASI,
        "fd_write",
        |hook: Hook<'_>, (fd, at, count, written): (u32, u32, u32, u32)| {
            long(hook, CALL, move |host, memory| {
                let len = streams::write(host, memory, fd, List { at, count })?;
                memory.write_u32(written, len)?;
                Ok(bytes(len))
            })
        },
    )?;
    linker.func_wrap(WASI, "fd_seek", |hook: Hook<'_>, fd: u32, distance: i64, from: u32, to: u32| {
        short(hook, |host, memory| Ok(memory.write_u64(to, streams::seek(host, fd, distance, from)?)?))
    })?;
    linker.func_wrap(WASI, "fd_tell", |hook: Hook<'_>, fd: u32, to: u32| {
        short(hook, |host, memory| Ok(memory.write_u64(to, streams::seek(host, fd, 0, 1)?)?))
    })?;
    Ok(())
}

fn descriptors(linker: &mut Linker<Host>) -> wasmtime::Result<()> {
    linker.func_wrap(WASI, "fd_close", |hook: Hook<'_>, fd: u32| {
        short(hook, |host, _| Ok(host.files.close(fd)?))
    })?;
    linker.func_wrap(WASI, "fd_renumber", |hook: Hook<'_>, from: u32, to: u32| {
        short(hook, |host, _| Ok(host.files.renumber(from, to)?))
    })?;
    linker.func_wrap(WASI, "fd_fdstat_get", |hook: Hook<'_>, fd: u32, to: u32| {
        short(hook, |host, memory| paths::status(host, memory, fd, to))
    })?;
    // Nothing here blocks, waits to be written, or has rights to give up.
    linker.func_wrap(WASI, "fd_fdstat_set_flags", |hook: Hook<'_>, fd: u32, _flags: u32| open(hook, fd))?;
    linker
        .func_wrap(WASI, "fd_fdstat_set_rights", |hook: Hook<'_>, fd: u32, _: u64, _: u64| open(hook, fd))?;
    linker.func_wrap(WASI, "fd_sync", open)?;
    linker.func_wrap(WASI, "fd_datasync", open)?;
    linker.func_wrap(WASI, "fd_advise", |hook: Hook<'_>, fd: u32, _: u64, _: u64, _: u32| open(hook, fd))?;
    Ok(())
}

/// Nothing but whether the descriptor is one.
fn open(hook: Hook<'_>, fd: u32) -> Answer {
    short(hook, |host, _| Ok(host.files.get(fd).map(drop)?))
}

fn folders(linker: &mut Linker<Host>) -> wasmtime::Result<()> {
    linker.func_wrap(WASI, "fd_prestat_get", |hook: Hook<'_>, fd: u32, to: u32| {
        short(hook, |host, memory| paths::mounted(host, memory, fd, to))
    })?;
    linker.func_wrap(WASI, "fd_prestat_dir_name", |hook: Hook<'_>, fd: u32, at: u32, len: u32| {
        short(hook, |host, memory| paths::mount_name(host, memory, fd, Span { at, len }))
    })?;
    linker.func_wrap_async(WASI, "fd_filestat_get", |hook: Hook<'_>, (fd, to): (u32, u32)| {
        long(hook, LOOK, move |host, memory| paths::stat(host, memory, fd, to).map(|()| 0))
    })?;
    linker.func_wrap_async(
        WASI,
        "path_filestat_get",
        |hook: Hook<'_>, (fd, _lookup, at, len, to): (u32, u32, u32, u32, u32)| {
            long(hook, LOOK, move |host, memory| {
                paths::stat_path(host, memory, Path { fd, at, len }, to).map(|()| 0)
            })
        },
    )?;
    linker.func_wrap_async(
        WASI,
        "path_open",
        |hook: Hook<'_>,
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
            long(hook, LOOK, move |host, memory| {
                let opened = paths::open(host, memory, Path { fd, at, len }, How { flags, rights })?;
                memory.write_u32(to, opened)?;
                Ok(0)
            })
        },
    )?;
    linker.func_wrap_async(
        WASI,
        "fd_readdir",
        |hook: Hook<'_>, (fd, at, len, from, to): (u32, u32, u32, u64, u32)| {
            long(hook, LOOK, move |host, memory| {
                let (written, read) = paths::list(host, memory, fd, (Span { at, len }, from))?;
                memory.write_u32(to, written)?;
                let read = u64::try_from(read).unwrap_or(u64::MAX);
                Ok(ENTRY.saturating_mul(read))
            })
        },
    )?;
    Ok(())
}
