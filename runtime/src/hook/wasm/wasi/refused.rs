//! What a hook can call and is never given: what would change a file, read where a link leads, or reach beyond the sandbox.

use wasmtime::Linker;

use super::WASI;
use super::call::{Answer, Hook, short};
use super::errno::Errno;
use super::state::Host;

pub(super) fn functions(linker: &mut Linker<Host>) -> wasmtime::Result<()> {
    to_open_files(linker)?;
    to_folders(linker)?;
    to_two_paths(linker)?;
    to_sockets(linker)?;
    linker.func_wrap(WASI, "proc_raise", |_: u32| u32::from(Errno::Notsup.number()))?;
    Ok(())
}

fn to_open_files(linker: &mut Linker<Host>) -> wasmtime::Result<()> {
    linker.func_wrap(WASI, "fd_allocate", |hook: Hook<'_>, fd: u32, _: u64, _: u64| {
        on(hook, fd, Errno::Rofs)
    })?;
    linker.func_wrap(WASI, "fd_pwrite", |hook: Hook<'_>, fd: u32, _: u32, _: u32, _: u64, _: u32| {
        on(hook, fd, Errno::Badf)
    })?;
    linker.func_wrap(WASI, "fd_filestat_set_size", |hook: Hook<'_>, fd: u32, _: u64| {
        on(hook, fd, Errno::Rofs)
    })?;
    linker.func_wrap(WASI, "fd_filestat_set_times", |hook: Hook<'_>, fd: u32, _: u64, _: u64, _: u32| {
        on(hook, fd, Errno::Rofs)
    })?;
    Ok(())
}

fn to_folders(linker: &mut Linker<Host>) -> wasmtime::Result<()> {
    for name in ["path_create_directory", "path_remove_directory", "path_unlink_file"] {
        linker
            .func_wrap(WASI, name, |hook: Hook<'_>, fd: u32, _: u32, _: u32| below(hook, fd, Errno::Rofs))?;
    }
    linker.func_wrap(
        WASI,
        "path_filestat_set_times",
        |hook: Hook<'_>, fd: u32, _: u32, _: u32, _: u32, _: u64, _: u64, _: u32| {
            below(hook, fd, Errno::Rofs)
        },
    )?;
    // There are no links.
    linker.func_wrap(
        WASI,
        "path_readlink",
        |hook: Hook<'_>, fd: u32, _: u32, _: u32, _: u32, _: u32, _: u32| below(hook, fd, Errno::Inval),
    )?;
    Ok(())
}

/// What makes a second name; the folder that it would lie in is looked at.
fn to_two_paths(linker: &mut Linker<Host>) -> wasmtime::Result<()> {
    linker.func_wrap(
        WASI,
        "path_link",
        |hook: Hook<'_>, _: u32, _: u32, _: u32, _: u32, fd: u32, _: u32, _: u32| {
            below(hook, fd, Errno::Rofs)
        },
    )?;
    linker.func_wrap(
        WASI,
        "path_rename",
        |hook: Hook<'_>, _: u32, _: u32, _: u32, fd: u32, _: u32, _: u32| below(hook, fd, Errno::Rofs),
    )?;
    linker.func_wrap(WASI, "path_symlink", |hook: Hook<'_>, _: u32, _: u32, fd: u32, _: u32, _: u32| {
        below(hook, fd, Errno::Rofs)
    })?;
    Ok(())
}

/// No descriptor is one.
fn to_sockets(linker: &mut Linker<Host>) -> wasmtime::Result<()> {
    linker.func_wrap(WASI, "sock_accept", |hook: Hook<'_>, fd: u32, _: u32, _: u32| {
        on(hook, fd, Errno::Notsock)
    })?;
    linker.func_wrap(
        WASI,
        "sock_recv",
        |hook: Hook<'_>, fd: u32, _: u32, _: u32, _: u32, _: u32, _: u32| on(hook, fd, Errno::Notsock),
    )?;
    linker.func_wrap(WASI, "sock_send", |hook: Hook<'_>, fd: u32, _: u32, _: u32, _: u32, _: u32| {
        on(hook, fd, Errno::Notsock)
    })?;
    linker
        .func_wrap(WASI, "sock_shutdown", |hook: Hook<'_>, fd: u32, _: u32| on(hook, fd, Errno::Notsock))?;
    Ok(())
}

/// Refuses what is asked of a descriptor, if it is one.
fn on(hook: Hook<'_>, fd: u32, why: Errno) -> Answer {
    short(hook, |host, _| {
        host.files.get(fd)?;
        Err(why.into())
    })
}

/// Refuses what is asked of a path below a descriptor, if that is a folder.
fn below(hook: Hook<'_>, fd: u32, why: Errno) -> Answer {
    short(hook, |host, _| {
        host.files.folder(fd)?;
        Err(why.into())
    })
}
