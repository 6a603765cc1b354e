//! The tutorials in Python and JavaScript, by the files and commands that their pages show.

use std::collections::BTreeMap;
use std::path::Path;

use acceptance::fixture::Fixture;
use acceptance::paths;
use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

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

/// The commands of a page that need no cluster, after the folder is made.
fn offline(page: &str) -> Vec<&str> {
    let offline = ["metahook render", "metahook check", "metahook test", "mkdir"];
    page.lines().filter(|line| offline.iter().any(|begin| line.starts_with(begin))).collect()
}

async fn tutorial(test: &mut Fixture, page: &str, language: &str, hook: &str) -> Result<()> {
    let page = paths::workspace().join("runtime/docs/src").join(page);
    let page = std::fs::read_to_string(&page).with_context(|| page.display().to_string())?;
    let scratch = test.plane().scratch().join(format!("tutorial-{language}"));
    std::fs::create_dir_all(&scratch)?;
    ensure!(page.contains(&format!("metahook new website --lang {language} && cd website")), "{language}");
    runs(&scratch, None, &["metahook", "new", "website", "--lang", language]).await?;
    let folder = scratch.join("website");
    std::fs::remove_dir_all(folder.join("tests"))?;
    let files = files(&page)?;
    ensure!(files.len() == 5, "{:?}", files.keys());
    std::fs::create_dir_all(folder.join("tests/running"))?;
    for (name, text) in &files {
        let is_known = folder.join(name).is_file() || name.starts_with("tests/running/");
        ensure!(is_known, "{name} is no file of the scaffold");
        std::fs::write(folder.join(name), text)?;
    }
    let mut said = String::new();
    let commands = offline(&page);
    ensure!(commands.len() == 7, "{commands:?}");
    for command in commands {
        for one in command.split(" && ") {
            said += &runs(&folder, None, &one.split(' ').collect::<Vec<_>>()).await?;
        }
    }
    ensure!(said.contains("2 passed, 0 failed") && !said.contains("FAIL"), "{said}");
    let plan = std::fs::read_to_string(folder.join("tests/running/plan.yaml"))?;
    ensure!(plan.contains("ready: 2"), "{plan}");
    on_the_cluster(test, &folder, hook).await
}

/// Step 7, a mistake in the hook, and the end. The controller gets the label by which this test's server hosts it.
async fn on_the_cluster(test: &mut Fixture, folder: &Path, hook: &str) -> Result<()> {
    let controller = std::fs::read_to_string(folder.join("controller.yaml"))?;
    let (key, value) = test
        .label()
        .split_once('=')
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .context("a label")?;
    let labelled =
        controller.replacen("metadata:\n", &format!("metadata:\n  labels: {{{key}: {value}}}\n"), 1);
    std::fs::write(folder.join("controller.yaml"), labelled)?;
    let kubeconfig = test.plane().kubeconfig().display().to_string();
    let apply = ["metahook", "apply", "-f", ".", "--kubeconfig", &kubeconfig];
    let said = runs(folder, None, &apply).await?;
    ensure!(said.contains("CompositeController website is ready"), "{said}");
    let kubectl = test.plane().kubectl();
    let shown = "-n website get configmap hello -o=jsonpath={.data}";
    prints(&kubectl, shown, |data| data == r#"{"index.html":"Hello, world!"}"#).await?;
    prints(&kubectl, "-n website get deployment hello -o=jsonpath={.spec.replicas}", |it| it == "2").await?;
    prints(&kubectl, "-n website get service hello -o=jsonpath={.spec.ports[0].port}", |it| it == "80")
        .await?;
    let patch = r#"{"spec":{"text":"Hello again!"}}"#;
    kubectl.run(&["-n", "website", "patch", "website", "hello", "--type=merge", "-p", patch]).await?;
    prints(&kubectl, shown, |data| data == r#"{"index.html":"Hello again!"}"#).await?;
    types(&kubectl, "-n website delete service hello").await?;
    prints(&kubectl, "-n website get service hello -o=name", |it| it == "service/hello").await?;

    let good = std::fs::read_to_string(folder.join(hook))?;
    std::fs::write(folder.join(hook), good.replacen('(', "((", 1))?;
    let refused = runs(folder, None, &[&apply[..], &["--timeout=1s"]].concat()).await.err();
    let refused = format!("{:#}", refused.context("a script with a mistake was accepted")?);
    ensure!(refused.contains("SyntaxError") && refused.contains(&format!("{hook}:")), "{refused}");
    ensure!(refused.contains("is not applied"), "something was written: {refused}");

    let delete = ["metahook", "delete", "-f", ".", "--crds", "--kubeconfig", &kubeconfig];
    runs(folder, None, &delete).await?;
    types(&kubectl, "delete namespace website --wait=false").await?;
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
    tutorial(test, "tutorial-python.md", "python", "hook.py").await?;
    let kubectl = test.plane().kubectl();
    prints(&kubectl, "get namespaces -o=name", |all| !all.contains("namespace/website")).await?;
    tutorial(test, "tutorial-javascript.md", "javascript", "hook.js").await
}
