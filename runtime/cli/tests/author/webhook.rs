//! A webhook for tests: a function from requests to answers, on a port of its own, as long as it is held.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;

use serde_json::Value;

pub(crate) struct Webhook {
    pub(crate) url: String,
}

impl Webhook {
    /// The thread ends with the test's process.
    pub(crate) fn serve(mut answer: impl FnMut(&Value) -> Value + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/hook", listener.local_addr().unwrap());
        thread::spawn(move || {
            for stream in listener.incoming() {
                // A client that has ended asks nothing more.
                exchange(&stream.unwrap(), &mut answer).unwrap_or_default();
            }
        });
        Self { url }
    }
}

fn exchange(stream: &TcpStream, answer: &mut impl FnMut(&Value) -> Value) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream);
    let mut length = 0;
    loop {
        let mut line = String::new();
        reader.read_line(&mut line)?;
        if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().unwrap();
        }
        if line.trim().is_empty() {
            break;
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    let answer = answer(&serde_json::from_slice(&body)?).to_string();
    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", answer.len());
    let mut stream = stream;
    stream.write_all([head, answer].concat().as_bytes())
}
