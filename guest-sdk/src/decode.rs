//! Deserializer: from JSON to values of Rust types.

use crate::json::{Error, Number, Reader, text};
use crate::place::path;
use serde::de::{
    self, Deserialize, DeserializeSeed, Deserializer, Expected, IntoDeserializer, Unexpected, Visitor,
};
use serde::forward_to_deserialize_any;
use std::borrow::Cow;
use std::fmt::{self, Display};

/// The value in `text`, or one line with the fault and its place in `what`.
pub(crate) fn decode<'a, T: Deserialize<'a>>(what: &str, text: &'a [u8]) -> Result<T, String> {
    let mut from = Reader::new(text);
    let value = T::deserialize(&mut from).and_then(|value| match from.peek() {
        0 if from.rest.is_empty() => Ok(value),
        _ => Err(from.unexpected(&"the end")),
    });
    value.map_err(|why| locate(what, text, &from, &why))
}

#[cold]
#[inline(never)]
fn locate(what: &str, text: &[u8], from: &Reader<'_>, why: &Error) -> String {
    let at = text.len() - from.rest.len();
    let read = text.get(..at).unwrap_or_default();
    format!("{what}{}: {why} (at byte {at} of {})", path(read), text.len())
}

/// A newtype of this name takes a value's text as it is.
pub(crate) const RAW: &str = "metahook_sdk::Raw";

impl Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Error {}

impl de::Error for Error {
    fn custom<T: Display>(why: T) -> Self {
        Self::new(&why)
    }

    // The default methods print a float, with 20 KB of code.
    #[allow(clippy::wildcard_enum_match_arm, reason = "the rest of a foreign enum never comes from JSON")]
    fn invalid_type(got: Unexpected<'_>, wanted: &dyn Expected) -> Self {
        match got {
            Unexpected::Bool(value) => wrong(&value, wanted),
            Unexpected::Unsigned(value) => wrong(&value, wanted),
            Unexpected::Signed(value) => wrong(&value, wanted),
            Unexpected::Str(text) => wrong(&format_args!("\"{text:.80}\""), wanted),
            Unexpected::Other(what) => wrong(&what, wanted),
            Unexpected::Unit => wrong(&"null", wanted),
            Unexpected::Seq => wrong(&"a list", wanted),
            Unexpected::Map => wrong(&"an object", wanted),
            _ => wrong(&"something else", wanted),
        }
    }

    fn invalid_value(got: Unexpected<'_>, wanted: &dyn Expected) -> Self {
        Self::invalid_type(got, wanted)
    }
}

#[cold]
#[inline(never)]
fn wrong(got: &dyn Display, wanted: &dyn Expected) -> Error {
    Error::new(&format_args!("{got} where {wanted} should be"))
}

impl<'de> Reader<'de> {
    #[cold]
    #[inline(never)]
    fn wrong(&mut self, wanted: &dyn Expected) -> Error {
        let got = match self.peek() {
            0 => return self.unexpected(&wanted),
            b'{' => "an object",
            b'[' => "a list",
            _ => {
                let ahead = Reader::new(self.rest).skip().unwrap_or_default();
                str::from_utf8(ahead).unwrap_or("something")
            }
        };
        wrong(&format_args!("{got:.80}"), wanted)
    }

    /// The value that `visit` makes of the items between two brackets.
    fn items<V: Visitor<'de>>(
        &mut self,
        [open, end]: [u8; 2],
        visitor: V,
        visit: impl FnOnce(V, &mut Items<'_, 'de>) -> Result<V::Value, Error>,
    ) -> Result<V::Value, Error> {
        if !self.eat(open) {
            return Err(self.wrong(&visitor));
        }
        self.depth = self.depth.checked_sub(1).ok_or_else(|| Error::new(&"nested too deeply"))?;
        let mut items = Items { from: self, end, first: true, done: false };
        let value = visit(visitor, &mut items)?;
        items.close()?;
        Ok(value)
    }
}

/// Methods that do what another one does.
macro_rules! alike {
    ($($method:ident($($ignored:ty),*) => $other:ident,)*) => {$(
        fn $method<V: Visitor<'de>>(self, $(_: $ignored,)* visitor: V) -> Result<V::Value, Error> {
            self.$other(visitor)
        }
    )*};
}

type Static = &'static str;
type Statics = &'static [&'static str];

