//! The tutorials in Python and JavaScript, by the files and commands that their pages show.

use std::collections::BTreeMap;
use std::path::Path;

use acceptance::fixture::Fixture;
use acceptance::paths;
use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use crate::pages::{Desk, blocks, is_hosted_here};
use crate::scaffold::runs;
use crate::tutorial::{prints, types};

/// The files of a page: each block of YAML, Python or JavaScript belongs to the name that a line before it begins with.
fn files(page: &str) -> Result<BTreeMap<String, String>> {
    let (mut all, mut name, mut block) = (BTreeMap::new(), None, None::<String>);
    for line in page.lines() {
        match &mut block {
            Some(text) if line.starts_with("```") => {
                all.insert(name.clone().context("a block without a name")?, std::mem::take(text));
                block = None;
            }
            Some(text) => {
                text.push_str(line);
                text.push('\n');
            }
            None if ["```yaml", "```python", "```js"].contains(&line) => block = Some(String::new()),
            None => {
                let begins = line.strip_prefix('`').and_then(|rest| rest.split_once('`'));
                name = begins.map(|(file, _)| file.to_owned()).or(name);
            }
        }
    }
    Ok(all)
}

/// Each with the file of its hook.
pub(crate) const PAGES: [(&str, &str); 2] =
    [("tutorial-python.md", "hook.py"), ("tutorial-javascript.md", "hook.js")];

/// Parts of the pages' commands that are not typed, each with the reason.
const NOT_TYPED: [(&str, &str); 4] = [
    ("cargo build", "the program is built"),
    ("cargo xtask", "the interpreters are built"),
    ("export ", "the program and the interpreters are found"),
    ("metahook serve", "the test's server runs"),
];

/// Types the commands of the page. Its files are written once there is a folder for them; the controller gets the label by which
/// this test's server hosts it.
async fn tutorial(test: &mut Fixture, page: &str, hook: &str) -> Result<()> {
    let path = paths::workspace().join("runtime/docs/src").join(page);
    let written = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    let files = files(&written)?;
    ensure!(files.len() == 5, "{:?}", files.keys());
    let mut desk = Desk::new(test.plane(), &NOT_TYPED)?;
    let mut said = String::new();
    for block in blocks(page)? {
        let has = |part: &str| block.iter().any(|command| command.contains(part));
        if has("tests/running") {
            writes(&files, &desk.folder, true)?;
        }
        if has("metahook delete") {
            changes(test, &desk.folder, hook).await?;
        }
        said += &desk.types(&block).await?.concat();
        if has("metahook new") {
            desk.folder.push("website");
            writes(&files, &desk.folder, false)?;
            is_hosted_here(test, &desk.folder.join("controller.yaml"))?;
        }
    }
    ensure!(said.contains("2 passed, 0 failed") && !said.contains("FAIL"), "{said}");
    ensure!(said.contains("CompositeController website is ready"), "{said}");
    let plan = std::fs::read_to_string(desk.folder.join("tests/running/plan.yaml"))?;
    ensure!(plan.contains("ready: 2"), "{plan}");
    desk.not_here.are_all_needed()
}

/// The files of the case `running`, or all others, which the scaffold has.
fn writes(files: &BTreeMap<String, String>, folder: &Path, running: bool) -> Result<()> {
    for (name, text) in files.iter().filter(|(name, _)| name.starts_with("tests/running/") == running) {
        let file = folder.join(name);
        ensure!(running || file.is_file(), "{name} is no file of the scaffold");
        std::fs::create_dir_all(file.parent().context("a folder")?)?;
        std::fs::write(file, text)?;
    }
    Ok(())
}

/// What the page's commands made and changed, what the text says of it, and a mistake in the hook.
async fn changes(test: &Fixture, folder: &Path, hook: &str) -> Result<()> {
    let kubeconfig = test.plane().kubeconfig().display().to_string();
    let apply = ["metahook", "apply", "-f", ".", "--kubeconfig", &kubeconfig];
    let kubectl = test.plane().kubectl();
    let shown = "-n website get configmap hello -o=jsonpath={.data}";
    prints(&kubectl, shown, |data| data == r#"{"index.html":"Hello again!"}"#).await?;
    prints(&kubectl, "-n website get deployment hello -o=jsonpath={.spec.replicas}", |it| it == "2").await?;
    prints(&kubectl, "-n website get service hello -o=jsonpath={.spec.ports[0].port}", |it| it == "80")
        .await?;
    types(&kubectl, "-n website delete service hello").await?;
    prints(&kubectl, "-n website get service hello -o=name", |it| it == "service/hello").await?;

    let good = std::fs::read_to_string(folder.join(hook))?;
    std::fs::write(folder.join(hook), good.replacen('(', "((", 1))?;
    let refused = runs(folder, None, &[&apply[..], &["--timeout=1s"]].concat()).await.err();
    let refused = format!("{:#}", refused.context("a script with a mistake was accepted")?);
    ensure!(refused.contains("SyntaxError") && refused.contains(&format!("{hook}:")), "{refused}");
    ensure!(refused.contains("is not applied"), "something was written: {refused}");
    Ok(())
}

pub(crate) async fn the_hook_of_the_readme_in_python_answers_as_that_in_rust(
    test: &mut Fixture,
) -> Result<()> {
    let folder = test.plane().scratch().join("readme");
    std::fs::create_dir_all(&folder)?;
    let script = paths::workspace().join("guests/hello/python/hook.py").display().to_string();
    let module = paths::guest("hello")?.display().to_string();
    let parent = |spec: Value| json!({ "apiVersion": "example.com/v1", "kind": "HelloWorld", "metadata": { "name": "a" }, "spec": spec });
    for (spec, pods) in [(json!({ "who": "Ann" }), json!({})), (json!({}), json!({ "a": { "kind": "Pod" } }))]
    {
        let request = json!({ "parent": parent(spec), "children": { "Pod.v1": pods }, "related": {}, "finalizing": false });
        std::fs::write(folder.join("request.json"), request.to_string())?;
        let mut answers = Vec::new();
        for hook in [&script, &module] {
            let said = runs(&folder, None, &["metahook", "run", hook, "--request", "request.json"]).await?;
            answers.push(serde_json::from_str::<Value>(&said)?);
        }
        ensure!(answers[0] == answers[1], "{answers:#?}");
    }
    Ok(())
}

/// One after the other: both pages define the same kind.
pub(crate) async fn the_pages_in_python_and_javascript_work_as_they_are(test: &mut Fixture) -> Result<()> {
    test.serve()?;
    let kubectl = test.plane().kubectl();
    for (page, hook) in PAGES {
        tutorial(test, page, hook).await.with_context(|| page.to_owned())?;
        prints(&kubectl, "get namespaces -o=name", |all| !all.contains("namespace/website")).await?;
    }
    Ok(())
}
