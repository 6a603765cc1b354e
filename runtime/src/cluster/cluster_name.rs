//! Name of a cluster for people: the context of the kubeconfig, and the address of the API server.

use std::path::Path;

use kube::Config;
use kube::config::{KubeConfigOptions, Kubeconfig};

use crate::cluster::api_client::{ConnectError, config};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClusterName {
    /// `None`: the cluster is that of the Pod that the command runs in.
    pub context: Option<String>,
    /// The URL of the API server.
    pub server: String,
}

impl ClusterName {
    /// The cluster that a client with the same kubeconfig and context reaches.
    ///
    /// # Errors
    /// The kubeconfig cannot be read.
    pub async fn of(kubeconfig: Option<&Path>, context: Option<&str>) -> Result<Self, ConnectError> {
        let url = config(kubeconfig, context).await?.cluster_url;
        let context = match (kubeconfig, context) {
            (_, Some(context)) => Some(context.to_owned()),
            (Some(file), None) => {
                Kubeconfig::read_from(file).map_err(ConnectError::Kubeconfig)?.current_context
            }
            (None, None) => {
                let own = Config::from_kubeconfig(&KubeConfigOptions::default()).await;
                // In a Pod, the kubeconfig may be of another cluster.
                let is_own = own.is_ok_and(|own| own.cluster_url == url);
                Kubeconfig::read().ok().filter(|_| is_own).and_then(|file| file.current_context)
            }
        };
        Ok(Self { context, server: url.to_string().trim_end_matches('/').to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KUBECONFIG: &str = r#"{
        "current-context": "prod",
        "clusters": [
            { "name": "p", "cluster": { "server": "https://prod.example:6443" } },
            { "name": "t", "cluster": { "server": "https://test.example" } }
        ],
        "contexts": [
            { "name": "prod", "context": { "cluster": "p", "user": "u" } },
            { "name": "test", "context": { "cluster": "t", "user": "u" } }
        ],
        "users": [{ "name": "u", "user": {} }]
    }"#;

    #[tokio::test]
    async fn a_cluster_is_named_by_context_and_api_server() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("config");
        std::fs::write(&file, KUBECONFIG).unwrap();
        let name = |context: &str, server: &str| ClusterName {
            context: Some(context.to_owned()),
            server: server.to_owned(),
        };
        let current = ClusterName::of(Some(&file), None).await.unwrap();
        assert_eq!(current, name("prod", "https://prod.example:6443"));
        let named = ClusterName::of(Some(&file), Some("test")).await.unwrap();
        assert_eq!(named, name("test", "https://test.example"));
    }
}
