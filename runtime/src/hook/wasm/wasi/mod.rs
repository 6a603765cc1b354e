//! Functions that a hook can call: WASI preview 1 for modules, preview 2 for components (`preview2`). A hook gets its arguments, its pipes, clocks and random numbers of its
//! own, and its mounts to read; all other functions of WASI are refused, and there are no others.
//!
//! Nothing differs from call to call but the real time. Random numbers come from the installation's key and the parent's uid,
//! time is virtual (a sleep is over at once, and the clocks say that it took place), and mounts show no times, devices or foreign
//! order. A call that never read the real time is pure: the same request would have given the same answer.

mod descriptors;
mod determinism;
mod files;
mod memory;
mod mounts;
mod preview2;
mod state;

use std::future::poll_fn;
use std::task::Poll;

use wasmtime::{Caller, Engine, Extern, FuncType, Linker, Trap, Val, ValType};

pub use determinism::Seed;
pub(crate) use determinism::Seeds;
pub use mounts::{Files, MountedFiles, MountedFolder};
pub(super) use preview2::{
    Charge, ComponentState, MAX_HANDLES, charge_copied, component_linker, exceeded, is_too_much,
};
pub(crate) use state::{COMPILE, Script};
pub use state::{Call, CallState};
pub(super) use state::{MAX_INSTANCES, MAX_MEMORIES, MAX_TABLES, RefusedGrowth};

use determinism::{ClockKind, RESOLUTION, Random};
use files::Mode;
use memory::{Errno, Failure, List, Memory, Span, after, length};

const WASI: &str = "wasi_snapshot_preview1";

/// A long call offers to give way to others after this many instructions.
pub(super) const YIELD_INTERVAL: u64 = 100_000;

/// Instructions that a call into the host costs at least.
const CALL_COST: u64 = 100;

/// Bytes that are copied in the time of one instruction.
const BYTES_PER_INSTRUCTION: u64 = 16;

/// The cost of a look into a mount, and of each entry of a listing.
const LOOKUP_COST: u64 = 5_000;
const ENTRY_COST: u64 = 500;

/// The cost of each event of a poll: sleeping takes no time, so this cost ends a loop of sleeps.
const EVENT_COST: u64 = 1_000;

/// The calling instance.
type Guest<'a> = Caller<'a, CallState>;
type WasiResult = wasmtime::Result<u32>;

/// The hook ended itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the hook exited with code {0}")]
pub(super) struct Exit(pub(super) i32);

/// All functions that a hook can call.
pub fn linker(engine: &Engine) -> wasmtime::Result<Linker<CallState>> {
    let mut linker = Linker::new(engine);
    process(&mut linker)?;
    clocks_and_random(&mut linker)?;
    streams(&mut linker)?;
    folders(&mut linker)?;
    checks(&mut linker)?;
    Ok(linker)
}

/// Arguments, an empty environment, the end.
fn process(linker: &mut Linker<CallState>) -> wasmtime::Result<()> {
    linker.func_wrap_async(WASI, "args_sizes_get", |guest: Guest<'_>, (count, size): (u32, u32)| {
        short(guest, move |state, memory| {
            memory.write_u32(count, state.input.arg_count)?;
            Ok(memory.write_u32(size, length(state.input.args.len())?)?)
        })
    })?;
    linker.func_wrap_async(WASI, "args_get", |guest: Guest<'_>, (list, text): (u32, u32)| {
        short(guest, move |state, memory| {
            let mut start = text;
            for (number, arg) in (0..).zip(state.input.args.split_inclusive(|byte| *byte == 0)) {
                memory.write_u32(after(list, number * 4)?, start)?;
                start = after(start, length(arg.len())?)?;
            }
            Ok(memory.write(text, &state.input.args)?)
        })
    })?;
    linker.func_wrap_async(WASI, "environ_sizes_get", |guest: Guest<'_>, (count, size): (u32, u32)| {
        short(guest, move |_, memory| {
            memory.write_u32(count, 0)?;
            Ok(memory.write_u32(size, 0)?)
        })
    })?;
    linker.func_wrap_async(WASI, "environ_get", |guest: Guest<'_>, (_, _): (u32, u32)| {
        short(guest, |_, _| Ok(()))
    })?;
    linker.func_wrap(WASI, "proc_exit", |code: i32| -> wasmtime::Result<()> { Err(Exit(code).into()) })?;
    linker.func_wrap_async(WASI, "proc_raise", |guest: Guest<'_>, (_,): (u32,)| {
        short(guest, |_, _| Err(Errno::Notsup.into()))
    })?;
    linker.func_wrap_async(WASI, "sched_yield", |guest: Guest<'_>, ()| short(guest, |_, _| Ok(())))?;
    Ok(())
}

