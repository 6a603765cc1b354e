//! Values of an answer that JSON does not have, or would write as others without a word: a Map as `{}`, a function not at all.

use rquickjs::object::{Filter, ObjectIter};
use rquickjs::{Array, Atom, Function, Object, Result, Value, qjs};

use crate::integers::Rounded;

/// Levels that are looked at, as many as the server reads.
const MAX_NESTING: usize = 127;

/// Items of a list that are looked at; the server refuses more children.
const MAX_ITEMS: usize = 20_000;

/// Characters of a path.
const MAX_PATH: usize = 200;

/// A value, and where it is, such as `children[0].data.key`.
pub(crate) struct Misfit {
    pub(crate) what: String,
    pub(crate) path: String,
}

/// Checks of an answer beside those that cost little.
#[derive(Clone, Copy, Default)]
pub(crate) struct Look<'a> {
    /// Halves of surrogate pairs.
    pub(crate) strings: bool,
    /// Integers that JavaScript has rounded.
    pub(crate) rounded: Option<&'a Rounded>,
}

/// An object or a list that the walk is in.
struct Level<'js> {
    value: Value<'js>,
    items: Items<'js>,
    /// The key of the item that was taken last.
    key: Key<'js>,
}

enum Items<'js> {
    List(Array<'js>, usize),
    Fields(ObjectIter<'js, Atom<'js>, Value<'js>>),
}

#[derive(Clone)]
enum Key<'js> {
    Index(usize),
    Name(Atom<'js>),
    None,
}

impl<'js> Level<'js> {
    /// `None`: there is nothing in it that is looked at.
    fn of(value: Value<'js>) -> Option<Self> {
        let items = match (value.as_array(), value.as_object()) {
            (Some(list), _) if list.len() > MAX_ITEMS => return None,
            (Some(list), _) => Items::List(list.clone(), 0),
            (None, Some(object)) => Items::Fields(object.props()),
            (None, None) => return None,
        };
        Some(Self { value, items, key: Key::None })
    }

    fn has_half_key(&self) -> Result<bool> {
        let Key::Name(name) = &self.key else { return Ok(false) };
        Ok(name.to_js_string()?.to_string().is_err())
    }

    fn next(&mut self) -> Result<Option<Value<'js>>> {
        match &mut self.items {
            Items::List(list, at) if *at < list.len() => {
                self.key = Key::Index(*at);
                *at += 1;
                list.get(*at - 1).map(Some)
            }
            Items::List(..) => Ok(None),
            Items::Fields(fields) => {
                let Some(field) = fields.next() else { return Ok(None) };
                let (name, value) = field?;
                self.key = Key::Name(name);
                Ok(Some(value))
            }
        }
    }
}

/// Result of the walk for one value.
enum Seen<'js> {
    Fits,
    Flaw(String),
    Within(Level<'js>),
}

impl From<Option<String>> for Seen<'_> {
    fn from(flaw: Option<String>) -> Self {
        flaw.map_or(Self::Fits, Self::Flaw)
    }
}

/// The functions of the driver that a walk asks, and the class of plain objects.
struct Walk<'js, 'a> {
    strange: Function<'js>,
    written: Function<'js>,
    to_json: Atom<'js>,
    plain: qjs::JSClassID,
    look: Look<'a>,
}

/// The first value of an answer that does not fit.
pub(crate) fn find<'js>(driver: &Object<'js>, answer: &Value<'js>, look: Look<'_>) -> Result<Option<Misfit>> {
    let walk = Walk {
        strange: driver.get("strange")?,
        written: driver.get("written")?,
        to_json: Atom::from_str(driver.ctx().clone(), "toJSON")?,
        plain: class(driver),
        look,
    };
    let mut around = Vec::new();
    let mut seen = walk.see(answer, &around, false)?;
    loop {
        match seen {
            Seen::Flaw(what) => return Ok(Some(Misfit { what, path: path(&around) })),
            Seen::Within(level) => around.push(level),
            Seen::Fits => {}
        }
        seen = loop {
            let Some(level) = around.last_mut() else { return Ok(None) };
            let Some(value) = level.next()? else {
                around.pop();
                continue;
            };
            if look.strings && level.has_half_key()? {
                level.key = Key::None;
                break Seen::Flaw("a key with half of a surrogate pair".to_owned());
            }
            let is_list = matches!(level.items, Items::List(..));
            break walk.see(&value, &around, is_list)?;
        };
    }
}

