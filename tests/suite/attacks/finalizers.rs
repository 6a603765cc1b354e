//! Objects that could never be deleted: finalizers of ours that nothing takes off.

use acceptance::fixture::Fixture;
use acceptance::objects::Hook;
use acceptance::webhook::{Asked, Webhook};
use anyhow::{Context, Result};
use serde_json::{Value, json};

/// Levels of the spec: JSON libraries give up at some 127.
const DEPTH: usize = 200;

fn finalized(asked: &Asked) -> Value {
    json!({ "children": [], "attachments": [], "finalized": asked.path == "/finalize" })
}

/// Parents are written as they are, so that nothing has to understand their content.
pub(crate) async fn a_deep_parent_gets_its_finalizers_and_goes(test: &mut Fixture) -> Result<()> {
    let webhook = Webhook::serve(|asked| finalized(asked).into()).await?;
    let hook = |path: &str| Hook::webhook(&webhook.url(path));
    test.define_kind().await?;
    test.serve()?;
    test.host(test.controller().synced_by(hook("/sync")).finalized_by(hook("/finalize"))).await?;
    let decorator = test.decorator().decorating(test.kind(), json!({}));
    test.host_decorator(decorator.synced_by(hook("/sync")).finalized_by(hook("/finalize"))).await?;
    let spec = format!("{}0{}", r#"{"a":"#.repeat(DEPTH), "}".repeat(DEPTH));
    let parent = test.parent("deep").json().to_string().replace(r#""spec":{}"#, &format!(r#""spec":{spec}"#));
    let file = test.plane().scratch().join(format!("{}.json", test.name()));
    std::fs::write(&file, parent).context("no file for a parent")?;
    let (kubectl, namespace) = (test.plane().kubectl(), format!("--namespace={}", test.name()));
    let file = file.display().to_string();
    kubectl.run(&["create", &namespace, "-f", &file]).await?;
    let resource = format!("{}.{}/deep", test.kind().plural, test.kind().group);
    let both = r"--for=jsonpath={.metadata.finalizers[1]}";
    kubectl.run(&["wait", &namespace, both, "--timeout=20s", &resource]).await?;
    kubectl.run(&["delete", &namespace, "--timeout=20s", &resource]).await?;
    Ok(())
}
