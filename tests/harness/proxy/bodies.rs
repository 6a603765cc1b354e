//! Bodies as bad networks bring them: late, or torn.

use std::io;
use std::pin::Pin;
use std::task::{self, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::BodyExt;
use http_body_util::combinators::UnsyncBoxBody;
use hyper::body::{Body, Frame};
use tokio::sync::mpsc;
use tokio::time::{Instant, Sleep};

/// A body whose frames come later than they are sent, each by the same time.
pub(super) fn late(
    mut body: UnsyncBoxBody<Bytes, io::Error>,
    time: Duration,
) -> UnsyncBoxBody<Bytes, io::Error> {
    let (sender, receiver) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        let forwards = async {
            while let Some(frame) = body.frame().await {
                if sender.send((Instant::now() + time, frame)).is_err() {
                    break;
                }
            }
        };
        tokio::select! {
            () = forwards => {}
            () = sender.closed() => {}
        }
    });
    Late { receiver, next: None }.boxed_unsync()
}

pub(super) fn broken() -> io::Error {
    io::ErrorKind::ConnectionReset.into()
}

/// The part of a [`late`] body that is yet to come.
struct Late {
    receiver: mpsc::UnboundedReceiver<(Instant, Part)>,
    next: Option<(Pin<Box<Sleep>>, Part)>,
}

type Part = io::Result<Frame<Bytes>>;

impl Body for Late {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut task::Context<'_>) -> Poll<Option<Part>> {
        if self.next.is_none() {
            let Some((due, part)) = ready!(self.receiver.poll_recv(context)) else {
                return Poll::Ready(None);
            };
            self.next = Some((Box::pin(tokio::time::sleep_until(due)), part));
        }
        if let Some((sleep, _)) = &mut self.next {
            ready!(sleep.as_mut().poll(context));
        }
        Poll::Ready(self.next.take().map(|(_, part)| part))
    }
}

/// A body of which only the first bytes come.
pub(super) struct Torn {
    pub(super) body: UnsyncBoxBody<Bytes, io::Error>,
    pub(super) bytes: usize,
}

impl Body for Torn {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut task::Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(context));
        let length = frame.as_ref().map_or(0, |frame| frame.as_ref().map_or(0, length));
        Poll::Ready(match self.bytes.checked_sub(length) {
            Some(bytes) => {
                self.bytes = bytes;
                frame
            }
            None => Some(Err(broken())),
        })
    }
}

/// A list of the same object again and again.
#[derive(Default)]
pub(super) struct Endless {
    has_begun: bool,
}

impl Body for Endless {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut task::Context<'_>) -> Poll<Option<Part>> {
        let part = if std::mem::replace(&mut self.has_begun, true) {
            Bytes::from(r#"{"metadata":{"name":"again"}},"#.repeat(2000))
        } else {
            Bytes::from_static(
                br#"{"kind":"List","apiVersion":"v1","metadata":{"resourceVersion":"1"},"items":["#,
            )
        };
        Poll::Ready(Some(Ok(Frame::data(part))))
    }
}

fn length(frame: &Frame<Bytes>) -> usize {
    frame.data_ref().map_or(0, Bytes::len)
}
