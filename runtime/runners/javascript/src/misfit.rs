//! Values of an answer that JSON does not have, or would write as others without a word: a Map as `{}`, a function not at all.

use rquickjs::object::ObjectIter;
use rquickjs::{Array, Atom, Function, Object, Result, Value};

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
    /// `None`: nothing in it is looked at. `to_json`: the name of the method.
    fn of(value: &Value<'js>, to_json: &Atom<'js>) -> Result<Option<Self>> {
        let items = match (value.as_array(), value.as_object()) {
            (Some(list), _) if list.len() > MAX_ITEMS => return Ok(None),
            (Some(list), _) => Items::List(list.clone(), 0),
            (None, Some(object)) if object.get::<_, Value<'_>>(to_json.clone())?.is_function() => return Ok(None),
            (None, Some(object)) => Items::Fields(object.props()),
            (None, None) => return Ok(None),
        };
        Ok(Some(Self { value: value.clone(), items, key: Key::None }))
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

/// The first value of an answer that does not fit. `strings`: whether strings are looked at, too.
pub(crate) fn find<'js>(driver: &Object<'js>, answer: &Value<'js>, strings: bool) -> Result<Option<Misfit>> {
    let strange: Function<'_> = driver.get("strange")?;
    let to_json = Atom::from_str(driver.ctx().clone(), "toJSON")?;
    let mut around: Vec<Level<'js>> = Level::of(answer, &to_json)?.into_iter().collect();
    while let Some(level) = around.last_mut() {
        let is_list = matches!(level.items, Items::List(..));
        let Some(value) = level.next()? else {
            around.pop();
            continue;
        };
        let mut what = None;
        if value.is_undefined() {
            // A field that is undefined is left out, as JavaScript has it.
            what = is_list.then(|| "undefined".to_owned());
        } else if let Some(number) = value.as_float() {
            what = (!number.is_finite()).then(|| if number.is_nan() { "NaN" } else { "an infinite number" }.to_owned());
        } else if let Some(string) = value.as_string() {
            let is_half = strings && string.to_string().is_err();
            what = is_half.then(|| "a string with half of a surrogate pair".to_owned());
        } else if value.is_big_int() || value.is_symbol() || value.is_function() {
            what = strange.call((value,))?;
        } else if around.iter().any(|level| level.value == value) {
            what = Some("an object that holds itself".to_owned());
        } else if let Some(object) = value.as_object() {
            if !value.is_array() && object.keys::<Atom<'_>>().next().is_none() {
                what = strange.call((value.clone(),))?;
            }
            if what.is_none() && around.len() <= MAX_NESTING {
                around.extend(Level::of(&value, &to_json)?);
            }
        }
        if let Some(what) = what {
            return Ok(Some(Misfit { what, path: path(&around) }));
        }
    }
    Ok(None)
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
