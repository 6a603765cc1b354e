"""Copies of one ConfigMap in the namespaces that its parent names or selects."""


def customize(parent):
    spec = parent["spec"]
    source = spec["source"]
    rules = [{"apiVersion": "v1", "resource": "configmaps", "namespace": source["namespace"], "names": [source["name"]]}]
    if spec.get("targets"):
        rules.append({"apiVersion": "v1", "resource": "namespaces", "names": spec["targets"]})
    if "targetSelector" in spec:
        rules.append({"apiVersion": "v1", "resource": "namespaces", "labelSelector": spec["targetSelector"]})
    return {"relatedResources": rules}


def sync(parent, children, related):
    spec = parent["spec"]
    source = next(iter(related.get("ConfigMap.v1", {}).values()), None)
    namespaces = {one["metadata"]["name"]: one for one in related.get("Namespace.v1", {}).values()}
    targets = sorted(
        name
        for name, namespace in namespaces.items()
        if name != spec["source"]["namespace"] and "deletionTimestamp" not in namespace["metadata"]
    )
    if source is None:
        # The copies stay as they are, also under the name of a source before, until there is a source again.
        observed = children["ConfigMap.v1"].values()
        kept = [(one["metadata"], one) for one in observed if one["metadata"]["namespace"] in targets]
        copies = [copy(at["name"], at["namespace"], content) for at, content in kept]
    else:
        copies = [copy(spec["source"]["name"], namespace, source) for namespace in targets]
    return {
        "children": copies,
        "status": {
            "phase": "SourceMissing" if source is None else "Propagated",
            "copies": len(copies),
            "missingNamespaces": sorted(set(spec.get("targets", [])) - set(namespaces)),
        },
    }


def copy(name, namespace, content):
    child = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": namespace}}
    return child | {field: content[field] for field in ("data", "binaryData") if field in content}
