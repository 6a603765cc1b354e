//! Strings, maps and raw values that borrow from the request instead of copying it.

use crate::decode::{RAW, decode};
use crate::keep::put;
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde::ser::{Serialize, Serializer};
use std::borrow::{Borrow, Cow};
use std::fmt;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::ops::Deref;

/// A string of the request. It borrows from the request, and is a copy only when the JSON has escapes in it.
///
/// ```
/// use metahook_sdk::Str;
/// use serde::Deserialize;
///
/// #[derive(Deserialize, Default)]
/// struct Spec<'a> {
///     #[serde(borrow)]
///     image: Option<Str<'a>>,
/// }
///
/// let spec: Spec<'_> = serde_json::from_str(r#"{ "image": "nginx:1.29" }"#).unwrap();
/// let image: &str = spec.image.as_deref().unwrap_or("busybox");
/// assert_eq!(image, "nginx:1.29");
/// ```
///
/// Unlike `Cow<str>` it also borrows inside `Option`, `Vec` and [`Map`]. A field of your own struct needs
/// `#[serde(borrow)]`.
#[derive(Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Str<'a>(Cow<'a, str>);

impl Deref for Str<'_> {
    type Target = str;
    fn deref(&self) -> &str {
        &self.0
    }
}

impl Borrow<str> for Str<'_> {
    fn borrow(&self) -> &str {
        self
    }
}

impl fmt::Display for Str<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self)
    }
}

impl fmt::Debug for Str<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&**self, f)
    }
}

impl PartialEq<str> for Str<'_> {
    fn eq(&self, other: &str) -> bool {
        **self == *other
    }
}

impl PartialEq<&str> for Str<'_> {
    fn eq(&self, other: &&str) -> bool {
        **self == **other
    }
}

impl<'a> From<&'a str> for Str<'a> {
    fn from(text: &'a str) -> Self {
        Self(Cow::Borrowed(text))
    }
}

impl From<String> for Str<'_> {
    fn from(text: String) -> Self {
        Self(Cow::Owned(text))
    }
}

impl Serialize for Str<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(self)
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Str<'a> {
    #[inline(never)]
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Text;
        impl<'de> Visitor<'de> for Text {
            type Value = Str<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string")
            }
            fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Str<'de>, E> {
                Ok(text.into())
            }
            fn visit_str<E>(self, text: &str) -> Result<Str<'de>, E> {
                Ok(text.to_owned().into())
            }
            fn visit_string<E>(self, text: String) -> Result<Str<'de>, E> {
                Ok(text.into())
            }
        }
        from.deserialize_str(Text)
    }
}

/// A JSON object whose keys are data: labels, or children by name. It is sorted by key. `null` counts as empty.
///
/// ```
/// use metahook_sdk::Map;
///
/// let mut labels: Map<'_, &str> = [("tier", "web"), ("app", "shop")].into_iter().collect();
/// labels.insert("tier", "db");
/// assert_eq!(labels.get("tier"), Some(&"db"));
/// assert_eq!(labels.iter().map(|(key, _)| key).collect::<Vec<_>>(), ["app", "tier"]);
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct Map<'a, V>(Vec<(Str<'a>, V)>);

impl<'a, V> Map<'a, V> {
    /// An empty map.
    ///
    /// ```
    /// # use metahook_sdk::Map;
    /// let labels: Map<'_, &str> = Map::new();
    /// assert_eq!(serde_json::to_string(&labels).unwrap(), "{}");
    /// ```
    pub const fn new() -> Self {
        Self(Vec::new())
    }

    /// How many entries there are.
    ///
    /// ```
    /// # use metahook_sdk::Map;
    /// let labels: Map<'_, &str> = [("app", "shop"), ("tier", "web")].into_iter().collect();
    /// assert_eq!(labels.len(), 2);
    /// ```
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are no entries.
    ///
    /// ```
    /// # use metahook_sdk::Map;
    /// let labels: Map<'_, &str> = serde_json::from_str("null").unwrap();
    /// assert!(labels.is_empty());
    /// ```
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The value of a key.
    ///
    /// ```
    /// # use metahook_sdk::Map;
    /// let labels: Map<'_, &str> = [("app", "shop")].into_iter().collect();
    /// assert_eq!(labels.get("app").copied().unwrap_or("none"), "shop");
    /// assert_eq!(labels.get("tier").copied().unwrap_or("none"), "none");
    /// ```
    pub fn get(&self, key: &str) -> Option<&V> {
        let at = self.find(key).ok()?;
        self.0.get(at).map(|(_, value)| value)
    }

