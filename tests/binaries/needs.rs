//! Needs of a node: what the machine lacks, and the Debian packages that bring it.

use std::env;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

/// Why there can be no node here, in one line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Missing {
    /// Only the machine's owner can change it.
    Machine(String),
    /// `apt-get install` brings them.
    Packages(Vec<&'static str>),
}

impl fmt::Display for Missing {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Machine(what) => out.write_str(what),
            Self::Packages(packages) => {
                let names = packages.join(" ");
                write!(out, "{} missing: apt-get install {names}", packages.join(", "))
            }
        }
    }
}

impl Missing {
    /// For people at a command that can install packages.
    pub fn with_hint(&self) -> String {
        match self {
            Self::Machine(what) => what.clone(),
            Self::Packages(_) => format!("{self}, or have it done with --install"),
        }
    }
}

/// Bits of `CapEff` and their names.
const CAPABILITIES: [(u32, &str); 3] = [(12, "CAP_NET_ADMIN"), (19, "CAP_SYS_PTRACE"), (21, "CAP_SYS_ADMIN")];

/// Programs that run while a node runs, and the packages to install for them.
const PROGRAMS: [(&str, &str); 4] =
    [("unshare", "util-linux"), ("nsenter", "util-linux"), ("mount", "mount"), ("ip", "iproute2")];

/// Controllers of cgroups without which kubelet ends.
const CONTROLLERS: [&str; 4] = ["cpu", "cpuset", "memory", "pids"];

/// The programs of images, linked statically.
pub const BUSYBOX: &str = "/bin/busybox";

/// The first thing that is missing. Without `to_build` what only building needs may be missing.
pub(crate) fn missing(to_build: bool) -> Option<Missing> {
    machine().map(Missing::Machine).or_else(|| {
        let packages = packages(to_build);
        (!packages.is_empty()).then_some(Missing::Packages(packages))
    })
}

fn machine() -> Option<String> {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    rights(&status).or_else(|| {
        let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
        cgroups(&mounts).or_else(|| controllers(Path::new("/sys/fs/cgroup"))).or_else(namespaces)
    })
}

/// Root in a container may have all rights and be refused all the same: tried is what a node does first.
fn namespaces() -> Option<String> {
    const TRY: &str = "mount -n -t tmpfs tmpfs /run && ip link add name probe type bridge";
    let output = Command::new("unshare")
        .args([
            "--mount",
            "--net",
            "--pid",
            "--uts",
            "--ipc",
            "--cgroup",
            "--fork",
            "--propagation",
            "private",
        ])
        .args(["sh", "-c", TRY])
        .stdin(Stdio::null())
        .output();
    match output {
        Err(why) => Some(format!("cannot run unshare: {why}")),
        Ok(output) if output.status.success() => None,
        Ok(output) => {
            let found = String::from_utf8_lossy(&output.stderr);
            Some(format!("no namespaces to be had: {}", found.lines().next().unwrap_or("unshare failed")))
        }
    }
}

fn rights(status: &str) -> Option<String> {
    let field = |name| status.lines().find_map(|line: &str| line.strip_prefix(name)).unwrap_or_default();
    if field("Uid:").split_whitespace().nth(1) != Some("0") {
        return Some("not root".to_owned());
    }
    let has = u64::from_str_radix(field("CapEff:").trim(), 16).unwrap_or_default();
    let lacks = CAPABILITIES.iter().find(|(bit, _)| has & (1 << bit) == 0);
    lacks.map(|(_, name)| format!("no {name}"))
}

fn cgroups(mounts: &str) -> Option<String> {
    let mut mounted = false;
    for line in mounts.lines() {
        let mut fields = line.split(' ').skip(1);
        let (Some(place), Some(kind), Some(options)) = (fields.next(), fields.next(), fields.next()) else {
            continue;
        };
        if place.starts_with("/sys/fs/cgroup") && kind.starts_with("cgroup") {
            mounted = true;
            if options.split(',').any(|option| option == "ro") {
                return Some(format!("{place} is read-only"));
            }
        }
    }
    (!mounted).then(|| "no cgroups in /sys/fs/cgroup".to_owned())
}

/// With cgroups of version 2: whether cgroups of ours can have what kubelet needs.
fn controllers(root: &Path) -> Option<String> {
    let found = |name: &str| fs::read_to_string(root.join(name)).ok();
    let there = found("cgroup.controllers")?;
    let enabled = found("cgroup.subtree_control")?;
    // A container's root is no real one: as long as processes are in it, nothing more can be enabled below.
    let fixed =
        root.join("cgroup.type").exists() && found("cgroup.procs").is_some_and(|pids| !pids.is_empty());
    let usable = if fixed { enabled } else { there };
    let lacks = CONTROLLERS.iter().find(|name| !usable.split_whitespace().any(|usable| usable == **name));
    lacks.map(|name| format!("no cgroup controller `{name}` below {}", root.display()))
}

fn packages(to_build: bool) -> Vec<&'static str> {
    let mut packages: Vec<_> =
        PROGRAMS.iter().filter(|(program, _)| !on_path(program)).map(|(_, package)| *package).collect();
    if !is_static(Path::new(BUSYBOX)) {
        packages.push("busybox-static");
    }
    if to_build {
        packages.extend(to_build_runc());
    }
    packages.dedup();
    packages
}

/// runc is C in part, and filters system calls with libseccomp.
fn to_build_runc() -> Vec<&'static str> {
    let mut packages = Vec::new();
    if !on_path("gcc") {
        packages.extend(["gcc", "libc6-dev"]);
    }
    if !on_path("pkg-config") {
        packages.push("pkg-config");
    }
    let seccomp = Command::new("pkg-config").args(["--exists", "libseccomp"]).status();
    if !seccomp.is_ok_and(|status| status.success()) {
        packages.push("libseccomp-dev");
    }
    packages
}

