//! `metahook dashboard`: the pages of a browser, asked as a browser asks, with the rights of the command's user.

use std::net::SocketAddr;

use acceptance::api::Kind;
use acceptance::fixture::Fixture;
use acceptance::paths;
use acceptance::process::{Process, Signal};
use acceptance::wait::{PATIENCE, until};
use acceptance::webhook::Answer;
use anyhow::{Context, Result, ensure};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::status_of_one::two_of_three_fail;

/// A browser.
pub(crate) struct Browser {
    address: String,
    /// The path that the command printed, with its key.
    opened: String,
    /// What precedes the path of each page.
    prefix: String,
    cookie: String,
}

impl Browser {
    /// Opens the address that the command prints, as the command asks for it.
    pub(crate) async fn open(dashboard: &Process) -> Result<Self> {
        let printed = until("the command prints its address", PATIENCE, async || {
            let log = std::fs::read_to_string(dashboard.log())?;
            let line = log.lines().find(|line| line.starts_with("http://127.0.0.1:")).map(str::to_owned);
            Ok(line.ok_or(log))
        })
        .await?;
        let (address, path) = printed.trim_start_matches("http://").split_once('/').context("no path")?;
        let (address, opened) = (address.to_owned(), format!("/{path}"));
        let mut browser = Self { address, opened, prefix: String::new(), cookie: String::new() };
        let answer = browser.request(&browser.opened, "").await?;
        ensure!(answer.starts_with("HTTP/1.1 303"), "{answer}");
        let header = |name: &str| answer.lines().find_map(|line| line.strip_prefix(name));
        let cookie = header("set-cookie: ").context("no cookie")?;
        let prefix = header("location: ").and_then(|path| path.strip_suffix('/')).context("no prefix")?;
        ensure!(prefix.len() > 16 && cookie.ends_with(&format!("; Path={prefix}/")), "{answer}");
        cookie.split(';').next().context("an empty cookie")?.clone_into(&mut browser.cookie);
        prefix.clone_into(&mut browser.prefix);
        Ok(browser)
    }

    /// A page: the whole answer, with its headers.
    pub(crate) async fn ask(&self, page: &str, headers: &str) -> Result<String> {
        self.request(&format!("{}{page}", self.prefix), headers).await
    }

    async fn request(&self, path: &str, headers: &str) -> Result<String> {
        let mut stream = TcpStream::connect(&self.address).await?;
        let Self { address, cookie, .. } = self;
        let request = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nCookie: {cookie}\r\n{headers}\r\n");
        stream.write_all(request.as_bytes()).await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        Ok(answer)
    }

    /// Asks for a page until it has all of this.
    pub(crate) async fn until_shown(&self, path: &str, says: &[&str]) -> Result<String> {
        until(&format!("the page {path} says {says:?}"), PATIENCE, async || {
            let page = self.ask(path, "").await?;
            let has_all = page.starts_with("HTTP/1.1 200") && says.iter().all(|it| page.contains(it));
            Ok(if has_all { Ok(page) } else { Err(page) })
        })
        .await
    }

    /// Follows the first link of a page that has these words in its address.
    async fn follow(&self, page: &str, words: &str) -> Result<String> {
        let links = page.split("href=\"").skip(1).filter_map(|rest| rest.split('"').next());
        let link = links.into_iter().find(|link| link.contains(words)).context("no such link")?;
        self.request(&link.replace("&amp;", "&"), "").await
    }
}

pub(crate) fn start(test: &Fixture, server: SocketAddr) -> Result<Process> {
    let kubeconfig = test.plane().kubeconfig().display().to_string();
    let server = server.to_string();
    let line = ["dashboard", "--no-open", "--server", &server, "--kubeconfig", &kubeconfig];
    let log = test.plane().logs().join(format!("{}-dashboard.log", test.name()));
    Process::start("metahook dashboard", &paths::server()?, &line.map(str::to_owned), &log)
}