/// Each method takes the one kind of value it is asked for, so that a module has no code for others.
impl<'de> Deserializer<'de> for &mut Reader<'de> {
    type Error = Error;

    alike! {
        deserialize_i8() => deserialize_i64,
        deserialize_i16() => deserialize_i64,
        deserialize_i32() => deserialize_i64,
        deserialize_u8() => deserialize_i64,
        deserialize_u16() => deserialize_i64,
        deserialize_u32() => deserialize_i64,
        deserialize_u64() => deserialize_i64,
        deserialize_f32() => deserialize_f64,
        deserialize_char() => deserialize_str,
        deserialize_string() => deserialize_str,
        deserialize_identifier() => deserialize_str,
        deserialize_bytes() => deserialize_str,
        deserialize_byte_buf() => deserialize_str,
        deserialize_unit_struct(Static) => deserialize_unit,
        deserialize_tuple(usize) => deserialize_seq,
        deserialize_tuple_struct(Static, usize) => deserialize_seq,
        deserialize_struct(Static, Statics) => deserialize_map,
    }

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.peek() {
            b'{' => self.deserialize_map(visitor),
            b'[' => self.deserialize_seq(visitor),
            b'"' => self.deserialize_str(visitor),
            b'n' => self.deserialize_unit(visitor),
            b't' | b'f' => self.deserialize_bool(visitor),
            _ => match self.integer() {
                Some(Number::Natural(number)) => visitor.visit_u64(number),
                Some(Number::Negative(number)) => visitor.visit_i64(number),
                None => self.deserialize_f64(visitor),
            },
        }
    }

    fn deserialize_i64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.integer() {
            Some(Number::Natural(number)) => visitor.visit_u64(number),
            Some(Number::Negative(number)) => visitor.visit_i64(number),
            None => Err(self.wrong(&visitor)),
        }
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.peek();
        let start = self.rest;
        match self.word() {
            b"true" => visitor.visit_bool(true),
            b"false" => visitor.visit_bool(false),
            _ => {
                self.rest = start;
                Err(self.wrong(&visitor))
            }
        }
    }

    fn deserialize_f64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.float() {
            Some(number) => visitor.visit_f64(number),
            None => Err(self.wrong(&visitor)),
        }
    }

    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        if self.peek() != b'"' {
            return Err(self.wrong(&visitor));
        }
        match self.string()? {
            Cow::Borrowed(text) => visitor.visit_borrowed_str(text),
            Cow::Owned(text) => visitor.visit_string(text),
        }
    }

    fn deserialize_unit<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        if self.null() { visitor.visit_unit() } else { Err(self.wrong(&visitor)) }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        if self.null() { visitor.visit_none() } else { visitor.visit_some(self) }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        name: Static,
        visitor: V,
    ) -> Result<V::Value, Error> {
        if name != RAW {
            return visitor.visit_newtype_struct(self);
        }
        let text = text(self.skip()?)?;
        visitor.visit_borrowed_str(text)
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.items(*b"[]", visitor, |visitor, items| visitor.visit_seq(items))
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.items(*b"{}", visitor, |visitor, items| visitor.visit_map(items))
    }

    fn deserialize_enum<V: Visitor<'de>>(self, _: Static, _: Statics, visitor: V) -> Result<V::Value, Error> {
        if self.peek() == b'"' {
            return visitor.visit_enum(self.string()?.into_deserializer());
        }
        self.items(*b"{}", visitor, |visitor, items| {
            visitor.visit_enum(de::value::MapAccessDeserializer::new(items))
        })
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.skip()?;
        visitor.visit_unit()
    }
}

/// Items between two brackets.
struct Items<'r, 'de> {
    from: &'r mut Reader<'de>,
    end: u8,
    first: bool,
    done: bool,
}

impl Items<'_, '_> {
    /// Whether there is one more; goes past the comma before it, or past the bracket at the end.
    #[inline(never)]
    fn more(&mut self) -> Result<bool, Error> {
        if self.done || self.from.eat(self.end) {
            self.done = true;
            return Ok(false);
        }
        if !self.first {
            self.from.expect(b',')?;
        }
        self.first = false;
        Ok(true)
    }

    /// A visitor need not read up to the end, but the end has to be there.
    fn close(&mut self) -> Result<(), Error> {
        if self.more()? {
            return Err(self.from.unexpected(&char::from(self.end)));
        }
        self.from.depth += 1;
        Ok(())
    }
}

impl<'de> de::SeqAccess<'de> for Items<'_, 'de> {
    type Error = Error;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, Error> {
        if self.more()? { seed.deserialize(&mut *self.from).map(Some) } else { Ok(None) }
    }
}

