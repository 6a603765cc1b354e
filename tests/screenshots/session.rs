//! Session with `metahook dashboard`: its address is good for one use, and each picture is taken by a new Chromium.
//!
//! The session opens the address, keeps the cookie, and forwards requests of Chromium with it.

use acceptance::wait::{PATIENCE, until};
use anyhow::{Context, Result, ensure};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

pub(crate) struct Session {
    /// Where pages are shown, with the prefix of the run.
    start: String,
    forwarder: JoinHandle<()>,
}

impl Session {
    /// Opens the address that the command printed.
    pub(crate) async fn open(address: &str) -> Result<Self> {
        let (host, path) = address.trim_start_matches("http://").split_once('/').context("no path")?;
        let answer = exchange(host, &format!("GET /{path} HTTP/1.1\r\nHost: {host}\r\n\r\n")).await?;
        let answer = String::from_utf8_lossy(&answer).into_owned();
        ensure!(answer.starts_with("HTTP/1.1 303"), "{answer}");
        let header = |name: &str| answer.lines().find_map(|line| line.strip_prefix(name));
        let cookie = header("set-cookie: ").and_then(|cookie| cookie.split(';').next());
        let cookie = cookie.context("no cookie")?.to_owned();
        let prefix = header("location: ").and_then(|path| path.strip_suffix('/')).context("no prefix")?;
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let start = format!("http://{}{prefix}", listener.local_addr()?);
        let host = host.to_owned();
        let forwarder = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (host, cookie) = (host.clone(), cookie.clone());
                // Chromium ends connections that it does not need.
                tokio::spawn(async move { forward(stream, &host, &cookie).await.unwrap_or_default() });
            }
        });
        Ok(Self { start, forwarder })
    }

    /// Asks for a page until it has these words.
    pub(crate) async fn until_shown(&self, path: &str, words: &str) -> Result<()> {
        let (host, prefix) = self.start.trim_start_matches("http://").split_once('/').context("no prefix")?;
        until(&format!("{path} shows {words:?}"), PATIENCE, async || {
            let page =
                exchange(host, &format!("GET /{prefix}{path} HTTP/1.1\r\nHost: {host}\r\n\r\n")).await?;
            let page = String::from_utf8_lossy(&page).into_owned();
            Ok(if page.contains(words) { Ok(()) } else { Err(page) })
        })
        .await
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("{}{path}", self.start)
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.forwarder.abort();
    }
}

/// Answers the one request of a connection: a `GET`, which has no body.
async fn forward(stream: TcpStream, host: &str, cookie: &str) -> Result<()> {
    let mut stream = BufReader::new(stream);
    let mut line = String::new();
    stream.read_line(&mut line).await?;
    let request = format!("{}\r\nHost: {host}\r\nCookie: {cookie}\r\n\r\n", line.trim_end());
    while stream.read_line(&mut line).await? > 2 {
        line.clear();
    }
    stream.write_all(&exchange(host, &request).await?).await?;
    Ok(stream.shutdown().await?)
}

/// The whole answer: the command ends a connection after it.
async fn exchange(host: &str, request: &str) -> Result<Vec<u8>> {
    let mut stream = TcpStream::connect(host).await?;
    stream.write_all(request.as_bytes()).await?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await?;
    Ok(answer)
}
