//! Knows a hook that tries what its settings name: the network, sleep, memory, output, and ends without an answer.

use std::fs;
use std::io::Write as _;
use std::net::{TcpStream, ToSocketAddrs as _, UdpSocket};
use std::time::{Duration, Instant};

use metahook_sdk::{Sync, SyncResponse};
use serde::de::IgnoredAny;
use serde_json::json;

type Request<'a> = Sync<'a, IgnoredAny, IgnoredAny, IgnoredAny, String>;

fn sync(request: &Request<'_>) -> Result<SyncResponse, Box<dyn std::error::Error>> {
    let tried = match request.settings.as_str() {
        "tcp" => json!(TcpStream::connect("10.0.0.1:80")?.peer_addr()?.to_string()),
        "udp" => json!(UdpSocket::bind("0.0.0.0:0")?.local_addr()?.to_string()),
        "name" => json!(("example.com", 80).to_socket_addrs()?.count()),
        "tcp, and goes on" => json!(TcpStream::connect("10.0.0.1:80").is_err()),
        "sleep" => {
            let start = Instant::now();
            std::thread::sleep(Duration::from_hours(1));
            json!(start.elapsed().as_secs())
        }
        "sleep in a loop" => loop {
            std::thread::sleep(Duration::from_secs(1));
        },
        "loop" => loop {
            std::hint::spin_loop();
        },
        "memory" => json!(vec![1_u8; 100 << 20].len()),
        "open" => {
            let files: Vec<_> = (0..2000).map(|_| fs::File::open("/etc/greeting/name")).collect();
            json!(files.len())
        }
        "print" => loop {
            std::io::stdout().write_all(&[b' '; 10_000])?;
        },
        "log" => {
            let mut log = std::io::stderr();
            for line in 0..2000 {
                writeln!(log, "line {line} of a long log that goes on and on and on")?;
            }
            json!("logged")
        }
        "panic" => return Err("it was asked for".into()),
        "environment" => json!([std::env::args().collect::<Vec<_>>(), std::env::vars().count()]),
        other => json!(other),
    };
    Ok(SyncResponse::new().status(json!({ "tried": tried })))
}

fn main() -> std::process::ExitCode {
    metahook_sdk::run(sync)
}