fn clocks_and_random(linker: &mut Linker<CallState>) -> wasmtime::Result<()> {
    linker.func_wrap_async(WASI, "clock_res_get", |guest: Guest<'_>, (clock, to): (u32, u32)| {
        short(guest, move |_, memory| {
            ClockKind::of(clock)?;
            Ok(memory.write_u64(to, RESOLUTION)?)
        })
    })?;
    linker.func_wrap_async(
        WASI,
        "clock_time_get",
        |guest: Guest<'_>, (clock, _precision, to): (u32, u64, u32)| {
            short(guest, move |state, memory| {
                Ok(memory.write_u64(to, state.clock.read(ClockKind::of(clock)?))?)
            })
        },
    )?;
    linker.func_wrap_async(
        WASI,
        "poll_oneoff",
        |guest: Guest<'_>, (subscriptions, events, count, happened): (u32, u32, u32, u32)| {
            long(guest, CALL_COST, move |state, memory| {
                let events = files::poll(state, memory, subscriptions, events, count)?;
                Ok(memory.write_u32(happened, events)?)
            })
        },
    )?;
    linker.func_wrap_async(WASI, "random_get", |guest: Guest<'_>, (at, len): (u32, u32)| {
        long(guest, CALL_COST, move |state, memory| {
            Random::check(len)?;
            state.random.fill(memory.bytes_mut(Span { at, len })?);
            state.host_calls.cost += u64::from(len);
            Ok(())
        })
    })?;
    Ok(())
}

fn streams(linker: &mut Linker<CallState>) -> wasmtime::Result<()> {
    linker.func_wrap_async(
        WASI,
        "fd_read",
        |guest: Guest<'_>, (fd, at, count, to): (u32, u32, u32, u32)| {
            long(guest, CALL_COST, move |state, memory| {
                let read = files::read(state, memory, fd, List { at, count })?;
                copied(state, memory, to, read)
            })
        },
    )?;
    linker.func_wrap_async(
        WASI,
        "fd_pread",
        |guest: Guest<'_>, (fd, at, count, position, to): (u32, u32, u32, u64, u32)| {
            long(guest, CALL_COST, move |state, memory| {
                let read = files::read_at(state, memory, fd, List { at, count }, position)?;
                copied(state, memory, to, read)
            })
        },
    )?;
    linker.func_wrap_async(
        WASI,
        "fd_write",
        |guest: Guest<'_>, (fd, at, count, to): (u32, u32, u32, u32)| {
            long(guest, CALL_COST, move |state, memory| {
                let written = files::write(state, memory, fd, List { at, count })?;
                copied(state, memory, to, written)
            })
        },
    )?;
    linker.func_wrap_async(
        WASI,
        "fd_seek",
        |guest: Guest<'_>, (fd, distance, from, to): (u32, i64, u32, u32)| {
            short(guest, move |state, memory| {
                Ok(memory.write_u64(to, files::seek(state, fd, distance, from)?)?)
            })
        },
    )?;
    linker.func_wrap_async(WASI, "fd_tell", |guest: Guest<'_>, (fd, to): (u32, u32)| {
        short(guest, move |state, memory| Ok(memory.write_u64(to, files::seek(state, fd, 0, 1)?)?))
    })?;
    linker.func_wrap_async(WASI, "fd_close", |guest: Guest<'_>, (fd,): (u32,)| {
        short(guest, move |state, _| Ok(state.files.close(fd)?))
    })?;
    linker.func_wrap_async(WASI, "fd_renumber", |guest: Guest<'_>, (from, to): (u32, u32)| {
        short(guest, move |state, _| Ok(state.files.renumber(from, to)?))
    })?;
    linker.func_wrap_async(WASI, "fd_fdstat_get", |guest: Guest<'_>, (fd, to): (u32, u32)| {
        short(guest, move |state, memory| files::status(state, memory, fd, to))
    })?;
    Ok(())
}

