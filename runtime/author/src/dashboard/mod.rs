//! `metahook dashboard`: pages for a browser that show the controllers of a cluster, and what their servers say of them.
//!
//! The command serves the pages on the machine of its user, with their rights: it reads controllers from the API server, and asks
//! the servers what `metahook status` and `metahook explain` ask. So no server in the cluster serves pages, and no browser has a
//! token of the cluster.
//!
//! # Guarantees
//! - Nothing is written to the cluster: a page is a `GET`, and so is what it asks.
//! - Pages are for browsers that have the key of this run; no other page can ask for one (see `guard`).
//! - Texts of the cluster are escaped: they cannot become a part of a page, and no script of another origin is run.

mod attempts;
mod charts;
mod error;
mod guard;
mod pages;
mod reader;
mod samples;
mod servers;

use std::sync::Arc;
use std::sync::Mutex;
use std::time::Duration;

use http::header::{CONTENT_SECURITY_POLICY, HeaderName, LOCATION, SET_COOKIE};
use http::{HeaderValue, Method, Request, Response, StatusCode, Uri};
use hyper::body::Incoming;
use maud::Markup;
use metahook_core::api::ControllerKind;
use metahook_core::overview::parent_list::ParentFilter;
use metahook_core::settled::parent_state::ParentState;
use metahook_core::trace::TracedObject;
use metahook_server::telemetry::http as pages_of;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use crate::inspected_server::Inspector;
use crate::status::ClusterReader;
use error::PageError;
pub use guard::Key;
use guard::Visitor;
use samples::Samples;
use servers::DashboardServers;

const STYLE: &str = include_str!("assets/style.css");
const SCRIPT: &str = include_str!("assets/live.js");

/// Bytes of a path with its query.
const MAX_PATH: usize = 4096;

/// A page waits for the API server and then for servers, and has a bound for each: together they are shorter.
const PAGE_TIMEOUT: Duration = Duration::from_secs(20);

/// Kinds and Leases of the cluster are shared by all tabs for so long.
const MAX_CLUSTER_AGE: Duration = Duration::from_secs(10);

