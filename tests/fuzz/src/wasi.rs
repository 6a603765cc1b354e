//! Calls of WASI in any order, with any arguments: they end, keep to their limits, and give the same twice.

use std::sync::LazyLock;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use metahook_core::api::policy::{LimitBounds, Limits};
use metahook_server::hook::wasm::run::{Call, Files, MountedFolder, Reservation, Seed};

use crate::guest::{self, Calls, Guest, Guests};

/// The highest number of WASI's errors.
const MAX_ERRNO: i32 = 76;

/// Descriptors that a call has: three pipes, one mount, and what it opens.
const MAX_DESCRIPTORS: u32 = 1004;

static GUESTS: LazyLock<Guests> = LazyLock::new(|| {
    let module = wat::parse_str(guest::module()).expect("the text of a module");
    Guests::new(&module).expect("a module with WASI's own functions")
});

/// The bytes are calls.
pub(crate) fn check(bytes: &[u8]) {
    let [mut one, mut other] = [start(), start()];
    for call in Calls(bytes) {
        let [result, again] = [&mut one, &mut other]
            .map(|guest| guest.call(call.name, &call.arguments).map_err(|why| why.to_string()));
        assert_eq!(result, again, "{call:?}");
        assert!(one.is_within_limits(), "{call:?}");
        match (result, call.name) {
            (Err(why), _) => {
                assert!(!why.is_empty());
                break;
            }
            (Ok(0), "path_open") => {
                let at =
                    usize::try_from(*call.arguments.last().expect("it has arguments")).expect("an address");
                let opened = one.memory()[at..at + 4].try_into().map(u32::from_le_bytes).expect("four bytes");
                assert!(opened < MAX_DESCRIPTORS, "{call:?}: {opened}");
            }
            (Ok(errno), _) => assert!((0..=MAX_ERRNO).contains(&errno), "{call:?}: {errno}"),
        }
    }
    assert_eq!(one.memory(), other.memory());
    assert_eq!(one.printed(), other.printed());
}

fn start() -> Guest {
    let limits =
        Limits { output: 4096, log: 1024, instructions: 5_000_000, ..LimitBounds::default().default };
    let file = |name: &str, size: usize| (name.to_owned(), Bytes::from(vec![b'x'; size]));
    let files = Files::from([file("a", 0), file("b.txt", 11), file("large", 9000)]);
    let mounts = [MountedFolder { path: "/etc/mount".to_owned(), files: files.into() }];
    let request = Bytes::from_static(b"{\"parent\":{}}");
    let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000);
    let call = Call {
        controller: "c",
        hook: "sync",
        is_of_shadow: false,
        request,
        now,
        limits,
        seed: Seed([7; 32]),
        mounts: &mounts,
        memory: Reservation::default(),
    };
    let mut guest = GUESTS.start(call).expect("room for an instance");
    guest::lay_out(guest.memory());
    guest
}
