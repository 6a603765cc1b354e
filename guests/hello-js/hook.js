// A HelloWorld is a Pod that prints a greeting.
export function sync(parent, children) {
  const who = parent.spec?.who ?? "World";
  const pod = {
    apiVersion: "v1",
    kind: "Pod",
    metadata: { name: parent.metadata.name },
    spec: {
      restartPolicy: "OnFailure",
      containers: [{ name: "hello", image: "busybox", command: ["echo", `Hello, ${who}!`] }],
    },
  };
  return { status: { pods: Object.keys(children["Pod.v1"]).length }, children: [pod] };
}
