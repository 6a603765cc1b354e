//! Kubernetes objects of one kind as plain JSON: read, write, watch for what they become.

use std::sync::LazyLock;
use std::time::Duration;

use anyhow::{Context, Result};
use kube::api::{
    ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams, VersionMatch,
};
use kube::{Api, Client};
use serde_json::Value;

use crate::wait::{PATIENCE, Seen, until};

/// A kind of objects, as its address and its manifests name it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kind {
    pub group: String,
    pub version: String,
    pub kind: String,
    pub plural: String,
}

impl Kind {
    pub fn new(group: &str, version: &str, kind: &str, plural: &str) -> Self {
        let [group, version, kind, plural] = [group, version, kind, plural].map(str::to_owned);
        Self { group, version, kind, plural }
    }

    pub fn api_version(&self) -> String {
        match self.group.as_str() {
            "" => self.version.clone(),
            group => format!("{group}/{}", self.version),
        }
    }

    fn resource(&self) -> ApiResource {
        ApiResource {
            group: self.group.clone(),
            version: self.version.clone(),
            api_version: self.api_version(),
            kind: self.kind.clone(),
            plural: self.plural.clone(),
        }
    }
}

macro_rules! kinds {
    ($($name:ident = $group:literal $version:literal $kind:literal $plural:literal;)*) => {
        $(pub static $name: LazyLock<Kind> = LazyLock::new(|| Kind::new($group, $version, $kind, $plural));)*
    };
}

kinds! {
    NAMESPACE = "" "v1" "Namespace" "namespaces";
    NODE = "" "v1" "Node" "nodes";
    POD = "" "v1" "Pod" "pods";
    CONFIG_MAP = "" "v1" "ConfigMap" "configmaps";
    SECRET = "" "v1" "Secret" "secrets";
    EVENT = "" "v1" "Event" "events";
    SERVICE_ACCOUNT = "" "v1" "ServiceAccount" "serviceaccounts";
    DEPLOYMENT = "apps" "v1" "Deployment" "deployments";
    SERVICE = "" "v1" "Service" "services";
    CRD = "apiextensions.k8s.io" "v1" "CustomResourceDefinition" "customresourcedefinitions";
    CONTROLLER_REVISION = "metacontroller.k8s.io" "v1alpha1" "ControllerRevision" "controllerrevisions";
    COMPOSITE_CONTROLLER = "metacontroller.k8s.io" "v1alpha1" "CompositeController" "compositecontrollers";
    DECORATOR_CONTROLLER = "metacontroller.k8s.io" "v1alpha1" "DecoratorController" "decoratorcontrollers";
}

const NAMESPACE_PATIENCE: Duration = Duration::from_mins(5);

/// The objects of one kind, in one namespace or in none.
#[derive(Debug, Clone)]
pub struct Objects {
    api: Api<DynamicObject>,
    place: String,
}

impl Objects {
    pub fn within(client: &Client, kind: &Kind, namespace: &str) -> Self {
        let api = Api::namespaced_with(client.clone(), namespace, &kind.resource());
        Self { api, place: format!("{}/{namespace}", kind.plural) }
    }

    /// Objects of a kind that knows no namespaces.
    pub fn cluster_wide(client: &Client, kind: &Kind) -> Self {
        Self { api: Api::all_with(client.clone(), &kind.resource()), place: kind.plural.clone() }
    }

    pub async fn create(&self, object: Value) -> Result<Value> {
        self.created(object, None).await
    }

    /// As a field manager of this name.
    pub async fn create_as(&self, manager: &str, object: Value) -> Result<Value> {
        self.created(object, Some(manager.to_owned())).await
    }

    async fn created(&self, object: Value, field_manager: Option<String>) -> Result<Value> {
        let object: DynamicObject = serde_json::from_value(object).context("not a Kubernetes object")?;
        let name = object.metadata.name.clone().unwrap_or_default();
        let created = self.api.create(&PostParams { field_manager, ..PostParams::default() }, &object).await;
        plain(&created.with_context(|| format!("cannot create {}/{name}", self.place))?)
    }

    pub async fn find(&self, name: &str) -> Result<Option<Value>> {
        let found =
            self.api.get_opt(name).await.with_context(|| format!("cannot get {}/{name}", self.place))?;
        found.as_ref().map(plain).transpose()
    }

    pub async fn get(&self, name: &str) -> Result<Value> {
        self.find(name).await?.with_context(|| format!("there is no {}/{name}", self.place))
    }

    pub async fn list(&self) -> Result<Vec<Value>> {
        self.listed(&ListParams::default()).await
    }

    /// Objects that a field selector picks, such as `involvedObject.name=a`.
    pub async fn list_where(&self, fields: &str) -> Result<Vec<Value>> {
        self.listed(&ListParams::default().fields(fields)).await
    }

    /// Objects that there were when another object was written as it is here.
    pub async fn list_when(&self, written: &Value) -> Result<Vec<Value>> {
        let version =
            written["metadata"]["resourceVersion"].as_str().context("an object without a version")?;
        self.listed(&ListParams::default().at(version).matching(VersionMatch::Exact)).await
    }

