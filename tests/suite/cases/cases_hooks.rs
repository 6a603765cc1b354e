//! Cases of webhooks, modules and scripts.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use acceptance::api::CONFIG_MAP;
use acceptance::fixture::Fixture;
use acceptance::objects::{Hook, config_map, text, version};
use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};

/// How a webhook treats its connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Manner {
    /// Answers in chunks, and closes a connection that is idle for a moment.
    ClosesIdle,
    /// Says that each connection is closed, and closes it.
    SaysClose,
    /// Closes each connection after half of the body, in chunks or not.
    Half,
}

/// A webhook that is bad at HTTP; it dies when it is dropped.
struct BadWebhook {
    address: SocketAddr,
    manner: Arc<Mutex<Manner>>,
    task: JoinHandle<()>,
}

impl BadWebhook {
    async fn serve(address: SocketAddr) -> Result<Self> {
        let listener = TcpListener::bind(address).await.context("no port for a webhook")?;
        let address = listener.local_addr()?;
        let manner = Arc::new(Mutex::new(Manner::ClosesIdle));
        let shared = Arc::clone(&manner);
        let task = tokio::spawn(async move {
            let mut connections = JoinSet::new(); // they end with it
            while let Ok((stream, _)) = listener.accept().await {
                connections.spawn(exchanges(stream, Arc::clone(&shared)));
            }
        });
        Ok(Self { address, manner, task })
    }

    fn behave(&self, manner: Manner) {
        *self.manner.lock().unwrap_or_else(PoisonError::into_inner) = manner;
    }

    /// Gone, with its port.
    async fn die(self) {
        self.task.abort();
        let mut this = self;
        drop((&mut this.task).await);
    }
}

impl Drop for BadWebhook {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Requests and answers of one connection until it closes.
async fn exchanges(mut stream: TcpStream, manner: Arc<Mutex<Manner>>) {
    let idle = Duration::from_millis(20);
    while let Ok(Some(request)) = tokio::time::timeout(idle, request(&mut stream)).await {
        let manner = *manner.lock().unwrap_or_else(PoisonError::into_inner);
        let answer = answer(&request, manner);
        if stream.write_all(&answer).await.is_err() || manner != Manner::ClosesIdle {
            return;
        }
    }
}

/// The body of the next request.
async fn request(stream: &mut TcpStream) -> Option<Value> {
    let (mut bytes, mut buffer) = (Vec::new(), [0; 4096]);
    loop {
        let text = String::from_utf8_lossy(&bytes).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head.to_lowercase();
            let (_, length) = length.split_once("content-length:")?;
            let length: usize = length.lines().next()?.trim().parse().ok()?;
            if body.len() >= length {
                return serde_json::from_str(body).ok();
            }
        }
        match stream.read(&mut buffer).await.ok()? {
            0 => return None,
            read => bytes.extend_from_slice(buffer.get(..read)?),
        }
    }
}

fn answer(request: &Value, manner: Manner) -> Vec<u8> {
    let name = text(request, "/parent/metadata/name");
    let child = config_map(name, json!({}), json!({ "is": request["parent"]["spec"]["is"] }));
    let body = json!({ "status": {}, "children": [child] }).to_string();
    let (first, rest) = body.split_at(body.len() / 2);
    let start = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n";
    let chunk = |text: &str| format!("{:x}\r\n{text}\r\n", text.len());
    let chunked = "transfer-encoding: chunked\r\n\r\n";
    match manner {
        Manner::ClosesIdle => format!("{start}{chunked}{}{}0\r\n\r\n", chunk(first), chunk(rest)),
        Manner::SaysClose => {
            format!("{start}connection: close\r\ncontent-length: {}\r\n\r\n{body}", body.len())
        }
        Manner::Half if name.ends_with('0') => format!("{start}{chunked}{}", chunk(first)),
        Manner::Half => format!("{start}content-length: {}\r\n\r\n{first}", body.len()),
    }
    .into_bytes()
}

/// C42: a webhook closes connections as it likes, breaks off, dies and is replaced.
pub(crate) async fn c42_a_webhook_closes_connections_and_goes_away(test: &mut Fixture) -> Result<()> {
    test.define_kind().await?;
    let webhook = BadWebhook::serve(([127, 0, 0, 1], 0).into()).await?;
    let address = webhook.address;
    test.serve()?;
    let hook = Hook::webhook(&format!("http://{address}/sync")).version("v2");
    test.host(test.controller().making(&CONFIG_MAP, "InPlace").synced_by(hook)).await?;
    let names: Vec<_> = (0..PARENTS).map(|n| format!("p{n}")).collect();
    for name in &names {
        test.create(test.parent(name).with(json!({ "is": "0" }))).await?;
    }
    let log = test.server().log().to_owned();
    let failures = || Ok::<_, anyhow::Error>(std::fs::read_to_string(&log)?.matches("sync failed").count());
    for (round, manner) in [(1, Manner::ClosesIdle), (2, Manner::SaysClose), (3, Manner::ClosesIdle)] {
        webhook.behave(manner);
        become_all(test, &names, round).await?;
        are_all(test, &names, round).await?;
    }
    ensure!(failures()? == 0, "a connection that was closed is an error");

    let mut before = Vec::new();
    for name in &names {
        before.push(version(&test.config_maps().get(name).await?).to_owned());
    }
    webhook.behave(Manner::Half);
    become_all(test, &names, 4).await?;
    for name in ["p0", "p1"] {
        test.until_event(name, "SyncError", |_| true).await?;
    }
    for (name, before) in names.iter().zip(before) {
        let map = test.config_maps().get(name).await?;
        ensure!(version(&map) == before, "half of an answer was written: {map}");
    }
    webhook.behave(Manner::ClosesIdle);
    are_all(test, &names, 4).await?;

    webhook.die().await;
    become_all(test, &names, 5).await?;
    let seen = failures()?;
    test.server().until_log("it is missed", |log| log.matches("sync failed").count() > seen).await?;
    let _webhook = BadWebhook::serve(address).await?;
    are_all(test, &names, 5).await
}

const PARENTS: usize = 20;

async fn become_all(test: &Fixture, names: &[String], round: u8) -> Result<()> {
    for name in names {
        test.parents().merge(name, &json!({ "spec": { "is": round.to_string() } })).await?;
    }
    Ok(())
}

async fn are_all(test: &Fixture, names: &[String], round: u8) -> Result<()> {
    let round = round.to_string();
    for name in names {
        test.config_maps().until(name, "right", |map| map["data"]["is"] == *round).await?;
    }
    Ok(())
}