pub(crate) async fn pages_show_controllers_parents_and_reconciles(test: &mut Fixture) -> Result<()> {
    let bad = Answer::text("<b>broken</b>").with_status(500);
    let (server, _hook) = two_of_three_fail(test, bad).await?;
    let mut dashboard = start(test, server)?;
    let browser = Browser::open(&dashboard).await?;
    let (name, kind) = (test.name().to_owned(), test.kind().kind.clone());

    let place = format!("/controllers/CompositeController/{name}");
    let all = browser.until_shown("/", &["ParentsFailing", &place]).await?;
    ensure!(all.contains("content-security-policy: default-src 'none'"), "{all}");

    let failing = browser.until_shown(&place, &["2 parents", "broken&lt;/b&gt;", "1 to 3 of 3"]).await?;
    ensure!(!failing.contains("<b>broken"), "{failing}");
    each_link_has_an_id(&failing)?;
    let context = format!("<title>{name} · ");
    ensure!(failing.contains(&context) && failing.contains("https://127.0.0.1:"), "{failing}");
    let found = browser.until_shown(&format!("{place}?search=GOOD"), &["1 to 1 of 1"]).await?;
    ensure!(found.contains(&format!("{kind} {name}/good")), "{found}");
    let none = browser.until_shown(&format!("{place}?state=paused"), &["no such parents"]).await?;
    ensure!(!none.contains("1 to "), "{none}");

    let one = browser.follow(&failing, "/object?").await?;
    ensure!(one.contains(&format!("<h1>{kind} {name}/bad-1</h1>")), "{one}");
    ensure!(one.contains("first reconcile") && one.contains("sync hook") && one.contains("FAILED"), "{one}");
    // Other tests have kinds of the same name.
    let full = format!("{}.{}", test.kind().plural, test.kind().group);
    let found = browser.ask(&format!("/find?kind={full}&name={name}/good"), "").await?;
    ensure!(
        found.starts_with("HTTP/1.1 303") && found.contains(&format!("location: {}/object?", browser.prefix)),
        "{found}"
    );

    calls_are_shown_as_they_come(test, &browser).await?;

    let gone = browser.ask("/controllers/CompositeController/none", "").await?;
    ensure!(gone.starts_with("HTTP/1.1 404") && gone.contains("does not exist"), "{gone}");
    strangers_are_shown_nothing(&browser).await?;

    test.server().stop().await?;
    browser.until_shown(&place, &["What the server knows is not shown", "does not answer"]).await?;
    browser.until_shown("/", &["Not all is shown", &name]).await?;
    test.server().start()?;
    browser.until_shown(&place, &["2 parents", "1 to 3 of 3"]).await?;
    dashboard.signal(Signal::Term);
    let status = dashboard.wait(PATIENCE).await?;
    ensure!(status.success(), "{status}: {}", dashboard.tail(20));
    Ok(())
}

/// Requests and answers about the parent `good`, since the page was opened.
async fn calls_are_shown_as_they_come(test: &mut Fixture, browser: &Browser) -> Result<()> {
    let (name, full) = (test.name().to_owned(), format!("{}.{}", test.kind().plural, test.kind().group));
    let found = browser.ask(&format!("/find?kind={full}&name={name}/good"), "").await?;
    let place = found.lines().find_map(|line| line.strip_prefix("location: ")).context("no location")?;
    let parent = browser.request(place, "").await?;
    let calls = browser.follow(&parent, "/calls?").await?;
    ensure!(calls.starts_with("HTTP/1.1 200") && calls.contains("no reconcile yet"), "{calls}");
    let page = calls_page(test, "CompositeController", test.kind(), "good");
    for number in ["1", "2"] {
        test.parents().merge("good", &json!({ "spec": { "number": number } })).await?;
        let request = format!("&quot;number&quot;: &quot;{number}&quot;");
        let shown = browser.until_shown(&page, &[&request, "&quot;children&quot;: []"]).await?;
        each_link_has_an_id(&shown)?;
    }
    let shown = browser.until_shown(&page, &["Changed since the call before"]).await?;
    for (sign, number) in [("- ", "1"), ("+ ", "2")] {
        let line = format!("&quot;number&quot;: &quot;{number}&quot;");
        ensure!(shown.lines().any(|it| it.contains(sign) && it.contains(&line)), "{sign}{line}: {shown}");
    }
    Ok(())
}

/// The page of the calls about a parent of the test's controller.
pub(crate) fn calls_page(test: &Fixture, kind: &str, parents: &Kind, parent: &str) -> String {
    let object = query(test, parents, parent);
    format!("/calls?controllerKind={kind}&controller={}&{object}", test.name())
}

/// The page of an object in the test's namespace.
pub(crate) fn object_page(test: &Fixture, kind: &Kind, name: &str) -> String {
    format!("/object?{}", query(test, kind, name))
}

fn query(test: &Fixture, Kind { group, kind, plural, .. }: &Kind, name: &str) -> String {
    format!("group={group}&resource={plural}&kind={kind}&namespace={}&name={name}", test.name())
}

async fn strangers_are_shown_nothing(browser: &Browser) -> Result<()> {
    let Browser { address, opened, prefix, .. } = browser;
    let of = |prefix: &str, cookie: &str| {
        let (address, opened) = (address.clone(), opened.clone());
        Browser { address, opened, prefix: prefix.to_owned(), cookie: cookie.to_owned() }
    };
    for (browser, headers) in [
        (&of(prefix, ""), ""),
        (&of("", &browser.cookie), ""),
        (browser, "Origin: https://evil.example\r\n"),
        (browser, "Sec-Fetch-Site: cross-site\r\n"),
    ] {
        let refused = browser.ask("/", headers).await?;
        ensure!(refused.starts_with("HTTP/1.1 403") && !refused.contains("ParentsFailing"), "{refused}");
    }
    let spent = of(prefix, "").request(opened, "").await?;
    let says = spent.contains("has been used") && spent.contains("start `metahook dashboard` again");
    ensure!(spent.starts_with("HTTP/1.1 403") && says, "{spent}");
    ensure!(!spent.contains("set-cookie") && !spent.contains(prefix.as_str()), "{spent}");
    Ok(())
}

/// The script gives the focus back by the id, after it replaced a part of the page.
fn each_link_has_an_id(page: &str) -> Result<()> {
    let (_, live) = page.split_once("data-live").context("no part that changes")?;
    for tag in ["<a ", "<summary"] {
        for link in live.split(tag).skip(1) {
            let link = link.split('>').next().unwrap_or_default();
            ensure!(link.contains("id=\""), "{tag}{link}");
        }
    }
    Ok(())
}
