//! Cases of children: compared, merged, written.

use acceptance::api::{DEPLOYMENT, SERVICE_ACCOUNT};
use acceptance::fixture::Fixture;
use anyhow::Result;
use serde_json::{Value, json};

use super::kit::{DYNAMIC, EACH_WAY, in_each, worlds};

fn deployment(env: &Value) -> Value {
    let container = json!({ "name": "web", "image": "web", "env": env });
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": { "name": "x" },
        "spec": {
            "replicas": 1,
            "selector": { "matchLabels": { "app": "x" } },
            "template": { "metadata": { "labels": { "app": "x" } }, "spec": { "containers": [container] } },
        },
    })
}

/// C02: `$(VAR)` expands only what stands before it.
pub(crate) async fn c02_the_order_of_env_is_that_of_the_answer(test: &mut Fixture) -> Result<()> {
    let worlds = worlds(test, &EACH_WAY, &[&DEPLOYMENT]).await?;
    let variable = |name: &str| json!({ "name": name, "value": if name == "A" { "$(B)-x" } else { "1" } });
    for names in [["A", "B"].as_slice(), &["B", "A"], &["B", "NEW", "A"], &["A"]] {
        let env: Value = names.iter().map(|name| variable(name)).collect();
        for world in &worlds {
            world.answers(test, json!([deployment(&env)])).await?;
        }
        let has_order = |child: &Value| child["spec"]["template"]["spec"]["containers"][0]["env"] == env;
        in_each(test, &worlds, &DEPLOYMENT, "x", has_order).await?;
    }
    for world in &worlds {
        world.is_quiet(test, &[&DEPLOYMENT]).await?;
    }
    Ok(())
}

/// C04: another client adds to the lists of a `ServiceAccount`, as `OpenShift` does.
pub(crate) async fn c04_a_service_account_keeps_what_another_client_added(test: &mut Fixture) -> Result<()> {
    let ways = EACH_WAY.into_iter().filter(|way| way.1 == DYNAMIC).collect::<Vec<_>>();
    let worlds = worlds(test, &ways, &[&SERVICE_ACCOUNT]).await?;
    let account = |pull: Value| {
        let mut account =
            json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": { "name": "s" } });
        account["imagePullSecrets"] = pull;
        json!([account])
    };
    let ours = json!([{ "name": "ours" }]);
    let both = json!([{ "name": "ours" }, { "name": "s-dockercfg-1" }]);
    let tokens = json!([{ "name": "tok-1" }]);
    for world in &worlds {
        world.answers(test, account(ours.clone())).await?;
    }
    in_each(test, &worlds, &SERVICE_ACCOUNT, "s", |it| it["imagePullSecrets"] == ours).await?;
    for world in &worlds {
        let accounts = world.objects(test, &SERVICE_ACCOUNT);
        accounts.merge("s", &json!({ "secrets": tokens, "imagePullSecrets": both })).await?;
        world.is_quiet(test, &[&SERVICE_ACCOUNT]).await?;
        let account = accounts.get("s").await?;
        assert_eq!((&account["imagePullSecrets"], &account["secrets"]), (&both, &tokens));
        world
            .answers(
                test,
                json!([{ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": { "name": "s" } }]),
            )
            .await?;
        let theirs = json!([{ "name": "s-dockercfg-1" }]);
        accounts
            .until("s", "theirs alone", |it| it["imagePullSecrets"] == theirs && it["secrets"] == tokens)
            .await?;
        world.is_quiet(test, &[&SERVICE_ACCOUNT]).await?;
    }
    Ok(())
}