impl<'de> de::MapAccess<'de> for Items<'_, 'de> {
    type Error = Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Error> {
        if self.more()? { seed.deserialize(Key(self.from)).map(Some) } else { Ok(None) }
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Error> {
        self.from.expect(b':')?;
        seed.deserialize(&mut *self.from)
    }
}

/// A string in the place of a key, which may stand for a number.
struct Key<'r, 'de>(&'r mut Reader<'de>);

macro_rules! keys {
    ($($method:ident)*) => {$(
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
            match self.0.string()? {
                Cow::Borrowed(text) => Reader::new(text.as_bytes()).$method(visitor),
                Cow::Owned(text) => Err(wrong(&text, &visitor)),
            }
        }
    )*};
}

impl<'de> Deserializer<'de> for Key<'_, 'de> {
    type Error = Error;

    keys! { deserialize_i8 deserialize_i16 deserialize_i32 deserialize_i64
    deserialize_u8 deserialize_u16 deserialize_u32 deserialize_u64 deserialize_bool }

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.0.deserialize_str(visitor)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, _: Static, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(self, _: Static, _: Statics, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_enum(self.0.string()?.into_deserializer())
    }

    forward_to_deserialize_any! {
        f32 f64 char str string bytes byte_buf unit unit_struct seq tuple tuple_struct map struct identifier ignored_any
    }
}

#[cfg(test)]
mod tests {
    use super::decode;
    use serde::Deserialize;
    use serde::de::DeserializeOwned;
    use serde_json::json;
    use std::collections::BTreeMap;

    #[derive(Debug, PartialEq, Deserialize)]
    #[serde(rename_all = "camelCase")]
    enum Size {
        Small,
        OfWidth(u8),
        OfBoth(u8, u8),
        Named { width: u8 },
    }

    #[derive(Debug, PartialEq, PartialOrd, Eq, Ord, Deserialize)]
    struct Port(u16);

    /// The value is the one that `serde_json` reads from the same text.
    fn same<T: DeserializeOwned + PartialEq + std::fmt::Debug>(text: &str) {
        let ours = decode::<T>("value", text.as_bytes()).unwrap();
        assert_eq!(ours, serde_json::from_str(text).unwrap(), "{text}");
    }

    #[test]
    fn types_of_all_shapes_are_decoded_as_by_serde_json() {
        same::<Vec<Size>>(r#"["small",{"ofWidth":1},{"ofBoth":[1,2]},{"named":{"width":3}}]"#);
        same::<(u8, Option<String>, Option<()>, char)>(r#" [ 1 , "a" , null , "\u00e9" ] "#);
        same::<BTreeMap<Port, bool>>(r#"{"80":true,"443":false}"#);
        same::<BTreeMap<bool, [i8; 2]>>(r#"{"true":[-1,1]}"#);
        same::<BTreeMap<char, Option<Port>>>(r#"{"a":null,"\n":7}"#);
        same::<BTreeMap<Option<String>, f32>>(r#"{"a":1.5}"#);
        same::<Box<[u64]>>("[]");
    }

    #[test]
    fn what_does_not_fit_is_refused_with_its_path() {
        let refused =
            |text: &str| decode::<BTreeMap<String, Vec<Size>>>("value", text.as_bytes()).unwrap_err();
        assert_eq!(refused("7"), "value: 7 where a map should be (at byte 0 of 1)");
        assert_eq!(refused(r#"{"a":{}}"#), "value.a: an object where a sequence should be (at byte 5 of 8)");
        assert_eq!(
            refused(r#"{"a":["small",7]}"#),
            "value.a[1]: 7 where enum Size should be (at byte 14 of 17)"
        );
        assert_eq!(
            refused(r#"{"a":[{"ofWidth":"1"}]}"#),
            r#"value.a[0].ofWidth: "1" where u8 should be (at byte 17 of 23)"#
        );
        assert_eq!(
            refused(r#"{"a":["big"]}"#),
            "value.a[0]: unknown variant `big`, expected one of `small`, `ofWidth`, `ofBoth`, `named` (at byte 11 of 13)"
        );
        assert_eq!(refused(r#"{"a":[] "b":[]}"#), r#"value.a: '\"' where , should be (at byte 8 of 15)"#);
        assert_eq!(refused(r#"{"a" []}"#), "value.a: '[' where : should be (at byte 5 of 8)");
        assert_eq!(
            decode::<[u8; 1]>("value", b"[1,2]").unwrap_err(),
            "value[1]: '2' where ] should be (at byte 3 of 5)"
        );
        assert_eq!(
            decode::<bool>("value", json!("x".repeat(500)).to_string().as_bytes()).unwrap_err(),
            format!("value: \"{} where a boolean should be (at byte 0 of 502)", "x".repeat(79))
        );
    }
}