impl<'js> Walk<'js, '_> {
    fn see(&self, value: &Value<'js>, around: &[Level<'js>], is_item: bool) -> Result<Seen<'js>> {
        if value.is_undefined() {
            // A field that is undefined is left out, as JavaScript has it.
            return Ok(is_item.then(|| "undefined".to_owned()).into());
        }
        if let Some(number) = value.as_float() {
            return Ok(self.number(number).into());
        }
        if let Some(string) = value.as_string() {
            let is_half = self.look.strings && string.to_string().is_err();
            return Ok(is_half.then(|| "a string with half of a surrogate pair".to_owned()).into());
        }
        if value.is_big_int() || value.is_symbol() || value.is_function() {
            return self.strange.call::<_, Option<String>>((value.clone(),)).map(Seen::from);
        }
        let Some(object) = value.as_object() else { return Ok(Seen::Fits) };
        if around.iter().any(|level| level.value == *value) {
            return Ok(Seen::Flaw("an object that holds itself".to_owned()));
        }
        if around.len() > MAX_NESTING {
            return Ok(Seen::Fits);
        }
        if !value.is_array() && object.get::<_, Value<'_>>(self.to_json.clone())?.is_function() {
            return self.instead(value, around, is_item);
        }
        self.object(value, object)
    }

    fn number(&self, number: f64) -> Option<String> {
        if number.is_nan() {
            return Some("NaN".to_owned());
        }
        if number.is_infinite() {
            return Some("an infinite number".to_owned());
        }
        self.look.rounded.filter(|rounded| rounded.has(number)).map(|_| "a rounded integer".to_owned())
    }

    /// Checks the value that JSON writes in place of an object with a method toJSON. A toJSON of that value is not called.
    fn instead(&self, value: &Value<'js>, around: &[Level<'js>], is_item: bool) -> Result<Seen<'js>> {
        let key = match around.last().map(|level| &level.key) {
            Some(Key::Name(name)) => name.to_string().unwrap_or_default(),
            Some(Key::Index(at)) => at.to_string(),
            Some(Key::None) | None => String::new(),
        };
        let written: Array<'_> = self.written.call((value.clone(), key))?;
        if written.is_empty() {
            return Ok(Seen::Flaw("an invalid Date".to_owned()));
        }
        let written: Value<'_> = written.get(0)?;
        match written.as_object() {
            Some(object) if !written.is_function() => self.object(&written, object),
            _ => self.see(&written, around, is_item),
        }
    }

    fn object(&self, value: &Value<'js>, object: &Object<'js>) -> Result<Seen<'js>> {
        if !value.is_array() {
            if class(object) != self.plain
                && let Some(what) = self.strange.call::<_, Option<String>>((value.clone(),))?
            {
                return Ok(Seen::Flaw(what));
            }
            let mut symbols = object.own_keys::<Atom<'_>>(Filter::new().symbol().enum_only());
            if symbols.next().transpose()?.is_some() {
                return Ok(Seen::Flaw("a key that is a symbol".to_owned()));
            }
        }
        Ok(Level::of(value.clone()).map_or(Seen::Fits, Seen::Within))
    }
}

/// The number that the engine has for the kind of an object: all but those that the language has built in share one.
fn class(object: &Object<'_>) -> qjs::JSClassID {
    // SAFETY: it reads a field of a value that lives.
    unsafe { qjs::JS_GetClassID(object.as_raw()) }
}

fn path(around: &[Level<'_>]) -> String {
    let mut path = String::new();
    for level in around {
        match &level.key {
            Key::Index(at) => path.push_str(&format!("[{at}]")),
            Key::Name(name) => {
                if !path.is_empty() {
                    path.push('.');
                }
                path.push_str(&name.to_string().unwrap_or_default());
            }
            Key::None => {}
        }
    }
    let cut = path.chars().count().saturating_sub(MAX_PATH);
    path.chars().skip(cut).collect()
}