    /// The API server asks to come again (429) until its cache of a new kind is filled. Clients in Go wait for it, too.
    async fn listed(&self, by: &ListParams) -> Result<Vec<Value>> {
        let what = format!("a list of {}", self.place);
        let list = until(&what, PATIENCE, async || match self.api.list(by).await {
            Err(kube::Error::Api(status)) if status.code == 429 => Ok(Err(status.message)),
            answer => answer.map(Ok).with_context(|| format!("cannot list {}", self.place)),
        });
        list.await?.items.iter().map(plain).collect()
    }

    /// Changes what `patch` names (a JSON merge patch).
    pub async fn merge(&self, name: &str, patch: &Value) -> Result<Value> {
        let patched = self.api.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await;
        plain(&patched.with_context(|| format!("cannot patch {}/{name}", self.place))?)
    }

    /// Like [`Self::merge`], as the field manager of this name.
    pub async fn merge_as(&self, manager: &str, name: &str, patch: &Value) -> Result<Value> {
        let params = PatchParams { field_manager: Some(manager.to_owned()), ..PatchParams::default() };
        let patched = self.api.patch(name, &params, &Patch::Merge(patch)).await;
        plain(&patched.with_context(|| format!("cannot patch {}/{name}", self.place))?)
    }

    /// Changes what `patch` names in the status alone.
    pub async fn merge_status(&self, name: &str, patch: &Value) -> Result<Value> {
        let patched = self.api.patch_status(name, &PatchParams::default(), &Patch::Merge(patch)).await;
        plain(&patched.with_context(|| format!("cannot patch the status of {}/{name}", self.place))?)
    }

    /// Asks for the deletion; an object that is gone already is no error.
    pub async fn delete(&self, name: &str) -> Result<()> {
        self.delete_with(name, &DeleteParams::background()).await
    }

    /// Asks for the deletion after that of all that the object owns.
    pub async fn delete_in_foreground(&self, name: &str) -> Result<()> {
        self.delete_with(name, &DeleteParams::foreground()).await
    }

    async fn delete_with(&self, name: &str, how: &DeleteParams) -> Result<()> {
        match self.api.delete(name, how).await {
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
            answer => answer.map(drop).with_context(|| format!("cannot delete {}/{name}", self.place)),
        }
    }

    /// Waits until the object is as `is` wants it.
    pub async fn until(&self, name: &str, what: &str, is: impl Fn(&Value) -> bool) -> Result<Value> {
        let what = format!("{}/{name}: {what}", self.place);
        until(&what, PATIENCE, || async {
            Ok(match self.find(name).await {
                Ok(Some(object)) if is(&object) => Ok(object),
                Ok(Some(object)) => Err(object.to_string()),
                Ok(None) => Err("no such object".to_owned()),
                Err(why) => Err(format!("{why:#}")),
            })
        })
        .await
    }

    /// Waits until there is no such object.
    pub async fn until_gone(&self, name: &str) -> Result<()> {
        self.until_gone_within(name, PATIENCE).await
    }

    /// Waits until a namespace is gone, whose turn comes after those of other tests that have ended.
    pub async fn until_namespace_gone(&self, name: &str) -> Result<()> {
        self.until_gone_within(name, NAMESPACE_PATIENCE).await
    }

    async fn until_gone_within(&self, name: &str, limit: Duration) -> Result<()> {
        until(&format!("{}/{name}: gone", self.place), limit, || async {
            Ok(match self.find(name).await {
                Ok(None) => Ok(()),
                Ok(Some(object)) => Err(object.to_string()),
                Err(why) => Err(format!("{why:#}")),
            })
        })
        .await
    }

    /// Waits until the list of all objects is as `is` wants it.
    pub async fn until_all(&self, what: &str, is: impl Fn(&[Value]) -> bool) -> Result<Vec<Value>> {
        until(&format!("{}: {what}", self.place), PATIENCE, || async {
            Ok(match self.list().await {
                Ok(all) if is(&all) => Ok(all),
                Ok(all) => Err(summary(&all)),
                Err(why) => Err(format!("{why:#}")),
            })
        })
        .await
    }

    /// Waits until there is one among those that a field selector picks that is as `is` wants it.
    pub async fn until_some(&self, fields: &str, what: &str, is: impl Fn(&Value) -> bool) -> Result<Value> {
        until(&format!("{} with {fields}: {what}", self.place), PATIENCE, || async {
            Ok(self.look(fields, &is).await)
        })
        .await
    }

    async fn look(&self, fields: &str, is: impl Fn(&Value) -> bool) -> Seen<Value> {
        let all = self.list_where(fields).await.map_err(|why| format!("{why:#}"))?;
        match all.iter().find(|object| is(object)) {
            Some(object) => Ok(object.clone()),
            None => Err(summary(&all)),
        }
    }
}

/// An object as people compare it: JSON without the book-keeping of who wrote which field.
fn plain(object: &DynamicObject) -> Result<Value> {
    let mut object = object.clone();
    object.metadata.managed_fields = None;
    Ok(serde_json::to_value(object)?)
}

fn summary(all: &[Value]) -> String {
    let lines: Vec<String> = all.iter().map(Value::to_string).collect();
    format!("{} objects\n{}", lines.len(), lines.join("\n"))
}
