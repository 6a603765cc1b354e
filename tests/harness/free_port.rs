//! Ports for programs that are started later.

use std::net::{SocketAddr, TcpListener};
use std::process;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context, Result};

/// Below the ports that Linux gives to outgoing connections (32768 and up): a connection of a test that runs
/// beside could take one of those between the moment it is found free and the moment a program binds it. Above
/// the kubelet's.
const FIRST: u32 = 12_000;
const PORTS: u32 = 18_000;

/// Where this process begins to look. Test runs beside each other begin in different places.
static NEXT: LazyLock<AtomicU32> = LazyLock::new(|| AtomicU32::new(process::id().wrapping_mul(397)));

/// A free port of 127.0.0.1: no process listens on it. A test process gets each port once, until it has had all of them.
pub fn free_port() -> Result<u16> {
    let candidate = |_| FIRST + NEXT.fetch_add(1, Ordering::Relaxed) % PORTS;
    let free = |port: &u16| TcpListener::bind(("127.0.0.1", *port)).is_ok();
    (0..PORTS)
        .map(candidate)
        .filter_map(|port| u16::try_from(port).ok())
        .find(free)
        .context("no free port on 127.0.0.1")
}

/// A free address of the loopback.
pub fn free_address() -> Result<SocketAddr> {
    Ok(SocketAddr::from(([127, 0, 0, 1], free_port()?)))
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn ports_are_free_none_comes_twice_and_none_is_one_of_connections() -> Result<()> {
        let ports = (0..500).map(|_| free_port()).collect::<Result<Vec<_>>>()?;
        assert!(ports.iter().all(|port| (12_000..30_000).contains(port)), "{ports:?}");
        assert_eq!(ports.iter().collect::<HashSet<_>>().len(), ports.len());

        let taken = TcpListener::bind(("127.0.0.1", free_port()?))?;
        NEXT.store(u32::from(taken.local_addr()?.port()) - FIRST, Ordering::Relaxed);
        assert_ne!(free_port()?, taken.local_addr()?.port());
        Ok(())
    }
}
