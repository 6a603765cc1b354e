//! `metahook types`: the types of a definition in three languages. An acceptance test compiles them.

use crate::Folder;

const CRD: &str = r#"
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: things.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {kind: Thing, plural: things}
  versions:
    - {name: v1beta1, served: true, storage: false, schema: {openAPIV3Schema: {type: object}}}
    - name: v1
      served: true
      storage: true
      schema:
        openAPIV3Schema:
          type: object
          description: A thing.
          properties:
            apiVersion: {type: string}
            kind: {type: string}
            metadata: {type: object}
            spec:
              type: object
              required: [maxSize, mode]
              properties:
                maxSize: {type: integer, format: int32, description: "Bytes,\nat most. */"}
                mode: {type: string, enum: [fast, very-fast, ""]}
                type: {type: string, nullable: true}
                port: {x-kubernetes-int-or-string: true}
                parts: {type: array, items: {type: object, properties: {ratio: {type: number}}}}
                labels: {type: object, additionalProperties: {type: string}}
                any: {type: object, x-kubernetes-preserve-unknown-fields: true}
                'odd "name"': {type: boolean}
            status: {type: object, properties: {ready: {type: boolean}}}
"#;

#[test]
fn types_in_rust_are_structs_of_serde() {
    let ended = Folder::new().with("crd.yaml", CRD).metahook(&["types", "-f", "crd.yaml"]);
    let expected = r#"// Made by `metahook types`; changes will be lost.

#![allow(dead_code, reason = "no hook reads all")]

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

// example.com/v1 Thing: metahook_sdk::Object<'_, ThingSpec, ThingStatus>

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ThingSpec {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub any: Option<serde_json::Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub labels: Option<BTreeMap<String, String>>,
    /// Bytes,
    /// at most. */
    #[serde(rename = "maxSize")]
    pub max_size: i32,
    pub mode: ThingSpecMode,
    #[serde(rename = "odd \"name\"", skip_serializing_if = "Option::is_none")]
    pub odd_name: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parts: Option<Vec<ThingSpecParts>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub port: Option<serde_json::Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub r#type: Option<String>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum ThingSpecMode {
    #[default]
    #[serde(rename = "fast")]
    Fast,
    #[serde(rename = "very-fast")]
    VeryFast,
    #[serde(rename = "")]
    Empty,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ThingSpecParts {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ratio: Option<f64>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ThingStatus {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ready: Option<bool>,
}
"#;
    ended.is(0, "");
    assert_eq!(ended.out, expected);
}

#[test]
fn types_in_go_are_structs_with_tags() {
    let ended = Folder::new().with("crd.yaml", CRD).metahook(&["types", "-f", "crd.yaml", "--lang=go"]);
    ended.is(0, "");
    let (_, ours) = ended.out.split_once("// Thing is").unwrap();
    let expected = r#" the Thing of example.com/v1.
//
// A thing.
type Thing struct {
	APIVersion string `json:"apiVersion"`
	Kind string `json:"kind"`
	Metadata ObjectMeta `json:"metadata"`
	Spec ThingSpec `json:"spec,omitempty"`
	Status ThingStatus `json:"status,omitempty"`
}

type ThingSpec struct {
	Any any `json:"any,omitempty"`
	Labels map[string]string `json:"labels,omitempty"`
	// Bytes,
	// at most. */
	MaxSize int32 `json:"maxSize"`
	Mode ThingSpecMode `json:"mode"`
	// encoding/json has no tag for the field "odd \"name\""
	Parts []ThingSpecParts `json:"parts,omitempty"`
	Port any `json:"port,omitempty"`
	Type *string `json:"type,omitempty"`
}

type ThingSpecMode string

const (
	ThingSpecModeFast ThingSpecMode = "fast"
	ThingSpecModeVeryFast ThingSpecMode = "very-fast"
	ThingSpecModeEmpty ThingSpecMode = ""
)

type ThingSpecParts struct {
	Ratio *float64 `json:"ratio,omitempty"`
}

type ThingStatus struct {
	Ready *bool `json:"ready,omitempty"`
}
"#;
    assert_eq!(ours, expected);
}

#[test]
fn types_in_typescript_are_interfaces() {
    let ended = Folder::new().with("crd.yaml", CRD).metahook(&["types", "-f", "crd.yaml", "--lang=ts"]);
    ended.is(0, "");
    let (_, ours) = ended.out.split_once("finalizers?: string[];\n}\n").unwrap();
    let expected = r#"
/**
 * A thing.
 */
export interface Thing {
  apiVersion: "example.com/v1";
  kind: "Thing";
  metadata: ObjectMeta;
  spec?: ThingSpec | null;
  status?: ThingStatus | null;
}

export interface ThingSpec {
  any?: unknown | null;
  labels?: Record<string, string> | null;
  /**
   * Bytes,
   * at most. * /
   */
  maxSize: number;
  mode: ThingSpecMode;
  "odd \"name\""?: boolean | null;
  parts?: ThingSpecParts[] | null;
  port?: number | string | null;
  type?: string | null;
}

export type ThingSpecMode = "fast" | "very-fast" | "";

export interface ThingSpecParts {
  ratio?: number | null;
}

export interface ThingStatus {
  ready?: boolean | null;
}
"#;
    assert_eq!(ours, expected);
}

#[test]
fn names_that_meet_differ() {
    let schema = "{type: object, properties: {spec: {type: object, properties: {a-b: {type: string, enum: [x, X]}, aB: {type: string, enum: [z]}, self: {type: string}}}}}";
    let of = |group: &str| {
        format!(
            "kind: CustomResourceDefinition\nspec: {{group: {group}, scope: Namespaced, names: {{kind: Thing, plural: things}}, versions: [{{name: v1, served: true, storage: true, schema: {{openAPIV3Schema: {schema}}}}}]}}\n"
        )
    };
    let crds = format!("{}---\n{}", of("a.com"), of("b.com"));
    let folder = Folder::new().with("crd.yaml", crds);
    let rust = folder.metahook(&["types", "-f", "crd.yaml"]).out;
    for once in [
        "pub struct ThingSpec {",
        "pub struct Thing2Spec {",
        "pub enum ThingSpecAB {",
        "pub enum ThingSpecAB2 {",
        "    pub a_b: Option<ThingSpecAB>,",
        "    pub a_b2: Option<ThingSpecAB2>,",
    ] {
        assert_eq!(rust.matches(once).count(), 1, "{once}\n{rust}");
    }
    assert!(
        rust.contains(
            "#[serde(rename = \"self\", skip_serializing_if = \"Option::is_none\")]\n    pub self_:"
        )
    );
    let go = folder.metahook(&["types", "-f", "crd.yaml", "--lang=go"]).out;
    assert_eq!(go.matches("type Thing2 struct {").count(), 1, "{go}");
}

#[test]
fn what_is_missing_or_wrong_is_named() {
    let folder = Folder::new().with("crd.yaml", CRD).with("pod.yaml", "kind: Pod").with("none.yaml", "a: [");
    let types = |more: &[&str]| folder.metahook(&[&["types"][..], more].concat());
    types(&[]).is(2, "--file");
    types(&["-f", "missing.yaml"]).is(2, "missing.yaml");
    types(&["-f", "none.yaml"]).is(2, "none.yaml");
    types(&["-f", "pod.yaml"])
        .is(2, "-f: no CustomResourceDefinition has kinds: give the file with the definition");
    types(&["-f", "crd.yaml", "--kind=Thin"])
        .is(2, "no CustomResourceDefinition has Thin: they have example.com/v1 Thing");
    types(&["-f", "crd.yaml", "--api-version=v2"])
        .is(2, "has kinds in version v2: they have example.com/v1 Thing");
    types(&["-f", "crd.yaml", "--lang=cobol"]).is(2, "[possible values: rust, go, ts]");
    types(&["-f", "crd.yaml", "--api-version=v1beta1"]).is(0, "");
}
