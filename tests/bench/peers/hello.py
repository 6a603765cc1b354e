"""The tutorial's hook behind Python's own web server, for `cargo xtask bench guests`; prints its address, and serves until
the end of its standard input."""

import json
import os
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


def sync(parent, children):
    who = parent.get("spec", {}).get("who", "World")
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": parent["metadata"]["name"]},
        "spec": {
            "restartPolicy": "OnFailure",
            "containers": [{"name": "hello", "image": "busybox", "command": ["echo", f"Hello, {who}!"]}],
        },
    }
    return {"status": {"pods": len(children["Pod.v1"])}, "children": [pod]}


class Controller(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1

    def do_POST(self):
        observed = json.loads(self.rfile.read(int(self.headers["content-length"])))
        answer = json.dumps(sync(observed["parent"], observed["children"])).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *args):
        pass


def end_with_input():
    sys.stdin.read()
    os._exit(0)


if __name__ == "__main__":
    server = ThreadingHTTPServer(("127.0.0.1", 0), Controller)
    print("http://%s:%d" % server.server_address, flush=True)
    threading.Thread(target=end_with_input, daemon=True).start()
    server.serve_forever()
