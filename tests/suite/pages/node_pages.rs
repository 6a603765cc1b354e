//! The commands that the pages on operation show about the server's Pod, typed where it runs on a node and hosts the tutorial.

use acceptance::control_plane::ControlPlane;
use acceptance::free_port::free_port;
use anyhow::{Context, Result, ensure};

use crate::pages::operation_pages::PAGES;
use crate::pages::{Block, Desk, Parts, blocks};
use crate::tutorial::types;

const REASON: &str = "the server's Pod runs on a node alone";

/// Parts of the commands that are typed here. All others of the same pages are typed on a control plane without a node.
pub(crate) const ON_A_NODE: [(&str, &str); 7] = [
    ("metahook status hello-controller", REASON),
    ("metahook status NAME", REASON),
    ("metahook explain", REASON),
    ("logs ", REASON),
    ("rollout status", REASON),
    ("port-forward", REASON),
    ("/pods/metacontroller-0", REASON),
];

/// One whose children the server may not list.
const BLIND: &str = r#"{"apiVersion":"metacontroller.k8s.io/v1alpha1","kind":"CompositeController","metadata":{"name":"blind"},
"spec":{"generateSelector":true,"parentResource":{"apiVersion":"example.com/v1","resource":"helloworlds"},
"childResources":[{"apiVersion":"apps/v1","resource":"deployments"}],
"hooks":{"sync":{"wasm":{"configMap":{"namespace":"hello","name":"hello-hook"}}}}}}"#;

/// Types them; what `metahook explain` printed.
pub(crate) async fn the_commands_about_the_servers_pod(plane: &ControlPlane) -> Result<Vec<String>> {
    let mut desk = Desk::new(plane, &[])?;
    // A log is written a little later.
    desk.is_patient = true;
    let port = free_port()?;
    desk.words.extend([
        ("KIND NAME", "helloworlds hello/your-name".to_owned()),
        ("status NAME", "status hello-controller".to_owned()),
        ("hellos demo/hello", "helloworlds hello/your-name".to_owned()),
        ("pod demo/hello-0", "pod hello/your-name".to_owned()),
        ("pod/POD 9999", format!("pod/metacontroller-0 {port}:9999")),
        ("localhost:9999", format!("localhost:{port}")),
    ]);
    let kubectl = plane.kubectl();
    let blind = plane.scratch().join("blind.json");
    std::fs::write(&blind, BLIND)?;
    types(&kubectl, &format!("apply -f {}", blind.display())).await?;
    let (mut here, mut explained) = (Parts::new(&ON_A_NODE), Vec::new());
    for page in PAGES {
        for block in blocks(page)? {
            let lines: Block = block.into_iter().filter(|line| here.are_in(line)).collect();
            let printed = desk.types(&lines).await.with_context(|| page.to_owned())?;
            let explains = lines.iter().zip(printed).filter(|(line, _)| line.starts_with("metahook explain"));
            explained.extend(explains.map(|(_, printed)| printed));
        }
    }
    types(&kubectl, "delete cc blind").await?;
    ensure!(explained.len() == 6, "{explained:?}");
    here.are_all_needed()?;
    Ok(explained)
}
