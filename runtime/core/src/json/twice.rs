//! Keys that an object of a JSON text has twice; a value made of the text no longer tells.

use std::collections::BTreeSet;
use std::fmt::{self, Write};

use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};

/// The path of a key that is there twice, `a.b[0].c`; `None` also where the text is no JSON.
pub fn first(json: &[u8]) -> Option<String> {
    let mut looked = Look { path: String::new(), found: None };
    let mut text = serde_json::Deserializer::from_slice(json);
    // Broken JSON is told by who makes values of it.
    drop(Here(&mut looked).deserialize(&mut text));
    looked.found
}

struct Look {
    path: String,
    found: Option<String>,
}

/// The value at the path.
struct Here<'a>(&'a mut Look);

impl<'de> DeserializeSeed<'de> for Here<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Here<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any JSON")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let (mut keys, length) = (BTreeSet::new(), self.0.path.len());
        while let Some(key) = map.next_key::<String>()? {
            if length > 0 {
                self.0.path.push('.');
            }
            self.0.path.push_str(&key);
            if !keys.insert(key) {
                self.0.found.get_or_insert_with(|| self.0.path.clone());
            }
            map.next_value_seed(Here(&mut *self.0))?;
            self.0.path.truncate(length);
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        let length = self.0.path.len();
        let mut at = 0_usize;
        loop {
            // A String takes whatever is written to it.
            write!(self.0.path, "[{at}]").unwrap_or_default();
            let next = list.next_element_seed(Here(&mut *self.0))?;
            self.0.path.truncate(length);
            if next.is_none() {
                return Ok(());
            }
            at += 1;
        }
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E>(self, _: &str) -> Result<(), E> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_twice_is_named_by_its_path() {
        for (text, found) in [
            (r#"{"a":1,"b":{"a":1},"c":[{"a":1},{"a":"\u0000"}]}"#, None),
            (r#"{"a":1,"a":1}"#, Some("a")),
            (r#"{"a":1,"\u0061":1}"#, Some("a")),
            (r#"{"a":[0,{"b":{"c":null,"d":true,"c":2.5}}]}"#, Some("a[1].b.c")),
            ("[[{}],[[{\"x\":-1,\"x\":1}]]]", Some("[1][0][0].x")),
            ("7", None),
            ("{\"a\"", None),
        ] {
            assert_eq!(first(text.as_bytes()).as_deref(), found, "{text}");
        }
    }
}
