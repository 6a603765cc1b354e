// The tutorial's hook behind Node.js's own web server, for `cargo xtask bench guests`; prints its address, and
// serves until the end of its standard input.
import { createServer } from "node:http";

function sync(parent, children) {
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

const server = createServer((request, response) => {
  const chunks = [];
  request.on("data", (chunk) => chunks.push(chunk));
  request.on("end", () => {
    const { parent, children } = JSON.parse(Buffer.concat(chunks).toString());
    const answer = JSON.stringify(sync(parent, children));
    response.writeHead(200, { "content-type": "application/json", "content-length": Buffer.byteLength(answer) });
    response.end(answer);
  });
});
server.listen(0, "127.0.0.1", () => console.log(`http://127.0.0.1:${server.address().port}`));
process.stdin.resume().on("end", () => process.exit());
