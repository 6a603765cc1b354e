def sync(parent, children):
    who = parent.get("spec", {}).get("who", "World")
    container = {"name": "hello", "image": "busybox", "command": ["echo", f"Hello, {who}!"]}
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": parent["metadata"]["name"]},
        "spec": {"restartPolicy": "OnFailure", "containers": [container]},
    }
    return {"status": {"pods": len(children["Pod.v1"])}, "children": [pod]}
