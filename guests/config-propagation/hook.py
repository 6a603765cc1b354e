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
    observed = {copy["metadata"]["namespace"]: copy for copy in children["ConfigMap.v1"].values()}
    if source is None:
        # The copies stay as they are until there is a source again.
        kept = {name: observed[name] for name in targets if name in observed}
    else:
        kept = dict.fromkeys(targets, source)
    name = spec["source"]["name"]
    return {
        "children": [copy(name, namespace, content) for namespace, content in kept.items()],
        "status": {
            "phase": "SourceMissing" if source is None else "Propagated",
            "copies": len(kept),
            "missingNamespaces": sorted(set(spec.get("targets", [])) - set(namespaces)),
        },
    }


def copy(name, namespace, content):
    child = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": namespace}}
    return child | {field: content[field] for field in ("data", "binaryData") if field in content}
