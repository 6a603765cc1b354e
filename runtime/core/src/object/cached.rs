//! Objects as a cache holds them: whole, or by their metadata alone where no controller can see the rest.

use std::hash::Hasher;
use std::ops::Deref;
use std::sync::Arc;

use serde::Deserialize;
use serde_json::Value;

use crate::hash::hash64;
use crate::object::{Object, ObjectMeta};

/// Bytes of the largest object that is always held whole.
pub const MAX_UNSEEN_BYTES: usize = 16 << 10;

/// Bytes of the metadata of an object and of its places in the indexes of a cache, about, without the text of labels.
const METADATA_BYTES: usize = 1 << 10;

/// An object of a cache. Everyone may read its metadata; the rest only where it is whole.
#[derive(Debug, Clone)]
pub enum CachedObject {
    Whole(Arc<Object>),
    Cut(Arc<CutObject>),
}

/// A large object that no controller can see, cut to its metadata.
#[derive(Debug, Clone)]
pub struct CutObject {
    meta: ObjectMeta,
    bytes: usize,
    tree: usize,
    /// Hash of the whole JSON.
    print: u64,
    /// Type of a Secret.
    of_type: Option<Value>,
}

impl CachedObject {
    /// The object, where it is whole.
    pub fn whole(&self) -> Option<&Arc<Object>> {
        match self {
            Self::Whole(object) => Some(object),
            Self::Cut(_) => None,
        }
    }

    /// The object cut to its metadata. `tree`: bytes of the whole object as a tree.
    pub(crate) fn cut(object: &Object, tree: usize) -> Self {
        let json = object.json();
        let bytes = json.len();
        let of_type = (&*object.gvk.kind == "Secret").then(|| of_type(object)).flatten();
        Self::Cut(Arc::new(CutObject {
            meta: ObjectMeta::clone(object),
            bytes,
            tree,
            print: print(json),
            of_type,
        }))
    }

    /// The field `type` of a Secret; null where it cannot be read.
    pub(crate) fn of_type(&self) -> Option<Value> {
        match self {
            Self::Whole(object) => of_type(object),
            Self::Cut(cut) => cut.of_type.clone(),
        }
    }

    /// Bytes of the whole object's JSON.
    pub fn bytes(&self) -> usize {
        match self {
            Self::Whole(object) => object.json().len(),
            Self::Cut(cut) => cut.bytes,
        }
    }

    /// Bytes that the object takes in a cache, about.
    pub(crate) fn held(&self) -> usize {
        let labels: usize = self.labels.iter().map(|(name, value)| name.len() + value.len()).sum();
        let json = self.whole().map_or(0, |object| object.json().len());
        METADATA_BYTES + labels + json
    }

    /// Bytes of the whole object as a tree, where it is not held whole.
    pub(crate) fn cut_tree(&self) -> Option<usize> {
        match self {
            Self::Whole(_) => None,
            Self::Cut(cut) => Some(cut.tree),
        }
    }

    /// Whether the whole object's JSON is the same.
    pub(crate) fn has_same_json(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Whole(one), Self::Whole(other)) => one.json() == other.json(),
            (one, other) => one.bytes() == other.bytes() && one.print() == other.print(),
        }
    }

    /// The object as it is once it is being deleted.
    pub(crate) fn deleting(&self) -> Self {
        match self {
            Self::Whole(object) => {
                let mut object = Object::clone(object);
                object.deleting = true;
                object.into()
            }
            Self::Cut(cut) => {
                let mut cut = CutObject::clone(cut);
                cut.meta.deleting = true;
                Self::Cut(Arc::new(cut))
            }
        }
    }

    fn print(&self) -> u64 {
        match self {
            Self::Whole(object) => print(object.json()),
            Self::Cut(cut) => cut.print,
        }
    }
}

impl Deref for CachedObject {
    type Target = ObjectMeta;

    fn deref(&self) -> &ObjectMeta {
        match self {
            Self::Whole(object) => object,
            Self::Cut(cut) => &cut.meta,
        }
    }
}

impl From<Arc<Object>> for CachedObject {
    fn from(object: Arc<Object>) -> Self {
        Self::Whole(object)
    }
}

impl From<Object> for CachedObject {
    fn from(object: Object) -> Self {
        Self::Whole(Arc::new(object))
    }
}

fn of_type(object: &Object) -> Option<Value> {
    #[derive(Deserialize)]
    struct Typed {
        #[serde(rename = "type")]
        of_type: Option<Value>,
    }
    let typed = serde_json::from_str(object.json()).map(|Typed { of_type }| of_type);
    typed.unwrap_or(Some(Value::Null))
}

fn print(json: &str) -> u64 {
    let mut all = hash64();
    all.write(json.as_bytes());
    all.finish()
}
