"""The tutorial's controller as an operator with kopf, for `cargo xtask bench converge --peer kopf`; hello_kopf.txt pins
what it needs. The client is kubernetes_asyncio: handlers that wait do not keep a thread."""

import kopf
from kubernetes_asyncio import client, config

GROUP, VERSION, PLURAL = "example.com", "v1", "helloworlds"
MANAGED_BY = {"app.kubernetes.io/managed-by": "hello-operator"}

# The uids of Pods that go because their parent greets another one: their successors are made at once.
replaced = set()


class Cluster:
    pods = None


@kopf.on.startup()
async def start(**_):
    await config.load_kube_config()
    Cluster.pods = client.CoreV1Api()


@kopf.on.cleanup()
async def end(**_):
    await Cluster.pods.api_client.close()


@kopf.index(GROUP, VERSION, PLURAL)
def parents(namespace, name, body, **_):
    return {(namespace, name): body}


@kopf.index("pods", labels=MANAGED_BY)
def pods_of(namespace, body, **_):
    return {(namespace, owner(body)): body}


@kopf.on.resume(GROUP, VERSION, PLURAL)
@kopf.on.create(GROUP, VERSION, PLURAL)
@kopf.on.update(GROUP, VERSION, PLURAL, field="spec")
async def sync(body, patch, pods_of, **_):
    metadata, desired = body["metadata"], pod(body)
    mine = pods_of.get((metadata["namespace"], metadata["uid"]), ())
    found = [there for there in mine if there["metadata"]["name"] == metadata["name"]]
    if found and not greets_alike(found[0], desired):
        await remove(found[0])
        found = []
    if not found:
        await create(desired)
    patch.status["pods"] = 1
    patch.status["observedGeneration"] = metadata["generation"]


@kopf.on.event("pods", labels=MANAGED_BY)
async def pod_changed(type, namespace, name, body, parents, **_):
    """Makes a Pod again that somebody deleted."""
    if type != "DELETED":
        return
    if body["metadata"]["uid"] in replaced:
        replaced.discard(body["metadata"]["uid"])
        return
    for parent in parents.get((namespace, name), ()):
        if parent["metadata"]["uid"] == owner(body) and not parent["metadata"].get("deletionTimestamp"):
            await create(pod(parent))


async def create(desired):
    try:
        await Cluster.pods.create_namespaced_pod(desired["metadata"]["namespace"], desired)
    except client.ApiException as why:
        if why.status == 404:
            return  # the namespace has gone
        if why.status != 409:
            raise
        there = await Cluster.pods.read_namespaced_pod(desired["metadata"]["name"], desired["metadata"]["namespace"])
        there = Cluster.pods.api_client.sanitize_for_serialization(there)
        if owner(there) != owner(desired) or not greets_alike(there, desired):
            # An old one that has not gone yet, or somebody else's.
            raise kopf.TemporaryError("there is another Pod of this name", delay=1) from why


async def remove(old):
    metadata = old["metadata"]
    replaced.add(metadata["uid"])
    options = client.V1DeleteOptions(preconditions=client.V1Preconditions(uid=metadata["uid"]))
    try:
        await Cluster.pods.delete_namespaced_pod(metadata["name"], metadata["namespace"], body=options)
    except client.ApiException as why:
        replaced.discard(metadata["uid"])
        if why.status not in (404, 409):
            raise


def pod(parent):
    metadata = parent["metadata"]
    who = parent.get("spec", {}).get("who", "World")
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": metadata["name"],
            "namespace": metadata["namespace"],
            "labels": MANAGED_BY,
            "ownerReferences": [
                {
                    "apiVersion": f"{GROUP}/{VERSION}",
                    "kind": "HelloWorld",
                    "name": metadata["name"],
                    "uid": metadata["uid"],
                    "controller": True,
                    "blockOwnerDeletion": True,
                }
            ],
        },
        "spec": {
            "restartPolicy": "OnFailure",
            "containers": [{"name": "hello", "image": "busybox", "command": ["echo", f"Hello, {who}!"]}],
        },
    }


def owner(body):
    return next((of["uid"] for of in body["metadata"].get("ownerReferences", ()) if of.get("controller")), None)


def greets_alike(one, other):
    return one["spec"]["containers"][0]["command"] == other["spec"]["containers"][0]["command"]
