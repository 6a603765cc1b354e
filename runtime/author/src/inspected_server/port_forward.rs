//! Port forwards: `kubectl` forwards a port of this machine to the Pod of a server.

use std::process::Stdio;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use metahook_server::sync::lock;
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, ChildStderr, ChildStdout, Command};

use super::{Inspector, PORT, ServerError};

const FLAG: &str = "inspection-address";

/// `kubectl` may run a program that logs the user in, and speak to a distant API server.
const FORWARD_TIMEOUT: Duration = Duration::from_secs(30);

/// The stderr of a `kubectl` that was killed ends at once; a program that it started may keep it open.
const STDERR_TIMEOUT: Duration = Duration::from_secs(1);

/// Bytes of a `kubectl`'s stderr that are kept.
const MAX_STDERR: usize = 4096;

/// The Pod of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ServerPod {
    pub(crate) uid: String,
    pub(crate) name: String,
    /// The name of its ServiceAccount.
    pub(super) account: String,
    /// The port of its `--inspection-address`.
    port: u16,
}

/// A `kubectl` that forwards a port. Two tasks read its output as long as it runs: it ends at the first write that no process reads.
pub(super) struct PortForward {
    pub(super) address: String,
    _child: Child,
    stderr: Arc<Mutex<String>>,
}

impl ServerPod {
    pub(crate) fn of(pod: &Value) -> Self {
        let text = |path: &str| pod.pointer(path).and_then(Value::as_str);
        Self {
            uid: text("/metadata/uid").unwrap_or_default().to_owned(),
            name: text("/metadata/name").unwrap_or_default().to_owned(),
            account: text("/spec/serviceAccountName").unwrap_or("default").to_owned(),
            port: port(pod),
        }
    }
}

impl PortForward {
    /// Starts `kubectl`, and waits for the address that it prints.
    pub(super) async fn start(inspector: &Inspector, pod: &ServerPod) -> Result<Self, ServerError> {
        let failed = |why: String| ServerError::Forward { pod: pod.name.clone(), why };
        let mut child = command(inspector, pod).spawn().map_err(|error| failed(error.to_string()))?;
        let (Some(out), Some(errors)) = (child.stdout.take(), child.stderr.take()) else {
            return Err(failed("it has no output".to_owned()));
        };
        let stderr = Arc::new(Mutex::new(String::new()));
        let reader = tokio::spawn(read_stderr(BufReader::new(errors), Arc::clone(&stderr)));
        let mut out = BufReader::new(out);
        let Some(address) = tokio::time::timeout(FORWARD_TIMEOUT, first_address(&mut out)).await.transpose()
        else {
            child.start_kill().unwrap_or_default();
            drop(tokio::time::timeout(STDERR_TIMEOUT, reader).await);
            return Err(failed(lock(&stderr).trim().to_owned()));
        };
        let address = address.map_err(|_elapsed| {
            failed(format!("it prints no address within {} s", FORWARD_TIMEOUT.as_secs()))
        })?;
        let mut rest = out.lines();
        tokio::spawn(async move { while let Ok(Some(_)) = rest.next_line().await {} });
        Ok(Self { address, _child: child, stderr })
    }

    pub(super) fn stderr(&self) -> String {
        lock(&self.stderr).trim().to_owned()
    }
}

fn command(inspector: &Inspector, pod: &ServerPod) -> Command {
    let mut command = Command::new(&inspector.kubectl);
    command.args(["port-forward", "--address=127.0.0.1", "--namespace", &inspector.server_namespace]);
    if let Some(kubeconfig) = &inspector.kubeconfig {
        command.arg("--kubeconfig").arg(kubeconfig);
    }
    if let Some(context) = &inspector.context {
        command.args(["--context", context]);
    }
    command.arg(format!("pod/{}", pod.name)).arg(format!(":{}", pod.port));
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    command
}

/// The address of a line such as `Forwarding from 127.0.0.1:43211 -> 9797`; `None` where the first line has none.
async fn first_address(out: &mut BufReader<ChildStdout>) -> Option<String> {
    let mut line = String::new();
    out.read_line(&mut line).await.ok()?;
    line.split_whitespace().find(|word| word.starts_with("127.0.0.1:")).map(str::to_owned)
}

/// Keeps the first lines of a program's stderr, and reads the others.
async fn read_stderr(mut errors: BufReader<ChildStderr>, kept: Arc<Mutex<String>>) {
    let mut line = String::new();
    while errors.read_line(&mut line).await.is_ok_and(|bytes| bytes > 0) {
        let mut kept = lock(&kept);
        if kept.len() < MAX_STDERR {
            kept.push_str(&line);
        }
        drop(kept);
        line.clear();
    }
}

/// The arguments of a Pod's programs, without the hyphens of flags. A cluster may add containers before that of the server.
fn words(pod: &Value) -> Vec<&str> {
    let containers = pod.pointer("/spec/containers").and_then(Value::as_array).into_iter().flatten();
    let lists = containers.flat_map(|container| ["args", "command"].map(|list| container.get(list)));
    let words = lists.flatten().filter_map(Value::as_array).flatten().filter_map(Value::as_str);
    words.map(|word| word.trim_start_matches('-')).collect()
}

/// Whether the arguments of a Pod have the server's flag.
pub(super) fn is_inspected(pod: &Value) -> bool {
    words(pod)
        .iter()
        .filter_map(|word| word.strip_prefix(FLAG))
        .any(|rest| rest.is_empty() || rest.starts_with('='))
}

/// The port of a Pod's `--inspection-address`.
fn port(pod: &Value) -> u16 {
    let words = words(pod);
    let apart = words.iter().zip(words.iter().skip(1)).filter(|(flag, _)| **flag == FLAG);
    let given = words.iter().filter_map(|word| word.strip_prefix(FLAG)?.strip_prefix('='));
    let addresses = given.chain(apart.map(|(_, address)| *address));
    addresses.filter_map(|address| address.rsplit(':').next()?.parse().ok()).next_back().unwrap_or(PORT)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_port_of_a_pod_is_that_of_its_arguments() {
        let pod = |args: Value| json!({ "spec": { "containers": [{ "args": args }] } });
        assert_eq!(port(&pod(json!(["serve", "--inspection-address=127.0.0.1:7"]))), 7);
        assert_eq!(port(&pod(json!(["-inspection-address", "localhost:8"]))), 8);
        assert_eq!(port(&pod(json!(["serve"]))), PORT);
        let inspected =
            [json!(["serve", "--inspection-address=127.0.0.1:7"]), json!(["-inspection-address", "a:8"])];
        assert!(inspected.into_iter().all(|args| is_inspected(&pod(args))));
        let beside = json!({ "spec": { "containers": [{ "args": ["proxy"] }, { "args": ["--inspection-address=a:7"] }] } });
        assert!(is_inspected(&beside) && port(&beside) == 7);
        let others = [json!(["serve"]), json!(["--inspection-addresses=a"]), json!(["a=inspection-address"])];
        assert!(!others.into_iter().any(|args| is_inspected(&pod(args))));
    }
}
