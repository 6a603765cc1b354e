//! Requests to a server at its inspection address.

use std::time::Duration;

use http::header::{AUTHORIZATION, HOST};
use http::{Request, StatusCode};
use http_body_util::{BodyExt, Empty, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use metahook_core::shorten;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::net::TcpStream;
use tokio_util::task::AbortOnDropHandle;

use super::{Question, Reached, ServerError};

/// A server takes no longer to answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(15);

/// Bytes of an answer.
const MAX_ANSWER: usize = 32 << 20;

/// Bytes of a server's version.
const MAX_VERSION: usize = 100;

pub(super) async fn ask<T: DeserializeOwned>(
    server: &Reached,
    token: &str,
    question: Question<'_>,
) -> Result<T, ServerError> {
    let asked = tokio::time::timeout(ANSWER_TIMEOUT, exchange(&server.address, token, question)).await;
    let unreachable = async |why: String| {
        // kubectl says why at the same moment.
        tokio::time::sleep(Duration::from_millis(200)).await;
        let stderr = server.forward.as_ref().map(super::PortForward::stderr).unwrap_or_default();
        let stderr = if stderr.is_empty() { stderr } else { format!(" ({stderr})") };
        ServerError::Unreachable { address: server.address.clone(), why: why + &stderr }
    };
    let (status, body) = match asked {
        Ok(Ok(answer)) => answer,
        Ok(Err(error)) => return Err(unreachable(error).await),
        Err(_elapsed) => {
            let why = format!("nothing came within {} s", ANSWER_TIMEOUT.as_secs());
            return Err(unreachable(why).await);
        }
    };
    if status != StatusCode::OK {
        let answer: Value = serde_json::from_slice(&body).unwrap_or_default();
        let message = answer.get("message").and_then(Value::as_str);
        let message = message.map_or_else(|| status.to_string(), str::to_owned);
        if status == StatusCode::NOT_FOUND {
            return Err(ServerError::Old(message));
        }
        return Err(ServerError::Refused { status, message });
    }
    read(&body)
}

/// An answer, all of which have the version of their server.
fn read<T: DeserializeOwned>(body: &[u8]) -> Result<T, ServerError> {
    serde_json::from_slice(body).map_err(|error| {
        let answer: Value = serde_json::from_slice(body).unwrap_or_default();
        let why = error.to_string();
        match answer.get("version").and_then(Value::as_str) {
            Some(server) => ServerError::OtherVersion { server: shorten(server, MAX_VERSION), why },
            None => ServerError::Answer(why),
        }
    })
}

async fn exchange(
    address: &str,
    token: &str,
    Question { path, object, more }: Question<'_>,
) -> Result<(StatusCode, Bytes), String> {
    let text = |error: &dyn std::error::Error| metahook_core::error_chain(error);
    let stream = TcpStream::connect(address).await.map_err(|error| text(&error))?;
    let (mut sender, connection) =
        http1::handshake(TokioIo::new(stream)).await.map_err(|error| text(&error))?;
    let _connection = AbortOnDropHandle::new(tokio::spawn(connection));
    let query = form_urlencoded::Serializer::new(String::new())
        .append_pair("group", &object.group)
        .append_pair("resource", &object.resource)
        .append_pair("kind", &object.kind)
        .append_pair("namespace", &object.namespace)
        .append_pair("name", &object.name)
        .extend_pairs(more)
        .finish();
    let request = Request::get(format!("{path}?{query}"))
        .header(HOST, "localhost")
        .header(AUTHORIZATION, format!("Bearer {token}"))
        .body(Empty::<Bytes>::new())
        .map_err(|error| text(&error))?;
    let answer = sender.send_request(request).await.map_err(|error| text(&error))?;
    let status = answer.status();
    let body = Limited::new(answer.into_body(), MAX_ANSWER).collect().await;
    let body = body.map_err(|error| text(&*error))?;
    Ok((status, body.to_bytes()))
}

#[cfg(test)]
mod tests {
    use metahook_core::overview::ControllersAnswer;
    use serde_json::json;

    use super::*;

    #[test]
    fn an_answer_of_another_shape_is_told_with_the_version_of_its_server() {
        let said = |answer: &str| read::<ControllersAnswer>(answer.as_bytes()).map_err(|it| it.to_string());
        assert!(said(r#"{ "version": "7", "running": {} }"#).is_ok());
        let other = json!({ "version": "0.0.1", "running": { "hello": { "reconciles": {} } } });
        let error = said(&other.to_string()).unwrap_err();
        assert!(
            error.contains("which is metahook 0.0.1: use a command of this version (invalid type"),
            "{error}"
        );
        let error = said("<html>").unwrap_err();
        assert!(error.starts_with("what the server answers is not of this version: "), "{error}");
    }
}