fn on_path(program: &str) -> bool {
    let path = env::var_os("PATH").unwrap_or_default();
    let mut folders = env::split_paths(&path).chain(["/usr/sbin", "/sbin"].map(PathBuf::from));
    folders.any(|folder| folder.join(program).is_file())
}

/// Whether it is an ELF program without an interpreter: one that needs no other file.
fn is_static(program: &Path) -> bool {
    fs::read(program).is_ok_and(|bytes| interpreted(&bytes) == Some(false))
}

/// None if these are not the bytes of a 64-bit little-endian ELF program.
fn interpreted(bytes: &[u8]) -> Option<bool> {
    const INTERPRETER: [u8; 4] = [3, 0, 0, 0];
    let number = |at: usize, length: usize| -> Option<usize> {
        let digits = bytes.get(at..at + length)?;
        let number = digits.iter().rev();
        Some(number.fold(0, |sum, digit| (sum << 8) | usize::from(*digit)))
    };
    if bytes.get(..6)? != b"\x7fELF\x02\x01" {
        return None;
    }
    let table = number(32, 8)?;
    let size = number(54, 2)?;
    let count = number(56, 2)?;
    for entry in 0..count {
        let at = table.checked_add(entry * size)?;
        if bytes.get(at..at.checked_add(4)?)? == INTERPRETER {
            return Some(true);
        }
    }
    Some(false)
}

/// A node has folders of its own in some places: what lies there is not seen inside.
pub(crate) fn hidden(folders: &[&Path]) -> Option<Missing> {
    const ITS_OWN: [&str; 4] = ["/var/lib", "/var/log", "/run", "/sys"];
    let hidden = folders.iter().find(|folder| ITS_OWN.iter().any(|place| folder.starts_with(place)));
    hidden.map(|folder| {
        Missing::Machine(format!(
            "{} is hidden inside a node: set XDG_CACHE_HOME or TMPDIR to another place",
            folder.display()
        ))
    })
}

/// As root, on Debian and what comes of it.
pub(crate) fn install(packages: &[&str]) -> Result<()> {
    apt_get(&["update"])?;
    apt_get(&[&["install", "-y", "--no-install-recommends"], packages].concat())
}

fn apt_get(args: &[&str]) -> Result<()> {
    eprintln!("apt-get {}", args.join(" "));
    let status = Command::new("apt-get")
        .args(["-qq", "-o", "Dpkg::Use-Pty=0"])
        .args(args)
        .env("DEBIAN_FRONTEND", "noninteractive")
        .status()
        .context("cannot run apt-get")?;
    ensure!(status.success(), "apt-get {} failed ({status})", args.join(" "));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_one_line() {
        let missing = Missing::Packages(vec!["libseccomp-dev", "busybox-static"]);
        assert_eq!(
            missing.to_string(),
            "libseccomp-dev, busybox-static missing: apt-get install libseccomp-dev busybox-static"
        );
    }

    #[test]
    fn rights_are_root_and_its_capabilities() {
        let status = |uid, bits| format!("Name:\tx\nUid:\t{uid}\t{uid}\t{uid}\t{uid}\nCapEff:\t{bits}\n");
        let found = [(1000, "1fffeffffff"), (0, "00000000a80425fb"), (0, "1fffeffffff")]
            .map(|(uid, bits)| rights(&status(uid, bits)));
        let wanted = [Some("not root"), Some("no CAP_NET_ADMIN"), None];
        assert_eq!(found, wanted.map(|line| line.map(str::to_owned)));
    }

    #[test]
    fn cgroups_have_to_be_writable() {
        let found = [
            "cgroup2 /sys/fs/cgroup cgroup2 ro,nosuid 0 0",
            "proc /proc proc rw 0 0",
            "cgroup /sys/fs/cgroup/cpu cgroup rw,cpu 0 0",
        ]
        .map(cgroups);
        let wanted = [Some("/sys/fs/cgroup is read-only"), Some("no cgroups in /sys/fs/cgroup"), None];
        assert_eq!(found, wanted.map(|line| line.map(str::to_owned)));
    }

    #[test]
    fn a_containers_root_has_only_the_controllers_that_are_enabled() {
        let root = tempfile::tempdir().unwrap();
        let put = |name: &str, text: &str| fs::write(root.path().join(name), text).unwrap();
        assert_eq!(controllers(root.path()), None); // version 1
        put("cgroup.controllers", "cpuset cpu io memory pids\n");
        put("cgroup.subtree_control", "cpu memory pids\n");
        put("cgroup.procs", "1\n");
        assert_eq!(controllers(root.path()), None);
        put("cgroup.type", "domain\n");
        let found = controllers(root.path()).unwrap();
        assert!(found.starts_with("no cgroup controller `cpuset` below "), "{found}");
    }

    #[test]
    fn a_program_with_an_interpreter_is_not_static() {
        let mut program = vec![0; 64 + 56];
        let put = |program: &mut Vec<u8>, at: usize, bytes: &[u8]| {
            program[at..at + bytes.len()].copy_from_slice(bytes);
        };
        put(&mut program, 0, b"\x7fELF\x02\x01");
        put(&mut program, 32, &[64]);
        put(&mut program, 54, &[56]);
        put(&mut program, 56, &[1]);
        put(&mut program, 64, &[1]);
        assert_eq!(interpreted(&program), Some(false));
        put(&mut program, 64, &[3]);
        assert_eq!([interpreted(&program), interpreted(b"#!/bin/sh")], [Some(true), None]);
    }
}