    /// Adds an entry. It replaces an entry with the same key.
    ///
    /// ```
    /// # use metahook_sdk::Map;
    /// let mut labels = Map::new();
    /// labels.insert("app", "shop");
    /// labels.insert("app", "blog");
    /// assert_eq!(serde_json::to_string(&labels).unwrap(), r#"{"app":"blog"}"#);
    /// ```
    pub fn insert(&mut self, key: impl Into<Str<'a>>, value: V) {
        let key = key.into();
        // The server sends keys in order: they are appended.
        let at =
            if self.0.last().is_none_or(|(last, _)| *last < key) { Err(self.len()) } else { self.find(&key) };
        match at.map(|at| self.0.get_mut(at)) {
            Ok(Some(entry)) => put(&mut entry.1, value),
            Ok(None) => {}
            Err(at) => self.0.insert(at, (key, value)),
        }
    }

    /// Keys and values in the order of the keys.
    ///
    /// ```
    /// # use metahook_sdk::Map;
    /// let labels: Map<'_, &str> = [("tier", "web"), ("app", "shop")].into_iter().collect();
    /// let selector: Vec<_> = labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
    /// assert_eq!(selector.join(","), "app=shop,tier=web");
    /// ```
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (&str, &V)> + ExactSizeIterator {
        self.0.iter().map(|(key, value)| (&**key, value))
    }

    /// The values in the order of their keys.
    ///
    /// ```
    /// # use metahook_sdk::Map;
    /// let sizes: Map<'_, u32> = [("a", 2), ("b", 3)].into_iter().collect();
    /// assert_eq!(sizes.values().sum::<u32>(), 5);
    /// ```
    pub fn values(&self) -> impl DoubleEndedIterator<Item = &V> + ExactSizeIterator {
        self.0.iter().map(|(_, value)| value)
    }

    fn find(&self, key: &str) -> Result<usize, usize> {
        self.0.binary_search_by(|(other, _)| (**other).cmp(key))
    }
}

impl<V> Default for Map<'_, V> {
    fn default() -> Self {
        Self::new()
    }
}

impl<'a, K: Into<Str<'a>>, V> FromIterator<(K, V)> for Map<'a, V> {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(entries: I) -> Self {
        let mut map = Self::new();
        entries.into_iter().for_each(|(key, value)| map.insert(key, value));
        map
    }
}

impl<V: Serialize> Serialize for Map<'_, V> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_map(self.iter())
    }
}

impl<'de: 'a, 'a, V: Deserialize<'de>> Deserialize<'de> for Map<'a, V> {
    #[inline(never)]
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Entries<V>(PhantomData<V>);
        impl<'de, V: Deserialize<'de>> Visitor<'de> for Entries<V> {
            type Value = Map<'de, V>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }
            fn visit_none<E>(self) -> Result<Self::Value, E> {
                Ok(Map::new())
            }
            fn visit_some<D: Deserializer<'de>>(self, from: D) -> Result<Self::Value, D::Error> {
                from.deserialize_map(self)
            }
            fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Self::Value, A::Error> {
                let mut map = ManuallyDrop::new(Map::new());
                while let Some((key, value)) = entries.next_entry::<Str<'de>, V>()? {
                    map.insert(key, value);
                }
                Ok(ManuallyDrop::into_inner(map))
            }
        }
        from.deserialize_option(Entries(PhantomData))
    }
}

/// A value of the request as its JSON text, which you decode later or never.
///
/// ```
/// use metahook_sdk::{Raw, Result, Sync, SyncResponse};
///
/// fn sync(request: &Sync<'_, Raw<'_>>) -> Result {
///     let sizes: Vec<u64> = request.parent.spec.decode()?;
///     Ok(SyncResponse::new().status(sizes.len()))
/// }
/// # let answer = metahook_sdk::testing::Request::of(serde_json::json!({ "spec": [1, 2] })).call(sync).unwrap();
/// # assert_eq!(answer.status, 2);
/// ```
///
/// Only types that the SDK decodes from a request can hold it: other decoders refuse it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Raw<'a>(&'a str);

