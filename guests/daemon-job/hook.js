// One Pod on each node that matches, which runs to completion once.

export function customize(parent) {
  const labelSelector = { matchLabels: parent.spec.nodeSelector ?? {} };
  return { relatedResources: [{ apiVersion: "v1", resource: "nodes", labelSelector }] };
}

export function sync(parent, children, related) {
  const nodes = Object.values(related["Node.v1"] ?? {}).map((node) => node.metadata.name).sort();
  const pods = nodes.map((node) => podOn(node, parent));
  const observed = new Map(Object.values(children["Pod.v1"]).map((pod) => [pod.metadata.name, pod]));
  const inPhase = (phase) => pods.filter((pod) => observed.get(pod.metadata.name)?.status?.phase === phase).length;
  const [completed, failed] = [inPhase("Succeeded"), inPhase("Failed")];
  return {
    status: { nodes: nodes.length, completed, failed, phase: phase(nodes.length, completed + failed) },
    children: pods,
  };
}

function phase(nodes, ended) {
  if (nodes === 0) return "NoNodes";
  return ended < nodes ? "Running" : "Complete";
}

function podOn(node, parent) {
  const { metadata = {}, spec } = parent.spec.template;
  return {
    apiVersion: "v1",
    kind: "Pod",
    metadata: {
      name: `${parent.metadata.name}-${node}`,
      labels: metadata.labels ?? {},
      annotations: metadata.annotations ?? {},
    },
    spec: {
      ...spec,
      restartPolicy: "Never",
      affinity: { ...spec.affinity, nodeAffinity: onlyOn(node) },
    },
  };
}

// As DaemonSets do it: the scheduler still sees to it that the Pod fits.
function onlyOn(node) {
  const matchFields = [{ key: "metadata.name", operator: "In", values: [node] }];
  return { requiredDuringSchedulingIgnoredDuringExecution: { nodeSelectorTerms: [{ matchFields }] } };
}
