//! Kinds that are known without a cluster: those that Kubernetes has built in, and those of `CustomResourceDefinition`s.

use std::sync::Arc;

use metahook_core::object::id::{Gvk, Gvr, Resource};
use serde::Deserialize;
use serde_json::Value;

use crate::documents::{Document, DocumentLocation};
use crate::schemas::{object_faults, status_faults};

/// Kind, plural, whether it has namespaces, whether its status has a request of its own.
type BuiltIn = (&'static str, &'static str, bool, bool);

const IN_NAMESPACE: bool = true;
const CLUSTER: bool = false;
const STATUS: bool = true;
const PLAIN: bool = false;

/// The kinds that can be listed on the Kubernetes of the acceptance tests with its defaults, and metahook's own. A test
/// compares them with what a control plane serves.
#[rustfmt::skip]
const BUILT_IN: &[(&str, &[BuiltIn])] = &[
    ("v1", &[
        ("ComponentStatus", "componentstatuses", CLUSTER, PLAIN),
        ("ConfigMap", "configmaps", IN_NAMESPACE, PLAIN),
        ("Endpoints", "endpoints", IN_NAMESPACE, PLAIN),
        ("Event", "events", IN_NAMESPACE, PLAIN),
        ("LimitRange", "limitranges", IN_NAMESPACE, PLAIN),
        ("Namespace", "namespaces", CLUSTER, STATUS),
        ("Node", "nodes", CLUSTER, STATUS),
        ("PersistentVolume", "persistentvolumes", CLUSTER, STATUS),
        ("PersistentVolumeClaim", "persistentvolumeclaims", IN_NAMESPACE, STATUS),
        ("Pod", "pods", IN_NAMESPACE, STATUS),
        ("PodTemplate", "podtemplates", IN_NAMESPACE, PLAIN),
        ("ReplicationController", "replicationcontrollers", IN_NAMESPACE, STATUS),
        ("ResourceQuota", "resourcequotas", IN_NAMESPACE, STATUS),
        ("Secret", "secrets", IN_NAMESPACE, PLAIN),
        ("Service", "services", IN_NAMESPACE, STATUS),
        ("ServiceAccount", "serviceaccounts", IN_NAMESPACE, PLAIN),
    ]),
    ("admissionregistration.k8s.io/v1", &[
        ("MutatingAdmissionPolicy", "mutatingadmissionpolicies", CLUSTER, PLAIN),
        ("MutatingAdmissionPolicyBinding", "mutatingadmissionpolicybindings", CLUSTER, PLAIN),
        ("MutatingWebhookConfiguration", "mutatingwebhookconfigurations", CLUSTER, PLAIN),
        ("ValidatingAdmissionPolicy", "validatingadmissionpolicies", CLUSTER, STATUS),
        ("ValidatingAdmissionPolicyBinding", "validatingadmissionpolicybindings", CLUSTER, PLAIN),
        ("ValidatingWebhookConfiguration", "validatingwebhookconfigurations", CLUSTER, PLAIN),
    ]),
    ("apiextensions.k8s.io/v1", &[
        ("CustomResourceDefinition", "customresourcedefinitions", CLUSTER, STATUS),
    ]),
    ("apiregistration.k8s.io/v1", &[
        ("APIService", "apiservices", CLUSTER, STATUS),
    ]),
    ("apps/v1", &[
        ("ControllerRevision", "controllerrevisions", IN_NAMESPACE, PLAIN),
        ("DaemonSet", "daemonsets", IN_NAMESPACE, STATUS),
        ("Deployment", "deployments", IN_NAMESPACE, STATUS),
        ("ReplicaSet", "replicasets", IN_NAMESPACE, STATUS),
        ("StatefulSet", "statefulsets", IN_NAMESPACE, STATUS),
    ]),
    ("autoscaling/v1", &[
        ("HorizontalPodAutoscaler", "horizontalpodautoscalers", IN_NAMESPACE, STATUS),
    ]),
    ("autoscaling/v2", &[
        ("HorizontalPodAutoscaler", "horizontalpodautoscalers", IN_NAMESPACE, STATUS),
    ]),
    ("batch/v1", &[
        ("CronJob", "cronjobs", IN_NAMESPACE, STATUS),
        ("Job", "jobs", IN_NAMESPACE, STATUS),
    ]),
    ("certificates.k8s.io/v1", &[
        ("CertificateSigningRequest", "certificatesigningrequests", CLUSTER, STATUS),
    ]),
    ("coordination.k8s.io/v1", &[
        ("Lease", "leases", IN_NAMESPACE, PLAIN),
    ]),
    ("discovery.k8s.io/v1", &[
        ("EndpointSlice", "endpointslices", IN_NAMESPACE, PLAIN),
    ]),
    ("events.k8s.io/v1", &[
        ("Event", "events", IN_NAMESPACE, PLAIN),
    ]),
    ("flowcontrol.apiserver.k8s.io/v1", &[
        ("FlowSchema", "flowschemas", CLUSTER, STATUS),
        ("PriorityLevelConfiguration", "prioritylevelconfigurations", CLUSTER, STATUS),
    ]),
    ("metacontroller.k8s.io/v1alpha1", &[
        ("CompositeController", "compositecontrollers", CLUSTER, STATUS),
        ("ControllerRevision", "controllerrevisions", IN_NAMESPACE, STATUS),
        ("DecoratorController", "decoratorcontrollers", CLUSTER, STATUS),
    ]),
    ("networking.k8s.io/v1", &[
        ("IPAddress", "ipaddresses", CLUSTER, PLAIN),
        ("Ingress", "ingresses", IN_NAMESPACE, STATUS),
        ("IngressClass", "ingressclasses", CLUSTER, PLAIN),
        ("NetworkPolicy", "networkpolicies", IN_NAMESPACE, PLAIN),
        ("ServiceCIDR", "servicecidrs", CLUSTER, STATUS),
    ]),
    ("node.k8s.io/v1", &[
        ("RuntimeClass", "runtimeclasses", CLUSTER, PLAIN),
    ]),
    ("policy/v1", &[
        ("PodDisruptionBudget", "poddisruptionbudgets", IN_NAMESPACE, STATUS),
    ]),
    ("rbac.authorization.k8s.io/v1", &[
        ("ClusterRole", "clusterroles", CLUSTER, PLAIN),
        ("ClusterRoleBinding", "clusterrolebindings", CLUSTER, PLAIN),
        ("Role", "roles", IN_NAMESPACE, PLAIN),
        ("RoleBinding", "rolebindings", IN_NAMESPACE, PLAIN),
    ]),
    ("resource.k8s.io/v1", &[
        ("DeviceClass", "deviceclasses", CLUSTER, PLAIN),
        ("ResourceClaim", "resourceclaims", IN_NAMESPACE, STATUS),
        ("ResourceClaimTemplate", "resourceclaimtemplates", IN_NAMESPACE, PLAIN),
        ("ResourceSlice", "resourceslices", CLUSTER, PLAIN),
    ]),
    ("scheduling.k8s.io/v1", &[
        ("PriorityClass", "priorityclasses", CLUSTER, PLAIN),
    ]),
    ("storage.k8s.io/v1", &[
        ("CSIDriver", "csidrivers", CLUSTER, PLAIN),
        ("CSINode", "csinodes", CLUSTER, PLAIN),
        ("CSIStorageCapacity", "csistoragecapacities", IN_NAMESPACE, PLAIN),
        ("StorageClass", "storageclasses", CLUSTER, PLAIN),
        ("VolumeAttachment", "volumeattachments", CLUSTER, STATUS),
        ("VolumeAttributesClass", "volumeattributesclasses", CLUSTER, PLAIN),
    ]),
];

