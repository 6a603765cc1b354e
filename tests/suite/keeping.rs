//! Keeping of versions: without the right to, from one leader to the next, of components, and out of a repository.

use acceptance::api::{CONFIG_MAP, Kind, POD};
use acceptance::fixture::Fixture;
use acceptance::free_port::free_address;
use acceptance::objects::{condition, text};
use acceptance::rights::until_allowed;
use anyhow::{Result, ensure};
use serde_json::{Value, json};

use crate::kept::{
    command, forget_conditions, goes_on, hosted, hosted_with, is_kept_of, manages, module, runs,
    runs_and_is_kept, starts_anew, stores_no_module,
};
use crate::leader_election::{elect, until_leads, until_stands_by, until_warm};
use crate::wasm;

/// What `Ready` says of a version that only the server's memory holds.
const LOST: &str = "which is not kept and is lost when the server restarts, goes on being called";

fn says(controller: &Value) -> &str {
    condition(controller, "Ready").map_or("", |ready| text(ready, "/message"))
}

/// Of `ConfigMap`s in its namespace the server may do this alone from now on.
async fn may(test: &Fixture, verbs: &[&str]) -> Result<()> {
    let place = test.within(&Kind::new("rbac.authorization.k8s.io", "v1", "Role", "roles"));
    let mut rules = place.get(test.name()).await?["rules"].clone();
    for rule in rules.as_array_mut().into_iter().flatten() {
        if rule["resources"] == json!(["configmaps"]) {
            rule["verbs"] = json!(verbs);
        }
    }
    place.merge(test.name(), &json!({ "rules": rules })).await?;
    let asked = json!({ "verb": "create", "resource": "configmaps", "namespace": test.name() });
    until_allowed(test, &asked, verbs.contains(&"create")).await
}

pub(crate) async fn without_the_right_a_hook_runs_and_ready_says_that_it_is_not_kept(
    test: &mut Fixture,
) -> Result<()> {
    test.bear_refusals();
    may(test, &["get", "list"]).await?;
    // The right to make children that are ConfigMaps would be one in the server's namespace, too.
    let controller = hosted_with(test, &module(1)?, &POD).await?;
    runs(test, 1).await?;
    let warns = |log: &str| {
        log.contains("a version of a module is not kept")
            && log.contains("let the server get, list, create, patch and delete ConfigMaps in its namespace")
    };
    test.server().until_log("a warning", warns).await?;
    stores_no_module(test).await?;
    let is_lost = |cc: &Value| goes_on(cc) && says(cc).contains(LOST);
    test.until_controller("not kept", is_lost).await?;
    manages(test, "again", 1).await?;

    may(test, &["get", "list", "create", "patch", "delete"]).await?;
    is_kept_of(test, &module(1)?, &controller).await?;
    let cc = test.until_controller("kept", |cc| goes_on(cc) && !says(cc).contains(LOST)).await?;
    ensure!(says(&cc).contains("goes on being called"), "{}", says(&cc));
    Ok(())
}

/// The next leader has it in its memory where it stood by, and else as it is kept.
pub(crate) async fn the_last_good_version_goes_from_one_leader_to_the_next(test: &mut Fixture) -> Result<()> {
    let mut second = elect(test);
    let metrics = free_address()?;
    second.flag(&format!("--metrics-address={metrics}"));
    let controller = hosted(test).await?;
    until_leads(test.server()).await?;
    runs_and_is_kept(test, 2, &controller).await?;
    second.start()?;
    until_stands_by(&second).await?;
    until_warm(metrics).await?;
    stores_no_module(test).await?;
    test.until_controller("a refused module", goes_on).await?;
    test.server().kill().await?;
    forget_conditions(test).await?;
    until_leads(&second).await?;
    test.until_controller("the second leader goes on", goes_on).await?;
    manages(test, "second", 2).await?;

    second.kill().await?;
    starts_anew(test).await?;
    let cc = test.until_controller("a leader that starts goes on", goes_on).await?;
    ensure!(says(&cc).contains(", which was accepted at 20"), "{}", says(&cc));
    manages(test, "third", 2).await
}

pub(crate) async fn a_component_is_kept(test: &mut Fixture) -> Result<()> {
    let component = wasm::component_of(&module(1)?)?;
    let controller = hosted_with(test, &component, &CONFIG_MAP).await?;
    runs(test, 1).await?;
    is_kept_of(test, &component, &controller).await?;
    test.server().stop().await?;
    stores_no_module(test).await?;
    starts_anew(test).await?;
    test.until_controller("it goes on after the restart", goes_on).await?;
    manages(test, "again", 1).await
}

pub(crate) async fn what_rollback_prints_puts_a_version_back_when_it_is_applied(
    test: &mut Fixture,
) -> Result<()> {
    let controller = hosted(test).await?;
    is_kept_of(test, &module(1)?, &controller).await?;
    runs_and_is_kept(test, 2, &controller).await?;
    let name = test.name().to_owned();
    let first = crate::modules::digest(&module(1)?);
    let yaml = command(test, &["rollback", &name, "--to", &first, "--output", "yaml"]).await?;
    ensure!(yaml.starts_with("---") && yaml.contains("kind: ConfigMap"), "{yaml}");
    manages(test, "still", 2).await?;
    let file = test.plane().scratch().join(format!("{name}-rollback.yaml"));
    std::fs::write(&file, yaml)?;
    test.plane().kubectl().run(&["apply", "-f", &file.display().to_string()]).await?;
    runs(test, 1).await?;
    let is_back = |cc: &Value| text(cc, "/status/hooks/sync/digest") == format!("sha256:{first}");
    test.until_controller("the status names what runs", is_back).await.map(drop)
}
