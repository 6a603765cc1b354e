//! Waiting: whatever a hook waits for is there at once.

use super::clock::{Kind, Until};
use super::descriptors::Open;
use super::errno::{Errno, Failure};
use super::memory::{Memory, Span, after};
use super::state::Host;

/// Things that one call may wait for.
const AT_ONCE: u32 = 4096;

/// Bytes of a subscription and of an event.
const SUBSCRIPTION: u32 = 48;
const EVENT: u32 = 32;

/// What a hook waits for.
#[derive(Debug, Clone, Copy)]
enum Awaited {
    Clock(Kind, Until),
    Read(u32),
    Write(u32),
}

/// `poll_oneoff`. Gives how many events there are: one for each subscription.
pub(super) fn poll(
    host: &mut Host,
    memory: &mut Memory<'_>,
    (subscriptions, events, count): (u32, u32, u32),
) -> Result<u32, Failure> {
    if count == 0 || count > AT_ONCE {
        return Err(Errno::Inval.into());
    }
    for number in 0..count {
        let subscription = after(subscriptions, number * SUBSCRIPTION)?;
        let user_data: [u8; 8] = memory.array(subscription)?;
        let kind: [u8; 1] = memory.array(after(subscription, 8)?)?;
        let (error, ready) = match happen(host, read(memory, subscription, kind)?) {
            Ok(ready) => (0, ready),
            Err(errno) => (errno.number(), 0),
        };
        let event = after(events, number * EVENT)?;
        memory.bytes_mut(Span { at: event, len: EVENT })?.fill(0);
        memory.write(event, &user_data)?;
        memory.write(after(event, 8)?, &error.to_le_bytes())?;
        memory.write(after(event, 10)?, &kind)?;
        memory.write_u64(after(event, 16)?, ready)?;
    }
    Ok(count)
}

fn read(memory: &Memory<'_>, subscription: u32, kind: [u8; 1]) -> Result<Awaited, Errno> {
    let what = memory.u32(after(subscription, 16)?)?;
    match kind {
        [0] => {
            let time = u64::from_le_bytes(memory.array(after(subscription, 24)?)?);
            let flags = u16::from_le_bytes(memory.array(after(subscription, 40)?)?);
            let until = if flags & 1 == 0 { Until::After(time) } else { Until::At(time) };
            Ok(Awaited::Clock(Kind::of(what)?, until))
        }
        [1] => Ok(Awaited::Read(what)),
        [2] => Ok(Awaited::Write(what)),
        _ => Err(Errno::Inval),
    }
}

/// Gives how many bytes can be read or written.
fn happen(host: &mut Host, awaited: Awaited) -> Result<u64, Errno> {
    match awaited {
        Awaited::Clock(kind, until) => {
            host.clock.wait(kind, until);
            Ok(0)
        }
        Awaited::Read(fd) => match host.files.get(fd)? {
            Open::Stdin => u64::try_from(host.stdin.len()).map_err(|_too_long| Errno::Overflow),
            Open::File(file) => Ok(file.stat.size.saturating_sub(file.position)),
            Open::Stdout | Open::Stderr | Open::Folder(_) => Err(Errno::Badf),
        },
        Awaited::Write(fd) => match host.files.get(fd)? {
            Open::Stdout | Open::Stderr => Ok(1),
            Open::Stdin | Open::Folder(_) | Open::File(_) => Err(Errno::Badf),
        },
    }
}
