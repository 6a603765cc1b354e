//! Services on a node: Pods find them by name and reach each at one Pod, as with a cluster's DNS and kube-proxy.

use std::fs;

use anyhow::{Context, Result};
use serde_json::Value;

use crate::api::{Objects, POD, SERVICE};
use crate::control_plane::ControlPlane;
use crate::objects::text;
use crate::wait::{PATIENCE, until};

/// The address of the cluster's DNS, as Pods know it.
pub(crate) const DNS: &str = "10.0.0.10";

pub(crate) const DOMAIN: &str = "cluster.local";

/// Routes all Services of a namespace, each to the Pod of its name, which is to be ready.
pub async fn route(plane: &mut ControlPlane, namespace: &str) -> Result<()> {
    let client = plane.client().await?;
    let pods = Objects::within(&client, &POD, namespace);
    let (mut flags, mut addresses) = (vec![format!("{DNS}:53")], vec![DNS.to_owned()]);
    for service in Objects::within(&client, &SERVICE, namespace).list().await? {
        let name = text(&service, "/metadata/name");
        let pod = pods.until(name, "ready", is_ready).await?;
        let (address, port) = (text(&service, "/spec/clusterIP"), &service["spec"]["ports"][0]["port"]);
        let pod = text(&pod, "/status/podIP");
        flags.push(format!("{name}.{namespace}.svc.{DOMAIN}={address}:{port}={pod}:{port}"));
        addresses.push(address.to_owned());
    }
    for address in addresses {
        plane.on_node(&["ip", "address", "add", &format!("{address}/32"), "dev", "node0"]).await?;
    }
    let program = plane.parts().context("there is no node")?.program("services");
    plane.run("services", &program, &flags)?;
    let log = plane.log("services");
    until("the DNS", PATIENCE, || async {
        let printed = fs::read_to_string(&log).unwrap_or_default();
        Ok(if printed.contains("ready") { Ok(()) } else { Err(printed) })
    })
    .await
}

fn is_ready(pod: &Value) -> bool {
    pod["status"]["conditions"]
        .as_array()
        .is_some_and(|all| all.iter().any(|one| one["type"] == "Ready" && one["status"] == "True"))
}
