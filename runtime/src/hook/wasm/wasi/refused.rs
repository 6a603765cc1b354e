//! WASI functions that are always refused: changes of files, links, sockets and signals.

use wasmtime::Linker;

use super::WASI;
use super::call::{Guest, WasiResult, short};
use super::errno::Errno;
use super::state::CallState;

pub(super) fn functions(linker: &mut Linker<CallState>) -> wasmtime::Result<()> {
    to_open_files(linker)?;
    to_folders(linker)?;
    to_two_paths(linker)?;
    to_sockets(linker)?;
    linker.func_wrap(WASI, "proc_raise", |_: u32| u32::from(Errno::Notsup.number()))?;
    Ok(())
}

fn to_open_files(linker: &mut Linker<CallState>) -> wasmtime::Result<()> {
    linker.func_wrap(WASI, "fd_allocate", |guest: Guest<'_>, fd: u32, _: u64, _: u64| {
        refuse(guest, fd, Errno::Rofs)
    })?;
    linker.func_wrap(WASI, "fd_pwrite", |guest: Guest<'_>, fd: u32, _: u32, _: u32, _: u64, _: u32| {
        refuse(guest, fd, Errno::Badf)
    })?;
    linker.func_wrap(WASI, "fd_filestat_set_size", |guest: Guest<'_>, fd: u32, _: u64| {
        refuse(guest, fd, Errno::Rofs)
    })?;
    linker.func_wrap(
        WASI,
        "fd_filestat_set_times",
        |guest: Guest<'_>, fd: u32, _: u64, _: u64, _: u32| refuse(guest, fd, Errno::Rofs),
    )?;
    Ok(())
}

fn to_folders(linker: &mut Linker<CallState>) -> wasmtime::Result<()> {
    for name in ["path_create_directory", "path_remove_directory", "path_unlink_file"] {
        linker.func_wrap(WASI, name, |guest: Guest<'_>, fd: u32, _: u32, _: u32| {
            refuse_below(guest, fd, Errno::Rofs)
        })?;
    }
    linker.func_wrap(
        WASI,
        "path_filestat_set_times",
        |guest: Guest<'_>, fd: u32, _: u32, _: u32, _: u32, _: u64, _: u64, _: u32| {
            refuse_below(guest, fd, Errno::Rofs)
        },
    )?;
    // There are no links.
    linker.func_wrap(
        WASI,
        "path_readlink",
        |guest: Guest<'_>, fd: u32, _: u32, _: u32, _: u32, _: u32, _: u32| {
            refuse_below(guest, fd, Errno::Inval)
        },
    )?;
    Ok(())
}

/// Functions with two paths; the folder of the new name decides about the error.
fn to_two_paths(linker: &mut Linker<CallState>) -> wasmtime::Result<()> {
    linker.func_wrap(
        WASI,
        "path_link",
        |guest: Guest<'_>, _: u32, _: u32, _: u32, _: u32, fd: u32, _: u32, _: u32| {
            refuse_below(guest, fd, Errno::Rofs)
        },
    )?;
    linker.func_wrap(
        WASI,
        "path_rename",
        |guest: Guest<'_>, _: u32, _: u32, _: u32, fd: u32, _: u32, _: u32| {
            refuse_below(guest, fd, Errno::Rofs)
        },
    )?;
    linker.func_wrap(WASI, "path_symlink", |guest: Guest<'_>, _: u32, _: u32, fd: u32, _: u32, _: u32| {
        refuse_below(guest, fd, Errno::Rofs)
    })?;
    Ok(())
}

/// No descriptor is a socket.
fn to_sockets(linker: &mut Linker<CallState>) -> wasmtime::Result<()> {
    linker.func_wrap(WASI, "sock_accept", |guest: Guest<'_>, fd: u32, _: u32, _: u32| {
        refuse(guest, fd, Errno::Notsock)
    })?;
    linker.func_wrap(
        WASI,
        "sock_recv",
        |guest: Guest<'_>, fd: u32, _: u32, _: u32, _: u32, _: u32, _: u32| refuse(guest, fd, Errno::Notsock),
    )?;
    linker.func_wrap(WASI, "sock_send", |guest: Guest<'_>, fd: u32, _: u32, _: u32, _: u32, _: u32| {
        refuse(guest, fd, Errno::Notsock)
    })?;
    linker.func_wrap(WASI, "sock_shutdown", |guest: Guest<'_>, fd: u32, _: u32| {
        refuse(guest, fd, Errno::Notsock)
    })?;
    Ok(())
}

/// Refuses a function of a descriptor, if it is one.
fn refuse(guest: Guest<'_>, fd: u32, errno: Errno) -> WasiResult {
    short(guest, |state, _| {
        state.files.get(fd)?;
        Err(errno.into())
    })
}

/// Refuses a function of a path below a descriptor, if that is a folder.
fn refuse_below(guest: Guest<'_>, fd: u32, errno: Errno) -> WasiResult {
    short(guest, |state, _| {
        state.files.folder(fd)?;
        Err(errno.into())
    })
}
