//! `metahook dashboard`: pages for a browser that show the controllers of a cluster, and what their servers say of them.
//!
//! The command serves the pages on the machine of its user, with their rights: it reads controllers from the API server, and asks
//! the servers what `metahook status` and `metahook explain` ask. So no server in the cluster serves pages, and no browser has a
//! token of the cluster.
//!
//! # Guarantees
//! - Nothing is written to the cluster: a page is a `GET`, and so is what it asks.
//! - Pages are for the browser that opened the printed address first; no other page can ask for one (see `guard`).
//! - Texts of the cluster are escaped: they cannot become a part of a page, and no script of another origin is run.

mod attempts;
mod call_recordings;
mod charts;
mod error;
mod guard;
mod pages;
mod reader;
mod samples;
mod servers;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, HeaderName, LOCATION, REFERRER_POLICY, SET_COOKIE,
    X_CONTENT_TYPE_OPTIONS,
};
use http::{HeaderValue, Method, Request, Response, StatusCode};
use hyper::body::Incoming;
use maud::Markup;
use metahook_core::api::ControllerKind;
use metahook_core::object::id::Key;
use metahook_core::overview::parent_list::ParentFilter;
use metahook_core::settled::parent_state::ParentState;
use metahook_core::trace::TracedObject;
use metahook_server::cluster::cluster_name::ClusterName;
use metahook_server::controller::resource;
use metahook_server::telemetry::http::{page, serve as serve_requests};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use crate::controllers::KINDS;
use crate::inspected_server::Inspector;
use crate::status::ClusterReader;
use call_recordings::{CallRecordings, CallSubject};
use error::PageError;
pub use guard::AccessKey;
use guard::Visitor;
use pages::site::Site;
use pages::terminal::Terminal;
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
    (X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (REFERRER_POLICY, "no-referrer"),
    (CACHE_CONTROL, "no-store"),
];

/// The pages of one run of the command.
pub struct Dashboard {
    cluster: ClusterReader,
    site: Site,
    key: AccessKey,
    servers: Arc<DashboardServers>,
    samples: Mutex<Samples>,
    calls: Mutex<CallRecordings>,
}

/// A page that a browser asks for.
#[derive(Debug, PartialEq, Eq)]
enum PageRequest {
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
    /// Requests and answers about a parent, as they come.
    Calls(CallSubject),
}

impl Dashboard {
    /// `cluster`: the one that the inspector asks.
    pub fn new(inspector: Inspector, cluster: ClusterName, key: AccessKey) -> Self {
        let terminal = Terminal {
            kubeconfig: inspector.kubeconfig.clone(),
            context: inspector.context.clone(),
            server_namespace: inspector.server_namespace.clone(),
        };
        let site = Site { prefix: key.prefix(), cluster, terminal };
        let cluster = ClusterReader::new(inspector.api.clone(), MAX_CLUSTER_AGE);
        let servers = Arc::new(DashboardServers::new(inspector));
        Self { cluster, site, key, servers, samples: Mutex::default(), calls: Mutex::default() }
    }

    /// Answers browsers until `stop`.
    pub async fn serve(self, listener: TcpListener, stop: CancellationToken) {
        let servers = Arc::clone(&self.servers);
        let _asking = servers.end_with();
        let _reaching = AbortOnDropHandle::new(tokio::spawn(Arc::clone(&servers).keep_reached()));
        let dashboard = Arc::new(self);
        let answer = move |request: Request<Incoming>| {
            let dashboard = Arc::clone(&dashboard);
            async move { dashboard.answer(&request).await }
        };
        serve_requests(listener, answer, PAGE_TIMEOUT, stop).await;
        servers.clear();
    }

