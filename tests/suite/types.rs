//! `metahook types`: the types of a definition compile, and keep what objects say.

use acceptance::fixture::Fixture;
use anyhow::{Result, ensure};
use serde_json::{Value, json};

use crate::scaffold::runs;

/// A definition with fields of each shape, and with names that no language has.
const SHAPES: &str = r#"
kind: CustomResourceDefinition
metadata: {name: shapes.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {kind: Shape, plural: shapes}
  versions:
    - name: v1
      served: true
      storage: true
      schema:
        openAPIV3Schema:
          type: object
          properties:
            spec:
              type: object
              required: [count]
              properties:
                count: {type: integer, format: int32}
                large: {type: integer}
                ratio: {type: number}
                on: {type: boolean}
                type: {type: string, enum: [fast, very-fast, Self, ""]}
                self: {type: string, nullable: true}
                port: {x-kubernetes-int-or-string: true}
                any: {type: object, x-kubernetes-preserve-unknown-fields: true}
                parts: {type: array, items: {type: object, properties: {a-b: {type: string}, aB: {type: string}}}}
                maps: {type: object, additionalProperties: {type: array, items: {type: string}}}
                'odd "name"': {type: boolean, description: "Two\nlines. */"}
            status: {type: object, properties: {ready: {type: boolean}}}
"#;

/// Its hook puts the spec, as it read it, into a ConfigMap.
const ECHO: &str = r#"
mod shape;
use metahook_sdk::{Object, SyncRequest, SyncResponse};
use shape::{ShapeSpec, ShapeStatus};

fn sync(request: &SyncRequest<Object<'_, ShapeSpec, ShapeStatus>>) -> SyncResponse {
    let spec = serde_json::to_value(&request.parent.spec).unwrap();
    SyncResponse::new().status(serde_json::json!({ "spec": spec, "ready": request.parent.status.ready }))
}

fn main() -> std::process::ExitCode {
    metahook_sdk::run(sync)
}
"#;

pub(crate) async fn printed_types_compile_and_keep_what_objects_say(test: &mut Fixture) -> Result<()> {
    let folder = test.plane().scratch().join("types");
    std::fs::create_dir(&folder)?;
    runs(&folder, None, &["metahook", "new", "echo"]).await?;
    let echo = folder.join("echo");
    std::fs::write(echo.join("shape.yaml"), SHAPES)?;
    std::fs::write(echo.join("src/main.rs"), ECHO)?;
    let types = runs(&echo, None, &["metahook", "types", "-f", "shape.yaml"]).await?;
    std::fs::write(echo.join("src/shape.rs"), types)?;
    runs(&echo, None, &["cargo", "build", "--target", "wasm32-wasip1", "--release"]).await?;
    let spec = json!({
        "count": 1, "large": 1_i64 << 40, "ratio": 0.5, "on": true, "type": "very-fast", "port": "http",
        "any": {"a": [null, 1.5, {}]}, "parts": [{"a-b": "1", "aB": "2"}, {}], "maps": {"k": ["v"]},
        "odd \"name\"": false,
    });
    let request = json!({
        "controller": {}, "children": {}, "related": {}, "finalizing": false,
        "parent": {"apiVersion": "example.com/v1", "kind": "Shape", "metadata": {"name": "s"}, "spec": spec},
    });
    std::fs::write(echo.join("request.json"), request.to_string())?;
    let module = "target/wasm32-wasip1/release/echo.wasm";
    let ran = runs(&echo, None, &["metahook", "run", module, "--request", "request.json"]).await?;
    let ran: Value = serde_json::from_str(&ran)?;
    ensure!(ran["status"] == json!({"spec": spec, "ready": null}), "{ran}");
    let types = runs(&echo, None, &["metahook", "types", "-f", "shape.yaml", "--lang", "go"]).await?;
    std::fs::write(echo.join("types.go"), types)?;
    std::fs::write(echo.join("main.go"), "package main\n\nfunc main() { println(Shape{}.Spec.Count) }\n")?;
    runs(&echo, None, &["go", "vet", "main.go", "types.go"]).await?;
    Ok(())
}