/// The kinds of the table, for the test: version, kind, plural, whether there are namespaces and a status.
pub fn built_in_kinds() -> impl Iterator<Item = (String, String, String, bool, bool)> {
    let all = BUILT_IN.iter().flat_map(|(version, kinds)| kinds.iter().map(move |kind| (version, kind)));
    all.map(|(version, (kind, plural, namespaced, has_status))| {
        ((*version).to_owned(), (*kind).to_owned(), (*plural).to_owned(), *namespaced, *has_status)
    })
}

/// All known kinds.
pub struct KnownKinds {
    all: Vec<KnownKind>,
}

struct KnownKind {
    resource: Arc<Resource>,
    is_custom: bool,
    /// Schema of its definition.
    schema: Option<Value>,
}

#[derive(Debug, thiserror::Error)]
pub enum KindError {
    #[error(
        "{0} is not built in, and no CustomResourceDefinition of the files has it: give the definition with -f, or correct apiVersion and resource (the plural, lower case)"
    )]
    NoResource(Gvr),
    #[error(
        "{0} is not built in, and no CustomResourceDefinition of the files has it: give the definition with -f, or correct apiVersion and kind"
    )]
    NoKind(Gvk),
    #[error("{place} is no CustomResourceDefinition of apiextensions.k8s.io/v1: {source}")]
    Definition { place: String, source: serde_json::Error },
}

#[derive(Deserialize)]
struct Definition {
    spec: Spec,
}

#[derive(Deserialize)]
struct Spec {
    group: String,
    scope: String,
    names: Names,
    versions: Vec<Version>,
}

#[derive(Deserialize)]
struct Names {
    kind: String,
    plural: String,
}

#[derive(Deserialize)]
struct Version {
    name: String,
    served: bool,
    #[serde(default)]
    subresources: Subresources,
    schema: Option<Schema>,
}

#[derive(Deserialize)]
struct Schema {
    #[serde(rename = "openAPIV3Schema")]
    whole: Option<Value>,
}

#[derive(Default, Deserialize)]
struct Subresources {
    status: Option<Value>,
}

