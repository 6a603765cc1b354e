//! The SDK's reader of JSON, compared with `serde_json`.

use metahook_sdk::fuzzing::decode;
use metahook_sdk::{
    Children, CustomizeRequest, DecorateRequest, IgnoredAny, Map, Object, Raw, Str, SyncRequest,
};
use serde_json::Value;

/// The bytes are a request.
pub(crate) fn check(bytes: &[u8]) {
    let ours = decode::<Value>(bytes);
    let skipped = decode::<IgnoredAny>(bytes);
    assert!(ours.is_err() || skipped.is_ok(), "what can be read can be skipped");
    // `-0` is an integer here and a float there.
    let same_zeros = !bytes.windows(2).any(|pair| pair == b"-0");
    if same_zeros && let Ok(theirs) = serde_json::from_slice::<Value>(bytes) {
        assert_eq!(ours.as_ref(), Ok(&theirs));
    }
    match &ours {
        Ok(value) => {
            let printed = value.to_string();
            assert_eq!(decode::<Value>(printed.as_bytes()).as_ref(), Ok(value), "parsed, printed, parsed");
            let raw: Raw<'_> = decode(printed.as_bytes()).expect("any value is a text");
            assert_eq!(raw.text(), printed);
        }
        Err(error) => assert!(error.contains("(at byte "), "{error}"),
    }
    drop(decode::<Map<'_, Vec<Str<'_>>>>(bytes));
    drop(decode::<SyncRequest<Object<'_, Value>, Children<'_>, Raw<'_>>>(bytes));
    drop(decode::<DecorateRequest<Object<'_, Value>, Children<'_>, Raw<'_>>>(bytes));
    drop(decode::<CustomizeRequest<Object<'_, Value>>>(bytes));
}
