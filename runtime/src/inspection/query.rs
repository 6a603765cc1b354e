//! Query of a request, such as `/v1/reconciles?group=example.com&resource=greetings&namespace=demo&name=a`.

use std::borrow::Cow;
use std::sync::Arc;

use http::Uri;
use metahook_core::overview::parent_list::ParentFilter;
use metahook_core::settled::parent_state::ParentState;
use metahook_core::trace::TracedObject;

use super::guard::Refusal;

/// Bytes of a query.
pub(super) const MAX_QUERY: usize = 4096;

pub(super) struct Query<'a>(&'a str);

impl<'a> Query<'a> {
    pub(super) fn of(uri: &'a Uri) -> Result<Self, Refusal> {
        let query = uri.query().unwrap_or_default();
        if query.len() > MAX_QUERY {
            let why = format!("it has {} bytes, and {MAX_QUERY} are allowed", query.len());
            return Err(Refusal::Query(why));
        }
        Ok(Self(query))
    }

    pub(super) fn field(&self, name: &str) -> Option<Cow<'a, str>> {
        let value = form_urlencoded::parse(self.0.as_bytes()).find(|(field, _)| field == name);
        value.map(|(_, value)| value).filter(|value| !value.is_empty())
    }

    pub(super) fn given(&self, name: &str) -> Result<String, Refusal> {
        self.field(name).map(Cow::into_owned).ok_or_else(|| Refusal::Query(format!("{name} is missing")))
    }

    /// Which parents are listed.
    pub(super) fn filter(&self) -> Result<ParentFilter, Refusal> {
        let state = self.field("state").map(|name| {
            let names = ParentState::ALL.map(ParentState::as_str).join(", ");
            ParentState::named(&name).ok_or_else(|| Refusal::Query(format!("state may be one of {names}")))
        });
        let skip = self.field("skip").map(|skip| {
            skip.parse().map_err(|_error| Refusal::Query("skip has to be a number of parents".to_owned()))
        });
        let search = self.field("search").unwrap_or_default().to_lowercase();
        Ok(ParentFilter { search, state: state.transpose()?, skip: skip.transpose()?.unwrap_or_default() })
    }

    /// The object that is asked about; without `is_one` all objects of its kind.
    pub(super) fn object(&self, is_one: bool) -> Result<TracedObject, Refusal> {
        let some = |name: &str| -> Arc<str> { self.field(name).unwrap_or_default().into() };
        Ok(TracedObject {
            group: some("group"),
            resource: self.given("resource")?.into(),
            kind: some("kind"),
            namespace: some("namespace"),
            name: if is_one { self.given("name")?.into() } else { Arc::default() },
        })
    }
}