/// Tells the hook how many bytes were copied.
fn copied(state: &mut CallState, memory: &mut Memory<'_>, to: u32, len: u32) -> Result<(), Failure> {
    state.host_calls.cost += u64::from(len) / BYTES_PER_INSTRUCTION;
    Ok(memory.write_u32(to, len)?)
}

fn folders(linker: &mut Linker<CallState>) -> wasmtime::Result<()> {
    /// Arguments of `path_open`.
    type Arguments = (u32, u32, u32, u32, u32, u64, u64, u32, u32);
    linker.func_wrap_async(WASI, "fd_prestat_get", |guest: Guest<'_>, (fd, to): (u32, u32)| {
        short(guest, move |state, memory| files::prestat(state, memory, fd, to))
    })?;
    linker.func_wrap_async(
        WASI,
        "fd_prestat_dir_name",
        |guest: Guest<'_>, (fd, at, len): (u32, u32, u32)| {
            short(guest, move |state, memory| files::prestat_name(state, memory, fd, Span { at, len }))
        },
    )?;
    linker.func_wrap_async(WASI, "fd_filestat_get", |guest: Guest<'_>, (fd, to): (u32, u32)| {
        long(guest, LOOKUP_COST, move |state, memory| files::stat(state, memory, fd, to))
    })?;
    linker.func_wrap_async(
        WASI,
        "path_filestat_get",
        |guest: Guest<'_>, (fd, _lookup, at, len, to): (u32, u32, u32, u32, u32)| {
            long(guest, LOOKUP_COST, move |state, memory| {
                files::stat_path(state, memory, fd, Span { at, len }, to)
            })
        },
    )?;
    linker.func_wrap_async(
        WASI,
        "path_open",
        |guest: Guest<'_>, (fd, _lookup, at, len, flags, rights, _below, _status, to): Arguments| {
            long(guest, LOOKUP_COST, move |state, memory| {
                let opened = files::open(state, memory, fd, Span { at, len }, Mode { flags, rights })?;
                Ok(memory.write_u32(to, opened)?)
            })
        },
    )?;
    linker.func_wrap_async(
        WASI,
        "fd_readdir",
        |guest: Guest<'_>, (fd, at, len, from, to): (u32, u32, u32, u64, u32)| {
            long(guest, LOOKUP_COST, move |state, memory| {
                let written = files::list(state, memory, fd, Span { at, len }, from)?;
                Ok(memory.write_u32(to, written)?)
            })
        },
    )?;
    Ok(())
}

/// Kind of descriptor that a function wants to look at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wanted {
    Open,
    Folder,
}

/// Functions that look at a descriptor and then do nothing, or are refused: each with its parameters (`I` is an `i64`), the
/// place of the descriptor among them, and the error.
const CHECKS: [(&str, &str, usize, Wanted, Option<Errno>); 21] = [
    // No descriptor blocks, is written to a disk, or has rights to give up.
    ("fd_advise", "iIIi", 0, Wanted::Open, None),
    ("fd_datasync", "i", 0, Wanted::Open, None),
    ("fd_fdstat_set_flags", "ii", 0, Wanted::Open, None),
    ("fd_fdstat_set_rights", "iII", 0, Wanted::Open, None),
    ("fd_sync", "i", 0, Wanted::Open, None),
    // Nothing is changed.
    ("fd_allocate", "iII", 0, Wanted::Open, Some(Errno::Rofs)),
    ("fd_filestat_set_size", "iI", 0, Wanted::Open, Some(Errno::Rofs)),
    ("fd_filestat_set_times", "iIIi", 0, Wanted::Open, Some(Errno::Rofs)),
    ("fd_pwrite", "iiiIi", 0, Wanted::Open, Some(Errno::Badf)),
    ("path_create_directory", "iii", 0, Wanted::Folder, Some(Errno::Rofs)),
    ("path_filestat_set_times", "iiiiIIi", 0, Wanted::Folder, Some(Errno::Rofs)),
    ("path_remove_directory", "iii", 0, Wanted::Folder, Some(Errno::Rofs)),
    ("path_unlink_file", "iii", 0, Wanted::Folder, Some(Errno::Rofs)),
    // The folder of the new name decides about the error.
    ("path_link", "iiiiiii", 4, Wanted::Folder, Some(Errno::Rofs)),
    ("path_rename", "iiiiii", 3, Wanted::Folder, Some(Errno::Rofs)),
    ("path_symlink", "iiiii", 2, Wanted::Folder, Some(Errno::Rofs)),
    // There are no links and no sockets.
    ("path_readlink", "iiiiii", 0, Wanted::Folder, Some(Errno::Inval)),
    ("sock_accept", "iii", 0, Wanted::Open, Some(Errno::Notsock)),
    ("sock_recv", "iiiiii", 0, Wanted::Open, Some(Errno::Notsock)),
    ("sock_send", "iiiii", 0, Wanted::Open, Some(Errno::Notsock)),
    ("sock_shutdown", "ii", 0, Wanted::Open, Some(Errno::Notsock)),
];

