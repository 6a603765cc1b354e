//! Defaults of the budgets of memory and of caches, from the cgroup's memory limit, or the machine's memory.

use std::fs;
use std::path::{Path, PathBuf};

/// The budget where no cgroup has a limit.
const WITHOUT_LIMIT: u64 = 512 << 20;

/// Version 1 has numbers of this size where there is no limit.
const NO_LIMIT: u64 = 1 << 60;

/// A place of limits: the folder that all cgroups are mounted at, and the file in each.
const VERSIONS: [(&str, &str, &str); 2] =
    [("", "/sys/fs/cgroup", "memory.max"), ("memory", "/sys/fs/cgroup/memory", "memory.limit_in_bytes")];

/// The budget that the limit of this process' cgroup leaves, where other parts of the server may take `others`.
pub(crate) fn default_budget(others: u64) -> u64 {
    budget(limit(|path| fs::read_to_string(path).ok()), others)
}

/// The bytes that all caches may take, of the limit of this process' cgroup, or of the machine's memory. `None`: the system
/// states neither.
pub(crate) fn default_cache_budget() -> Option<u64> {
    let read = |path: &Path| fs::read_to_string(path).ok();
    limit(read).or_else(|| memory_of_machine(read)).map(cache_budget)
}

/// Half of the limit: caches hold what they have all the time, while reconciles seldom take all of their budget, and compilations
/// seldom run. The other half is for these, and for what an estimate misses.
fn cache_budget(limit: u64) -> u64 {
    limit / 2
}

/// Three quarters of what is left of a limit, and at least a quarter of the limit. The rest is for caches of objects.
fn budget(limit: Option<u64>, others: u64) -> u64 {
    limit.map_or(WITHOUT_LIMIT, |limit| (limit.saturating_sub(others) / 4 * 3).max(limit / 4))
}

/// The lowest memory limit of the process' cgroups and of those that they are in.
fn limit(read: impl Fn(&Path) -> Option<String>) -> Option<u64> {
    let cgroups = read(Path::new("/proc/self/cgroup")).unwrap_or_default();
    let limits = VERSIONS.into_iter().flat_map(|(controller, root, file)| {
        let own = cgroups.lines().find_map(|line| own_path(line, controller)).unwrap_or("/");
        // A container may see itself as the root, and its path as that of its host.
        let folders = Path::new(own).ancestors().chain([Path::new("/")]);
        let files =
            folders.map(|path| Path::new(root).join(path.strip_prefix("/").unwrap_or(path)).join(file));
        files.filter_map(|path: PathBuf| read(&path)?.trim().parse().ok()).collect::<Vec<u64>>()
    });
    limits.filter(|limit| *limit < NO_LIMIT).min()
}

/// The machine's memory, in a line like `MemTotal:  24602544 kB`.
fn memory_of_machine(read: impl Fn(&Path) -> Option<String>) -> Option<u64> {
    let figures = read(Path::new("/proc/meminfo"))?;
    let total = figures.lines().find_map(|line| line.strip_prefix("MemTotal:")?.strip_suffix("kB"))?;
    total.trim().parse().ok().map(|kib: u64| kib << 10)
}

/// The path in a line like `0::/path` of version 2, or `4:memory:/path` of version 1.
fn own_path<'a>(line: &'a str, controller: &str) -> Option<&'a str> {
    let (_, rest) = line.split_once(':')?;
    let (controllers, path) = rest.split_once(':')?;
    controllers.split(',').any(|one| one == controller).then_some(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn limit_of(files: &[(&str, &str)]) -> Option<u64> {
        let find = |path: &Path| files.iter().find(|(name, _)| Path::new(name) == path);
        limit(|path| find(path).map(|(_, text)| (*text).to_owned()))
    }

    #[test]
    fn the_limit_is_read_from_the_files_of_cgroups() {
        let own = |text| ("/proc/self/cgroup", text);
        for (what, files, limit) in [
            ("none", vec![], None),
            ("no limit", vec![own("0::/\n"), ("/sys/fs/cgroup/memory.max", "max\n")], None),
            (
                "of a container",
                vec![own("0::/\n"), ("/sys/fs/cgroup/memory.max", "2147483648\n")],
                Some(2048),
            ),
            (
                "of the host's own, and of one around it",
                vec![
                    own("0::/a/b\n"),
                    ("/sys/fs/cgroup/a/b/memory.max", "max\n"),
                    ("/sys/fs/cgroup/a/memory.max", "1073741824\n"),
                ],
                Some(1024),
            ),
            (
                "version 1, with the host's path",
                vec![
                    own("5:cpu:/x\n4:memory:/kubepods/pod1\n"),
                    ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "536870912\n"),
                ],
                Some(512),
            ),
            (
                "version 1, without a limit",
                vec![
                    own("4:memory:/\n"),
                    ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n"),
                ],
                None,
            ),
        ] {
            assert_eq!(limit_of(&files), limit.map(|mib: u64| mib * MIB), "{what}");
        }
    }

    #[test]
    fn the_memory_of_a_machine_is_read() {
        let of = |text: &str| {
            memory_of_machine(|path| (path == Path::new("/proc/meminfo")).then(|| text.to_owned()))
        };
        assert_eq!(of("MemTotal:       24602544 kB\nMemFree:         1024 kB\n"), Some(24_602_544 << 10));
        for odd in ["", "MemTotal:\n", "MemTotal: many kB\n", "MemTotal: -1 kB\n", "MemFree: 1 kB\n"] {
            assert_eq!(of(odd), None, "{odd}");
        }
        assert!(default_cache_budget().is_some(), "each system that the server runs on states one");
    }

    #[test]
    fn a_quarter_of_what_is_left_is_not_in_the_budget() {
        for (limit, others, expected) in
            [(None, 100, 512), (Some(2048), 1088, 720), (Some(1024), 64, 720), (Some(256), 1088, 64)]
        {
            assert_eq!(budget(limit.map(|mib: u64| mib * MIB), others * MIB), expected * MIB);
        }
    }

    /// The limit of the server's Pod: the figure is in the book.
    #[test]
    fn the_manifest_has_a_limit_and_the_budget_follows_it() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../manifests/statefulset.yaml");
        let manifest = fs::read_to_string(path).unwrap();
        assert!(manifest.contains("limits:\n            memory: 2Gi\n"), "{path}");
        let limit = limit_of(&[("/sys/fs/cgroup/memory.max", "2147483648\n")]);
        assert_eq!(budget(limit, (64 << 20) + (1 << 30)), 720 * MIB);
        assert_eq!(limit.map(cache_budget), Some(1024 * MIB));
    }
}