impl KnownKinds {
    /// The kinds that are built in, and those of the definitions among the documents.
    pub fn of(documents: &[Document]) -> Result<Self, KindError> {
        let mut all = Vec::new();
        for (api_version, kinds) in BUILT_IN {
            for (kind, plural, namespaced, has_status) in *kinds {
                let gvk = Gvk::new(api_version, kind);
                let (plural, namespaced, has_status) = ((*plural).into(), *namespaced, *has_status);
                let resource = Arc::new(Resource { gvk, plural, namespaced, has_status });
                all.push(KnownKind { resource, is_custom: false, schema: None });
            }
        }
        let is_definition = |document: &&Document| {
            document.value.get("kind").is_some_and(|kind| kind == "CustomResourceDefinition")
        };
        for Document { place, value } in documents.iter().filter(is_definition) {
            all.extend(custom(place, value)?);
        }
        Ok(Self { all })
    }

    pub(crate) fn resolve(&self, gvr: &Gvr) -> Result<&Arc<Resource>, KindError> {
        let found = self.find(|resource| resource.gvr() == *gvr);
        found.ok_or_else(|| KindError::NoResource(gvr.clone()))
    }

    pub(crate) fn resolve_kind(&self, gvk: &Gvk) -> Result<&Arc<Resource>, KindError> {
        self.find(|resource| resource.gvk == *gvk).ok_or_else(|| KindError::NoKind(gvk.clone()))
    }

    pub(crate) fn is_custom(&self, resource: &Resource) -> bool {
        self.all.iter().any(|known| known.is_custom && *known.resource == *resource)
    }

    /// The schema in the definition of a kind; the last one that was given counts.
    pub(crate) fn schema(&self, gvk: &Gvk) -> Option<&Value> {
        self.all.iter().rev().find(|known| known.resource.gvk == *gvk)?.schema.as_ref()
    }

    /// Parts of an object that the API server would drop, or refuse it for.
    pub(crate) fn faults(&self, gvk: &Gvk, object: &Value) -> Vec<String> {
        object_faults(gvk, self.schema(gvk), object)
    }

    /// Parts of a status alone that the API server would drop, or refuse it for.
    pub(crate) fn status_faults(&self, gvk: &Gvk, status: &Value) -> Vec<String> {
        status_faults(gvk, self.schema(gvk), status)
    }

    /// The last one that was given counts.
    fn find(&self, is_it: impl Fn(&Resource) -> bool) -> Option<&Arc<Resource>> {
        self.all.iter().rev().map(|known| &known.resource).find(|resource| is_it(resource))
    }
}

fn custom(place: &DocumentLocation, definition: &Value) -> Result<Vec<KnownKind>, KindError> {
    let Definition { spec: Spec { group, scope, names, versions } } = Definition::deserialize(definition)
        .map_err(|source| KindError::Definition { place: place.to_string(), source })?;
    let served = versions.into_iter().filter(|version| version.served).map(|version| {
        let resource = Resource {
            gvk: Gvk::new(&format!("{group}/{}", version.name), &names.kind),
            plural: names.plural.as_str().into(),
            namespaced: scope == "Namespaced",
            has_status: version.subresources.status.is_some(),
        };
        let schema = version.schema.and_then(|schema| schema.whole);
        KnownKind { resource: Arc::new(resource), is_custom: true, schema }
    });
    Ok(served.collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::documents::of_text;

    #[test]
    fn kinds_are_built_in_or_defined_by_a_file() {
        let crd = "kind: CustomResourceDefinition\nspec: {group: e.com, scope: Namespaced, names: {kind: Thing, plural: things}, versions: [{name: v1, served: true, subresources: {status: {}}}, {name: v0, served: false}]}";
        let kinds = KnownKinds::of(&of_text("crd.yaml", crd).unwrap()).unwrap();
        let thing = kinds.resolve(&Gvr::new("e.com/v1", "things")).unwrap();
        assert!(thing.namespaced && thing.has_status && kinds.is_custom(thing));
        let pod = kinds.resolve_kind(&Gvk::new("v1", "Pod")).unwrap();
        assert!(&*pod.plural == "pods" && pod.has_status && !kinds.is_custom(pod));
        let error = kinds.resolve(&Gvr::new("e.com/v0", "things")).unwrap_err().to_string();
        assert!(error.starts_with("e.com/v0 things is not built in, and no Custom"), "{error}");
        let error = kinds.resolve_kind(&Gvk::new("v1", "Podd")).unwrap_err().to_string();
        assert!(error.starts_with("v1 Podd is not built in"), "{error}");
    }

    #[test]
    fn a_definition_that_is_none_is_named_with_its_place() {
        let documents = of_text("crd.yaml", "---\nkind: CustomResourceDefinition\nspec: {}").unwrap();
        let error = KnownKinds::of(&documents).err().unwrap().to_string();
        assert!(error.starts_with("crd.yaml, document 1 (line 1) is no CustomResourceDefinition"), "{error}");
    }
}
