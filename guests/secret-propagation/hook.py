"""Copies of one Secret in the namespaces that its parent names."""


def customize(parent):
    source, targets = parent["spec"]["source"], parent["spec"]["targets"]
    rules = [{"apiVersion": "v1", "resource": "secrets", "namespace": source["namespace"], "names": [source["name"]]}]
    if targets:
        rules.append({"apiVersion": "v1", "resource": "namespaces", "names": targets})
    return {"relatedResources": rules}


def sync(parent, related):
    source, targets = parent["spec"]["source"], parent["spec"]["targets"]
    secret = next(iter(related.get("Secret.v1", {}).values()), None)
    namespaces = {one["metadata"]["name"]: one["metadata"] for one in related.get("Namespace.v1", {}).values()}
    live = sorted(
        name
        for name, metadata in namespaces.items()
        if name != source["namespace"] and "deletionTimestamp" not in metadata
    )
    copies = [copy(secret, namespace) for namespace in live] if secret else []
    return {
        "children": copies,
        # Names and numbers only: more users may read a status than a Secret.
        "status": {
            "phase": "Propagated" if secret else "SourceMissing",
            "copies": len(copies),
            "missingNamespaces": sorted(set(targets) - set(namespaces)),
        },
    }


def copy(secret, namespace):
    metadata = {"name": secret["metadata"]["name"], "namespace": namespace}
    child = {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "type": secret.get("type", "Opaque")}
    return child | ({"data": secret["data"]} if "data" in secret else {})