/// Pages load nothing from elsewhere, and no other page shows them.
const HEADERS: [(HeaderName, &str); 4] = [
    (
        CONTENT_SECURITY_POLICY,
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    ),
    (http::header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (http::header::REFERRER_POLICY, "no-referrer"),
    (http::header::CACHE_CONTROL, "no-store"),
];

/// The pages of one run of the command.
pub struct Dashboard {
    cluster: ClusterReader,
    /// Where an object is whose name has no namespace.
    namespace: String,
    key: Key,
    servers: Arc<DashboardServers>,
    samples: Mutex<Samples>,
}

/// What a browser asks for.
#[derive(Debug, PartialEq, Eq)]
enum Asked {
    Style,
    Script,
    /// All controllers whose name has this in it.
    Controllers {
        search: String,
    },
    Controller {
        kind: ControllerKind,
        name: String,
        filter: ParentFilter,
    },
    /// An object as people name it.
    Find {
        kind: String,
        name: String,
    },
    Object(TracedObject),
}

impl Dashboard {
    pub fn new(inspector: Inspector, namespace: String, key: Key) -> Self {
        let cluster = ClusterReader::new(inspector.api.clone(), MAX_CLUSTER_AGE);
        let servers = Arc::new(DashboardServers::new(inspector));
        Self { cluster, namespace, key, servers, samples: Mutex::default() }
    }

    /// Answers browsers until `stop`.
    pub async fn serve(self, listener: TcpListener, stop: CancellationToken) {
        let servers = Arc::clone(&self.servers);
        let _reaching = AbortOnDropHandle::new(tokio::spawn(Arc::clone(&servers).keep_reached()));
        let dashboard = Arc::new(self);
        let page = move |request: Request<Incoming>| Arc::clone(&dashboard).answer(request);
        pages_of::serve(listener, page, PAGE_TIMEOUT, stop).await;
        servers.clear();
    }

    async fn answer(self: Arc<Self>, request: Request<Incoming>) -> Response<String> {
        let mut answer = match self.key.visitor(request.headers(), request.uri()) {
            Visitor::Stranger(why) => {
                html(StatusCode::FORBIDDEN, pages::error(&PageError::Stranger(why.to_owned())))
            }
            Visitor::WithKey => {
                let mut answer = redirect(&guard::without_key(request.uri()));
                if let Ok(cookie) = HeaderValue::from_str(&self.key.cookie()) {
                    answer.headers_mut().insert(SET_COOKIE, cookie);
                }
                answer
            }
            Visitor::Known if request.method() != Method::GET => {
                html(StatusCode::METHOD_NOT_ALLOWED, pages::error(&PageError::Method))
            }
            Visitor::Known => self.page(request.uri()).await,
        };
        for (name, value) in HEADERS {
            answer.headers_mut().insert(name, HeaderValue::from_static(value));
        }
        answer
    }

    async fn page(&self, uri: &Uri) -> Response<String> {
        let Some(asked) = Asked::of(uri) else {
            return html(StatusCode::NOT_FOUND, pages::error(&PageError::NoPage));
        };
        let made = match asked {
            Asked::Style => return pages_of::page(StatusCode::OK, "text/css", STYLE.to_owned()),
            Asked::Script => return pages_of::page(StatusCode::OK, "text/javascript", SCRIPT.to_owned()),
            Asked::Controllers { search } => {
                self.all().await.map(|cluster| pages::controllers::page(&cluster, &search))
            }
            Asked::Controller { kind, name, filter } => {
                let shown = self.one(kind, &name, &filter).await;
                shown.map(|shown| pages::controller::page(&shown, &filter))
            }
            Asked::Find { kind, name } => match self.find(&kind, &name).await {
                Ok(object) => return redirect(&pages::object_link(&object)),
                Err(error) => Err(error),
            },
            Asked::Object(object) => {
                self.explained(&object).await.map(|explained| pages::object::page(&object, &explained))
            }
        };
        match made {
            Ok(page) => html(StatusCode::OK, page),
            Err(error) => html(error.status(), pages::error(&error)),
        }
    }
}

impl Asked {
    fn of(uri: &Uri) -> Option<Self> {
        let query = uri.query().unwrap_or_default();
        if uri.path().len() + query.len() > MAX_PATH {
            return None;
        }
        let field = |name: &str| {
            let found = form_urlencoded::parse(query.as_bytes()).find(|(field, _)| field == name);
            found.map(|(_, value)| value.trim().to_owned()).unwrap_or_default()
        };
        let path: Vec<_> = uri.path().split('/').skip(1).collect();
        Some(match path.as_slice() {
            [""] => Self::Controllers { search: field("search") },
            ["style.css"] => Self::Style,
            ["live.js"] => Self::Script,
            ["controllers", kind, name] => Self::Controller {
                kind: crate::controllers::KINDS.into_iter().find(|one| one.as_str() == *kind)?,
                name: (*name).to_owned(),
                filter: ParentFilter {
                    search: field("search").to_lowercase(),
                    state: ParentState::named(&field("state")),
                    skip: field("skip").parse().unwrap_or_default(),
                },
            },
            ["find"] => Self::Find { kind: field("kind"), name: field("name") },
            ["object"] => Self::Object(TracedObject {
                group: field("group"),
                resource: field("resource"),
                kind: field("kind"),
                namespace: field("namespace"),
                name: field("name"),
            }),
            _ => return None,
        })
    }
}

fn html(status: StatusCode, page: Markup) -> Response<String> {
    pages_of::page(status, "text/html; charset=utf-8", page.into_string())
}

fn redirect(to: &str) -> Response<String> {
    let mut answer = html(StatusCode::SEE_OTHER, maud::html! {});
    if let Ok(to) = HeaderValue::from_str(to) {
        answer.headers_mut().insert(LOCATION, to);
    }
    answer
}

#[cfg(test)]
mod tests;

#[cfg(test)]
mod server_tests;
