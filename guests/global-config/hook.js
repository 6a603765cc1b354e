// Copies of the ConfigMaps that one namespace shares, in each namespace that has the label.

const SHARED = { matchLabels: { "example.com/global": "true" } };

export function customize({ settings }) {
  const rule = { apiVersion: "v1", resource: "configmaps", namespace: sourceNamespace(settings), labelSelector: SHARED };
  return { relatedResources: [rule] };
}

export function sync({ object, related, settings }) {
  const namespace = object.metadata.name;
  const sources = namespace === sourceNamespace(settings) ? [] : Object.values(related["ConfigMap.v1"] ?? {});
  return { attachments: sources.map((source) => copy(source, namespace)) };
}

// The namespace has lost its label, or is being deleted: it goes on without the copies.
export function finalize({ attachments }) {
  return { attachments: [], finalized: Object.keys(attachments["ConfigMap.v1"]).length === 0 };
}

function sourceNamespace(settings) {
  return settings?.source ?? "global-config";
}

function copy({ metadata, data, binaryData }, namespace) {
  return { apiVersion: "v1", kind: "ConfigMap", metadata: { name: metadata.name, namespace }, data, binaryData };
}
