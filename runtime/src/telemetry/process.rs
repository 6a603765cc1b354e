//! Figures of this process, as Linux tells them: time, memory, open files. Elsewhere there are none.

use std::fs;

/// Ticks of a second in `/proc`, the same on all machines.
const TICKS: f64 = 100.0;

/// One figure, under the name that Prometheus' clients give it; the suffix of a counter is left out.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct ProcessFigure {
    pub(super) name: &'static str,
    pub(super) help: &'static str,
    pub(super) is_counter: bool,
    pub(super) value: f64,
}

/// Contents of the files that the figures come from.
struct Files<'a> {
    /// `/proc/self/stat`.
    stat: &'a str,
    /// `/proc/self/status`.
    status: &'a str,
    /// `/proc/self/limits`.
    limits: &'a str,
    /// `/proc/stat`.
    machine: &'a str,
    /// Files that are open.
    open: Option<u32>,
}

/// The figures that can be read.
pub(super) fn figures() -> Vec<ProcessFigure> {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    // The folder that is being read is one of them.
    let open = fs::read_dir("/proc/self/fd").ok();
    let open = open.and_then(|files| u32::try_from(files.count().saturating_sub(1)).ok());
    of(&Files {
        stat: &read("/proc/self/stat"),
        status: &read("/proc/self/status"),
        limits: &read("/proc/self/limits"),
        machine: &read("/proc/stat"),
        open,
    })
}

fn of(files: &Files<'_>) -> Vec<ProcessFigure> {
    // The name of the program, in brackets, may have anything in it. The state follows, the third field.
    let fields: Vec<_> =
        files.stat.rsplit_once(')').map_or("", |(_, rest)| rest).split_whitespace().collect();
    let ticks = |nth: usize| fields.get(nth - 3)?.parse::<f64>().ok().map(|ticks| ticks / TICKS);
    let kilobytes = |name: &str| {
        let line = files.status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
        line.trim().strip_suffix("kB")?.trim().parse::<f64>().ok().map(|size| size * 1024.0)
    };
    let limit = |name: &str| {
        let line = files.limits.lines().find_map(|line| line.strip_prefix(name))?;
        match line.split_whitespace().next()? {
            "unlimited" => Some(18_446_744_073_709_551_615.0),
            number => number.parse().ok(),
        }
    };
    let boot = files.machine.lines().find_map(|line| line.strip_prefix("btime ")?.trim().parse::<f64>().ok());
    let cpu = ticks(14).zip(ticks(15)).map(|(user, system)| user + system);
    let start = boot.zip(ticks(22)).map(|(boot, start)| boot + start);
    let all = [
        ("process_cpu_seconds", "Time of processors that the process used, in seconds", true, cpu),
        ("process_resident_memory_bytes", "Memory that the process has", false, kilobytes("VmRSS")),
        ("process_virtual_memory_bytes", "Addresses that the process has", false, kilobytes("VmSize")),
        (
            "process_virtual_memory_max_bytes",
            "Addresses that the process may have",
            false,
            limit("Max address space"),
        ),
        ("process_open_fds", "Files that are open", false, files.open.map(f64::from)),
        ("process_max_fds", "Files that may be open", false, limit("Max open files")),
        ("process_start_time_seconds", "When the process started, in seconds since 1970", false, start),
    ];
    let known = all.into_iter().filter_map(|(name, help, is_counter, value)| {
        value.map(|value| ProcessFigure { name, help, is_counter, value })
    });
    known.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_read_from_what_linux_tells() {
        let files = Files {
            stat: "7 (a) name) S 1 7 7 0 -1 4 200 0 3 0 150 50 9 9 20 0 5 0 12345 1000 99",
            status: "Name:\tx\nVmSize:\t  1000 kB\nVmRSS:\t   10 kB\n",
            limits: "Limit                     Soft Limit           Hard Limit           Units     \nMax open files            1024                 4096                 files     \nMax address space         unlimited            unlimited            bytes     \n",
            machine: "cpu 1 2 3\nbtime 1700000000\n",
            open: Some(9),
        };
        let found: Vec<_> = of(&files).iter().map(|figure| (figure.name, figure.value)).collect();
        let expected = [
            ("process_cpu_seconds", 2.0),
            ("process_resident_memory_bytes", 10_240.0),
            ("process_virtual_memory_bytes", 1_024_000.0),
            ("process_virtual_memory_max_bytes", 18_446_744_073_709_551_615.0),
            ("process_open_fds", 9.0),
            ("process_max_fds", 1024.0),
            ("process_start_time_seconds", 1_700_000_123.45),
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn what_cannot_be_read_is_left_out() {
        for stat in ["", ")", "1 (x) S 1", "1 (x) S a b c d e f g h i j k l m n o p q r s t u"] {
            let files =
                Files { stat, status: "VmRSS: much", limits: "Max open files", machine: "", open: None };
            assert_eq!(of(&files), []);
        }
    }
}