    async fn answer<B>(&self, request: &Request<B>) -> Response<String> {
        let mut answer = match self.key.visitor(request.method(), request.headers(), request.uri()) {
            Visitor::Stranger(refusal) => html(StatusCode::FORBIDDEN, pages::refusal(&refusal)),
            Visitor::WithKey => {
                let mut answer = redirect(&self.site.link("/"));
                if let Ok(cookie) = HeaderValue::from_str(&self.key.cookie()) {
                    answer.headers_mut().insert(SET_COOKIE, cookie);
                }
                answer
            }
            Visitor::Known(_) if request.method() != Method::GET => self.failure(&PageError::Method),
            Visitor::Known(path) => self.page(path, request.uri().query().unwrap_or_default()).await,
        };
        for (name, value) in HEADERS {
            answer.headers_mut().insert(name, HeaderValue::from_static(value));
        }
        answer
    }

    async fn page(&self, path: &str, query: &str) -> Response<String> {
        let Some(request) = PageRequest::of(path, query) else { return self.failure(&PageError::NoPage) };
        let site = &self.site;
        let made = match request {
            PageRequest::Style => return page(StatusCode::OK, "text/css", STYLE.to_owned()),
            PageRequest::Script => return page(StatusCode::OK, "text/javascript", SCRIPT.to_owned()),
            PageRequest::Controllers { search } => {
                self.all().await.map(|cluster| pages::controllers::page(site, &cluster, &search))
            }
            PageRequest::Controller { kind, name, filter } => {
                let shown = self.one(kind, &name, &filter).await;
                shown.map(|shown| pages::controller::page(site, &shown, &filter))
            }
            PageRequest::Find { kind, name } => match self.find(&kind, &name).await {
                Ok(object) => return redirect(&site.object_link(&object)),
                Err(error) => Err(error),
            },
            PageRequest::Object(object) => {
                self.explained(&object).await.map(|explained| pages::object::page(site, &object, &explained))
            }
            PageRequest::Calls(subject) => {
                self.calls(&subject).await.map(|calls| pages::calls::page(site, &subject, &calls))
            }
        };
        made.map_or_else(|error| self.failure(&error), |made| html(StatusCode::OK, made))
    }

    fn failure(&self, error: &PageError) -> Response<String> {
        html(error.status(), pages::error(&self.site, error))
    }
}

impl PageRequest {
    /// `path`: without the prefix of the run.
    fn of(path: &str, query: &str) -> Option<Self> {
        if path.len() + query.len() > MAX_PATH {
            return None;
        }
        let field = |name: &str| {
            let found = form_urlencoded::parse(query.as_bytes()).find(|(field, _)| field == name);
            found.map(|(_, value)| value.trim().to_owned()).unwrap_or_default()
        };
        let object = || TracedObject {
            group: field("group").into(),
            resource: field("resource").into(),
            kind: field("kind").into(),
            namespace: field("namespace").into(),
            name: field("name").into(),
        };
        let kind_named = |name: &str| KINDS.into_iter().find(|one| one.as_str() == name);
        let path: Vec<_> = path.split('/').skip(1).collect();
        Some(match path.as_slice() {
            [""] => Self::Controllers { search: field("search") },
            ["style.css"] => Self::Style,
            ["live.js"] => Self::Script,
            ["controllers", kind, name] => Self::Controller {
                kind: kind_named(kind)?,
                name: (*name).to_owned(),
                filter: ParentFilter {
                    search: field("search").to_lowercase(),
                    state: ParentState::named(&field("state")),
                    skip: field("skip").parse().unwrap_or_default(),
                },
            },
            ["find"] => Self::Find { kind: field("kind"), name: field("name") },
            ["object"] => Self::Object(object()),
            ["calls"] => {
                let kind = kind_named(&field("controllerKind"))?;
                let controller = TracedObject::new(&resource(kind), &Key::new("", &field("controller")));
                let parent = object();
                // Without a name servers would record all parents.
                if [&controller.name, &parent.resource, &parent.name].into_iter().any(|name| name.is_empty())
                {
                    return None;
                }
                Self::Calls(CallSubject { controller, parent })
            }
            _ => return None,
        })
    }
}

fn html(status: StatusCode, markup: Markup) -> Response<String> {
    page(status, "text/html; charset=utf-8", markup.into_string())
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
