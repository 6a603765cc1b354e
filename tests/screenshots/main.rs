//! Pictures of the book: pages of `metahook dashboard` over a real control plane, in headless Chromium. `cargo xtask screenshots`
//! builds and runs it.
//!
//! The pages are taken in three sizes, light and dark, of a cluster without controllers, of one with some, and of one with twenty
//! thousand parents. Those that the book shows are copied into it.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "commands print")]
#![allow(clippy::indexing_slicing, reason = "only JSON is indexed: what is not there is null")]

mod browser;
mod cluster;
mod session;

use std::path::PathBuf;

use acceptance::paths;
use anyhow::{Context, Result};
use clap::Parser;

use browser::Browser;
use cluster::Cluster;

#[derive(Parser)]
struct Options {
    /// Parents of the largest controller
    #[arg(long, default_value_t = 20_000)]
    parents: usize,
    /// Folder of all pictures
    #[arg(long, default_value = "target/screenshots")]
    out: PathBuf,
}

/// The pictures of the book: the name there, and which picture it is.
const IN_BOOK: [(&str, &str); 4] = [
    ("dashboard-controllers.png", "some-controllers-wide-light.png"),
    ("dashboard-controller.png", "some-controller-wide-light.png"),
    ("dashboard-object.png", "some-object-wide-light.png"),
    ("dashboard-calls.png", "some-calls-wide-light.png"),
];

/// The page of the calls about a parent.
const CALLS: &str = "/calls?controllerKind=CompositeController&controller=web-apps&group=shop.example.com&resource=webapps&kind=WebApp&namespace=shop&name=cart";

#[tokio::main]
async fn main() -> Result<()> {
    let options = Options::parse();
    let browser = Browser::find(&options.out)?;
    let mut cluster = Cluster::start().await?;
    browser.takes(&cluster.session().await?, &[("empty-controllers", "/")]).await?;
    cluster.make_some().await?;
    let some = [
        ("some-controllers", "/"),
        ("some-controller", "/controllers/CompositeController/web-apps"),
        ("some-object", "/find?kind=webapps&name=shop/cart"),
        ("some-child", "/find?kind=configmaps&name=shop/cart-webapp"),
        ("some-failing", "/controllers/CompositeController/invoices"),
        ("no-such-page", "/controllers/CompositeController/none"),
    ];
    let session = cluster.session().await?;
    browser.takes(&session, &some).await?;
    // Servers record the calls that come while the page is open.
    session.until_shown(CALLS, "There was no reconcile yet").await?;
    cluster.change_cart().await?;
    session.until_shown(CALLS, "Changed since the call before").await?;
    browser.takes(&session, &[("some-calls", CALLS)]).await?;
    drop(session);
    cluster.make_many(options.parents).await?;
    let many = [
        ("many-controllers", "/"),
        ("many-controller", "/controllers/CompositeController/sensors"),
        ("many-last", "/controllers/CompositeController/sensors?skip=19900"),
    ];
    browser.takes(&cluster.session().await?, &many).await?;
    let book = paths::workspace().join("runtime/docs/src/images");
    std::fs::create_dir_all(&book)?;
    for (name, picture) in IN_BOOK {
        let picture = options.out.join(picture);
        std::fs::copy(&picture, book.join(name)).with_context(|| picture.display().to_string())?;
    }
    println!("the pictures are in {}, those of the book in {}", options.out.display(), book.display());
    Ok(())
}