impl<'a> Raw<'a> {
    /// The JSON text.
    ///
    /// ```
    /// # use metahook_sdk::{Raw, Sync, SyncResponse, testing::Request}; use serde_json::json;
    /// let sync = |request: &Sync<'_, Raw<'_>>| SyncResponse::new().status(request.parent.spec.text());
    /// let answer = Request::of(json!({ "spec": [1, 2] })).call(sync).unwrap();
    /// assert_eq!(answer.status, "[1,2]");
    /// ```
    pub fn text(self) -> &'a str {
        self.0
    }

    /// Decodes the value.
    ///
    /// ```
    /// # use metahook_sdk::{Raw, Sync, SyncResponse, testing::Request}; use serde_json::json;
    /// let sync = |request: &Sync<'_, Raw<'_>>| {
    ///     request.parent.spec.decode::<u8>().map(|size| SyncResponse::new().status(size))
    /// };
    /// assert_eq!(Request::of(json!({ "spec": 7 })).call(sync).unwrap().status, 7);
    /// assert!(Request::of(json!({ "spec": [7] })).call(sync).unwrap_err().starts_with("value: a list where"));
    /// ```
    ///
    /// # Errors
    /// One line that names the field, as for the request as a whole.
    pub fn decode<T: Deserialize<'a>>(self) -> Result<T, String> {
        decode("value", self.0.as_bytes())
    }
}

impl Default for Raw<'_> {
    fn default() -> Self {
        Self("null")
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Raw<'a> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Text;
        impl<'de> Visitor<'de> for Text {
            type Value = Raw<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a value in a request")
            }
            fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Raw<'de>, E> {
                Ok(Raw(text))
            }
        }
        from.deserialize_newtype_struct(RAW, Text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_are_borrowed_where_they_stand_as_they_are() {
        let strings: Vec<Option<Str<'_>>> = decode("value", br#"["plain","with\nescape",null]"#).unwrap();
        assert!(matches!(strings[0], Some(Str(Cow::Borrowed("plain")))));
        assert!(matches!(&strings[1], Some(Str(Cow::Owned(text))) if text == "with\nescape"));
        assert_eq!(strings[2], None);
        assert_eq!(serde_json::to_string(&strings).unwrap(), r#"["plain","with\nescape",null]"#);
        assert_eq!(format!("{:>6}|{:?}", Str::from("a"), Str::from("\n")), r#"     a|"\n""#);
    }

    #[test]
    fn a_map_is_sorted_whatever_the_order_and_the_last_of_equal_keys_counts() {
        let map: Map<'_, u8> = decode("value", br#"{"b":1,"a":2,"c":3,"b":4,"c":5}"#).unwrap();
        assert_eq!(map.iter().collect::<Vec<_>>(), [("a", &2), ("b", &4), ("c", &5)]);
        assert_eq!((map.len(), map.get("b"), map.get("x")), (3, Some(&4), None));
        assert_eq!(serde_json::to_string(&map).unwrap(), r#"{"a":2,"b":4,"c":5}"#);
        assert_eq!(map, [("c", 5), ("a", 2), ("b", 4)].into_iter().collect());
    }

    #[test]
    fn null_is_an_empty_map_at_any_depth() {
        assert!(decode::<Map<'_, u8>>("value", b"null").unwrap().is_empty());
        let map: Map<'_, Map<'_, u8>> = decode("value", br#"{"a":null}"#).unwrap();
        assert_eq!(map.get("a"), Some(&Map::new()));
    }

    #[test]
    fn a_map_is_also_decoded_from_elsewhere() {
        let map: Map<'_, Str<'_>> = serde_json::from_str(r#"{"b":"\n","a":"x"}"#).unwrap();
        assert_eq!(map.get("b").map(|text| &**text), Some("\n"));
        assert!(serde_json::from_str::<Raw<'_>>("1").is_err());
    }
}
