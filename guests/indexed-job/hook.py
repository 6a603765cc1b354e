"""Pods NAME-0, NAME-1, ... that run to completion, some at a time; a Pod that fails is made anew."""

INDEX = "indexedjob.example.com/index"


def sync(parent, children):
    spec, status = parent["spec"], parent.get("status") or {}
    name, completions = parent["metadata"]["name"], spec.get("completions", 1)
    observed = {pod["metadata"]["name"]: pod for pod in children["Pod.v1"].values()}
    names = {index: f"{name}-{index}" for index in range(completions)}
    pods = {index: observed[key] for index, key in names.items() if key in observed}

    done = {index for index in status.get("completedIndexes", []) if index < completions}
    done.update(index for index, pod in pods.items() if phase(pod) == "Succeeded")
    counted = set(status.get("countedPods", []))
    failed = {index: pod["metadata"]["uid"] for index, pod in pods.items() if has_failed(pod, counted)}
    failures = status.get("failed", 0) + sum(uid not in counted for uid in failed.values())
    gives_up = failures > spec.get("backoffLimit", 6) and len(done) < completions

    # A failure is counted once: the Pod stays until its uid is in the status, and only then is left out.
    wanted = {index for index in pods if gives_up or failed.get(index) not in counted}
    active = {index for index, pod in pods.items() if phase(pod) not in ("Succeeded", "Failed")}
    if gives_up:
        wanted -= active
    else:
        free = max(0, spec.get("parallelism", 1) - len(active))
        missing = (index for index in range(completions) if index not in pods and index not in done)
        wanted.update(index for index, _ in zip(missing, range(free)))

    return {
        "children": [child(names[index], index, spec["template"]) for index in sorted(wanted)],
        "status": {
            "phase": "Failed" if gives_up else "Complete" if len(done) == completions else "Running",
            "active": len(active),
            "succeeded": len(done),
            "failed": failures,
            "completedIndexes": sorted(done),
            "countedPods": sorted(failed.values()),
        },
    }


def phase(pod):
    return pod.get("status", {}).get("phase", "Pending")


def has_failed(pod, counted):
    """A Pod that ends because it was deleted has not failed."""
    metadata = pod["metadata"]
    return phase(pod) == "Failed" and ("deletionTimestamp" not in metadata or metadata["uid"] in counted)


def child(name, index, template):
    metadata, spec = template.get("metadata") or {}, template["spec"]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "labels": metadata.get("labels") or {},
            "annotations": {**(metadata.get("annotations") or {}), INDEX: str(index)},
        },
        "spec": {
            **spec,
            "restartPolicy": "Never",  # a Pod that fails is made anew here
            "containers": [with_index(container, index) for container in spec["containers"]],
        },
    }


def with_index(container, index):
    others = [variable for variable in container.get("env") or [] if variable["name"] != "JOB_INDEX"]
    return {**container, "env": [{"name": "JOB_INDEX", "value": str(index)}, *others]}
