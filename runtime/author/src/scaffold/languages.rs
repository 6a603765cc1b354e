//! Files of a scaffold that a language has of its own: the hook, how it is built, and types for editors.

use serde_json::{Value, json};

use crate::build_command;

use super::{Language, Name, Template, sdk};

/// The parts of a scaffold that differ by language.
pub(super) struct Toolkit {
    /// The hook's source, and what it is built with, by path.
    pub(super) files: Vec<(String, String)>,
    /// The command that builds the hook; a script has none.
    pub(super) build: Option<&'static str>,
    /// The file that `metahook check` is given, below the scaffold's folder.
    pub(super) hook: String,
}

impl Toolkit {
    pub(super) fn of(language: Language, template: Template, name: &Name) -> Self {
        let text = |text: &str| text.replace("__NAME__", &name.to_string()).replace("__KIND__", &name.kind());
        let file = |path: &str, content: &str| (path.to_owned(), text(content));
        let source = source(language, template);
        match language {
            Language::Rust | Language::Component => {
                let (target, build) = if language == Language::Rust {
                    ("wasm32-wasip1", build_command::CARGO)
                } else {
                    ("wasm32-wasip2", build_command::CARGO_COMPONENT)
                };
                let mut files = vec![
                    file("Cargo.toml", CARGO_MANIFEST),
                    file(".gitignore", "/target\n"),
                    file("src/main.rs", source),
                    file("vendor/metahook-sdk/Cargo.toml", sdk::MANIFEST),
                ];
                let sdk = sdk::SOURCES.iter();
                files.extend(
                    sdk.map(|(path, text)| (format!("vendor/metahook-sdk/src/{path}"), (*text).to_owned())),
                );
                Self { files, build: Some(build), hook: format!("target/{target}/release/{name}.wasm") }
            }
            Language::Go => Self {
                files: vec![
                    file("go.mod", "module example.com/__NAME__\n\ngo 1.21\n"),
                    file(".gitignore", "/hook.wasm\n"),
                    file("main.go", source),
                ],
                build: Some(build_command::GO),
                hook: "hook.wasm".to_owned(),
            },
            Language::C => Self {
                files: vec![
                    file("Makefile", include_str!("templates/c/makefile.txt")),
                    file(".gitignore", "/hook.wasm\n"),
                    file("hook.c", source),
                    file("metahook.h", include_str!("templates/c/metahook.h")),
                ],
                build: Some(build_command::MAKE),
                hook: "hook.wasm".to_owned(),
            },
            Language::Python => Self::script(
                file("hook.py", source),
                file("metahook_types.pyi", include_str!("templates/python/types.txt")),
            ),
            Language::JavaScript => Self::script(
                file("hook.js", source),
                file("metahook.d.ts", include_str!("templates/javascript/types.txt")),
            ),
        }
    }

    /// A script, and its types for editors.
    fn script(hook: (String, String), types: (String, String)) -> Self {
        Self { hook: hook.0.clone(), files: vec![hook, types], build: None }
    }
}

/// How a controller names a hook of the language.
pub(super) fn stored(language: Language, name: &Name) -> Value {
    let map = json!({ "namespace": name.to_string(), "name": "hook" });
    match language {
        Language::Rust | Language::Component | Language::Go | Language::C => {
            json!({ "version": "v2", "wasm": { "configMap": map } })
        }
        Language::Python => json!({ "version": "v2", "script": { "language": "python", "configMap": map } }),
        Language::JavaScript => {
            json!({ "version": "v2", "script": { "language": "javascript", "configMap": map } })
        }
    }
}

fn source(language: Language, template: Template) -> &'static str {
    match (language, template) {
        (Language::Rust | Language::Component, Template::Composite) => {
            include_str!("templates/rust/composite.txt")
        }
        (Language::Rust | Language::Component, Template::Decorator) => {
            include_str!("templates/rust/decorator.txt")
        }
        (Language::Rust | Language::Component, Template::Customize) => {
            include_str!("templates/rust/customize.txt")
        }
        (Language::Rust | Language::Component, Template::Finalize) => {
            include_str!("templates/rust/finalize.txt")
        }
        (Language::Go, Template::Composite) => include_str!("templates/go/composite.txt"),
        (Language::Go, Template::Decorator) => include_str!("templates/go/decorator.txt"),
        (Language::Go, Template::Customize) => include_str!("templates/go/customize.txt"),
        (Language::Go, Template::Finalize) => include_str!("templates/go/finalize.txt"),
        (Language::C, Template::Composite) => include_str!("templates/c/composite.txt"),
        (Language::C, Template::Decorator) => include_str!("templates/c/decorator.txt"),
        (Language::C, Template::Customize) => include_str!("templates/c/customize.txt"),
        (Language::C, Template::Finalize) => include_str!("templates/c/finalize.txt"),
        (Language::Python, Template::Composite) => include_str!("templates/python/composite.txt"),
        (Language::Python, Template::Decorator) => include_str!("templates/python/decorator.txt"),
        (Language::Python, Template::Customize) => include_str!("templates/python/customize.txt"),
        (Language::Python, Template::Finalize) => include_str!("templates/python/finalize.txt"),
        (Language::JavaScript, Template::Composite) => include_str!("templates/javascript/composite.txt"),
        (Language::JavaScript, Template::Decorator) => include_str!("templates/javascript/decorator.txt"),
        (Language::JavaScript, Template::Customize) => include_str!("templates/javascript/customize.txt"),
        (Language::JavaScript, Template::Finalize) => include_str!("templates/javascript/finalize.txt"),
    }
}

const CARGO_MANIFEST: &str = r#"[package]
name = "__NAME__"
version = "0.1.0"
edition = "2024"

[dependencies]
metahook-sdk = { path = "vendor/metahook-sdk" }
serde = { version = "1", features = ["derive"] }
serde_json = "1"

[profile.release]
opt-level = "s"
lto = true
panic = "abort"
strip = "debuginfo" # names of functions stay: messages about traps show them

[workspace] # of its own, also below another one's folder
"#;
