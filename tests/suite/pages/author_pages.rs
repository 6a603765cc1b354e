//! The commands that the pages for authors show: a new hook, tried without a cluster, stored, and applied to one. On a control
//! plane of its own, as names of the pages are cluster-wide.

use std::fs;

use acceptance::fixture::Fixture;
use anyhow::{Context, Result, ensure};

use crate::pages::{Block, Desk, blocks, is_hosted_here};

/// The pages, each with the command that makes the hook that it is about; else it is the one before.
pub(crate) const PAGES: [(&str, Option<&str>); 6] = [
    ("authoring.md", None),
    ("commands.md", None),
    ("modules.md", None),
    ("dev.md", None),
    ("python.md", Some("metahook new demo --lang python && cd demo")),
    ("javascript.md", Some("metahook new demo --lang javascript && cd demo")),
];

const NOT_HERE: [(&str, &str); 7] = [
    ("rustup target add", "the target is there, and rustup would ask the network"),
    ("docker cp", "it copies what lies beside the program that runs here"),
    ("kopium", "it is no part of metahook"),
    ("zsh", "it needs a zsh"),
    ("| man -l", "it needs a pager for people"),
    ("cargo run", "it builds the program that runs here"),
    ("metahook dev", "it goes on until Ctrl-C"),
];

const REQUEST: &str = "parent: {apiVersion: example.com/v1, kind: Demo, metadata: {name: a}, spec: {who: Ann}}\nchildren: {ConfigMap.v1: {}}\n";

pub(crate) async fn the_commands_of_the_pages_for_authors(test: &mut Fixture) -> Result<()> {
    let mut day = Fixture::on_its_own_plane(test.name()).await?;
    let typed = types_all(&mut day).await;
    day.end(typed).await
}

async fn types_all(test: &mut Fixture) -> Result<()> {
    test.serve()?;
    for name in ["demo", "hello"] {
        test.plane().kubectl().run(&["create", "namespace", name]).await?;
    }
    let mut desk = Desk::new(test.plane(), &NOT_HERE)?;
    for folder in [".config/fish/completions", ".local/share/man/man1"] {
        fs::create_dir_all(desk.home.join(folder))?;
    }
    desk.words.extend([
        ("hello-hook.wasm", "demo.wasm".to_owned()),
        ("hello.wasm", "hook.wasm".to_owned()),
        ("hello.yaml", "example.yaml".to_owned()),
        ("parent.yaml", "example.yaml".to_owned()),
    ]);
    let mut typed = 0;
    for (page, begins) in PAGES {
        let begins = begins.map(|command| vec![command.to_owned()]);
        for block in begins.into_iter().chain(blocks(page)?) {
            typed += on_page(test, &mut desk, &block).await.with_context(|| page.to_owned())?;
        }
        // Other pages have others by these names.
        let map = ["delete", "configmap", "--namespace=hello", "hello-hook", "--ignore-not-found"];
        let controller = ["delete", "compositecontroller", "demo", "--ignore-not-found"];
        for clear in [&map[..], &controller] {
            test.plane().kubectl().run(clear).await?;
        }
    }
    ensure!(typed >= 30, "only {typed} commands were typed");
    desk.not_here.are_all_needed()
}

/// A block that makes a hook begins in an empty folder; those after it are about the last hook that was made.
async fn on_page(test: &Fixture, desk: &mut Desk, block: &Block) -> Result<usize> {
    if !block.iter().any(|command| command.starts_with("metahook new")) {
        return Ok(desk.types(block).await?.len());
    }
    desk.folder = desk.home.join(format!("new-{}", fs::read_dir(&desk.home)?.count()));
    fs::create_dir(&desk.folder)?;
    let typed = desk.types(block).await?.len();
    desk.folder.push("demo");
    let files = ["controller.yaml", "src/main.rs"].map(|file| desk.folder.join(file));
    if files[1].exists() {
        fs::copy(desk.folder.join("target/wasm32-wasip1/release/demo.wasm"), desk.folder.join("hook.wasm"))?;
        fs::write(desk.folder.join("request.yaml"), REQUEST)?;
    }
    is_hosted_here(test, &files[0])?;
    Ok(typed)
}
