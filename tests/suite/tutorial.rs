//! The tutorial with the files that users get, typed with kubectl.

use acceptance::fixture::Fixture;
use acceptance::kubectl::Kubectl;
use acceptance::paths;
use acceptance::wait::{PATIENCE, until};
use anyhow::{Result, ensure};

const POD: &str = "-n hello get pod your-name -o=jsonpath={.metadata.uid}{.spec.containers[0].command}";

/// Types a line whose words have no spaces in them.
pub(crate) async fn types(kubectl: &Kubectl, line: &str) -> Result<String> {
    kubectl.run(&line.split(' ').collect::<Vec<_>>()).await
}

/// Types a line until it prints what is wanted.
pub(crate) async fn prints(kubectl: &Kubectl, line: &str, wanted: impl Fn(&str) -> bool) -> Result<String> {
    until(line, PATIENCE, || async {
        Ok(match types(kubectl, line).await {
            Ok(printed) if wanted(&printed) => Ok(printed),
            Ok(printed) => Err(printed),
            Err(why) => Err(format!("{why:#}")),
        })
    })
    .await
}

pub(crate) async fn the_files_of_the_tutorial_work_as_they_are(test: &mut Fixture) -> Result<()> {
    let kubectl = test.plane().kubectl();
    let module = format!("--from-file=hook.wasm={}", paths::guest("hello")?.display());
    types(&kubectl, "create namespace hello").await?;
    types(&kubectl, "apply -f guests/hello/crd.yaml").await?;
    kubectl.run(&["-n", "hello", "create", "configmap", "hello-hook", &module]).await?;
    types(&kubectl, "apply -f guests/hello/controller.yaml").await?;
    let label = format!("label cc hello-controller {}", test.label());
    types(&kubectl, &label).await?; // so that this test's server hosts it
    test.serve()?;
    types(&kubectl, "-n hello apply -f guests/hello/hello.yaml").await?;
    let first = prints(&kubectl, POD, |pod| pod.ends_with(r#"["echo","Hello, Your Name!"]"#)).await?;
    let pods = "-n hello get helloworld your-name -o=jsonpath={.status.pods}";
    prints(&kubectl, pods, |pods| pods == "1").await?;

    let patch = r#"{"spec":{"who":"My Name"}}"#;
    kubectl.run(&["-n", "hello", "patch", "helloworld", "your-name", "--type=merge", "-p", patch]).await?;
    let second = prints(&kubectl, POD, |pod| pod.ends_with(r#"["echo","Hello, My Name!"]"#)).await?;
    let uid = |pod: &str| pod.split('[').next().map(str::to_owned);
    ensure!(uid(&first) != uid(&second), "the Pod was not made anew");

    types(&kubectl, "-n hello delete helloworld your-name").await?;
    prints(&kubectl, "-n hello get pods", |pods| pods.starts_with("No resources found")).await?;
    for what in ["cc/hello-controller", "namespace/hello --wait=false"] {
        types(&kubectl, &format!("delete {what}")).await?;
    }
    Ok(())
}
