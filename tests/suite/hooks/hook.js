// A hook as users of Metacontroller write them for Node, with the keys of version 2: namespace/name.
const http = require("http");

function sync({ parent, children }) {
  const { name, namespace } = parent.metadata;
  const observed = children["ConfigMap.v1"][`${namespace}/${name}`];
  return {
    status: { echo: observed ? observed.data.says : null },
    children: [
      { apiVersion: "v1", kind: "ConfigMap", metadata: { name, namespace }, data: { says: parent.spec.says } },
    ],
  };
}

http
  .createServer((request, response) => {
    let body = "";
    request.on("data", (chunk) => (body += chunk));
    request.on("end", () => {
      response.writeHead(200, { "Content-Type": "application/json" });
      response.end(JSON.stringify(sync(JSON.parse(body))));
    });
  })
  .listen(8080);