fn checks(linker: &mut Linker<CallState>) -> wasmtime::Result<()> {
    for (name, parameters, place, wanted, errno) in CHECKS {
        let parameters = parameters.chars().map(|ty| if ty == 'I' { ValType::I64 } else { ValType::I32 });
        let ty = FuncType::new(linker.engine(), parameters, [ValType::I32]);
        linker.func_new_async(WASI, name, ty, move |guest, arguments, results| {
            Box::new(async move {
                let fd = arguments.get(place).and_then(Val::i32).unwrap_or(-1).cast_unsigned();
                let check = move |state: &mut CallState, _: &mut Memory<'_>| {
                    state.files.get(fd)?;
                    if wanted == Wanted::Folder {
                        state.files.mount(fd)?;
                    }
                    errno.map_or(Ok(()), |errno| Err(errno.into()))
                };
                let done = Box::into_pin(short(guest, check)).await?;
                results.fill(Val::I32(done.cast_signed()));
                Ok(())
            })
        })?;
    }
    Ok(())
}

/// A call that takes no longer than [`CALL_COST`] instructions.
fn short<'a>(
    guest: Guest<'a>,
    work: impl FnOnce(&mut CallState, &mut Memory<'_>) -> Result<(), Failure> + Send + 'a,
) -> Box<dyn Future<Output = WasiResult> + Send + 'a> {
    long(guest, CALL_COST, work)
}

/// A call that can take long: it costs `base` instructions and what `work` adds to the state's cost, and offers to give way to
/// others every [`YIELD_INTERVAL`] instructions.
fn long<'a>(
    mut guest: Guest<'a>,
    base: u64,
    work: impl FnOnce(&mut CallState, &mut Memory<'_>) -> Result<(), Failure> + Send + 'a,
) -> Box<dyn Future<Output = WasiResult> + Send + 'a> {
    Box::new(async move {
        let done = with_memory(&mut guest, work);
        let cost = base.saturating_add(std::mem::take(&mut guest.data_mut().host_calls.cost));
        let result = outcome(done)?;
        let left = guest.get_fuel()?;
        guest.set_fuel(left.saturating_sub(cost))?;
        let Some(left) = left.checked_sub(cost) else {
            return Err(Trap::OutOfFuel.into());
        };
        // Setting the fuel delays the engine's own yield: without this a loop of such calls would never give way.
        let state = guest.data_mut();
        if state.host_calls.fuel_at_yield.saturating_sub(left) >= YIELD_INTERVAL {
            state.host_calls.fuel_at_yield = left;
            give_way().await;
        }
        Ok(result)
    })
}

/// Offers to give way, as the engine does: whether others run now is decided where the call is polled (`run::slices`).
pub(super) async fn give_way() {
    let mut gave_way = false;
    poll_fn(|context| {
        if std::mem::replace(&mut gave_way, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

fn with_memory<T>(
    guest: &mut Guest<'_>,
    work: impl FnOnce(&mut CallState, &mut Memory<'_>) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let Some(Extern::Memory(memory)) = guest.get_export("memory") else {
        return Err(Failure::trap("the module exports no memory".to_owned()));
    };
    let (bytes, state) = memory.data_and_store_mut(guest);
    work(state, &mut Memory(bytes))
}

fn outcome<T>(done: Result<T, Failure>) -> WasiResult {
    match done {
        Ok(_) => Ok(0),
        Err(Failure::Errno(errno)) => Ok(errno as u32),
        Err(Failure::Trap(error)) => Err(error),
    }
}
