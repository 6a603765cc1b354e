//! Documents of files: YAML and JSON as an author's command is given them, each value with the place that it came from.

use std::fmt;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use metahook_core::api::units::print_bytes;
use metahook_core::shorten;
use serde_json::Value;

use super::folders::{FolderError, files};
use super::yaml;

/// Bytes of one file.
pub(crate) const MAX_FILE: u64 = 64 << 20;

/// Bytes of an error that a parser describes.
const MAX_ERROR: usize = 1000;

/// One document of a file.
#[derive(Debug, Clone, PartialEq)]
pub struct Document {
    pub place: DocumentLocation,
    pub value: Value,
}

/// The place of a document, for messages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DocumentLocation {
    file: Arc<str>,
    /// From 1 on.
    number: usize,
    /// The line that the document begins on, from 1 on; 0: it is from no file.
    line: usize,
}

#[derive(Debug, thiserror::Error)]
pub enum DocumentError {
    #[error("{file} cannot be read")]
    Read { file: String, source: io::Error },
    #[error(transparent)]
    Folder(#[from] FolderError),
    #[error("{file} has more than {}: give a smaller one", print_bytes(*bound))]
    TooLarge { file: String, bound: u64 },
    #[error("{file} is not text in UTF-8: give YAML or JSON")]
    NotText { file: String },
    #[error("{place} is neither YAML nor JSON: {why}")]
    Syntax { place: String, why: String },
    #[error("{file} holds no document")]
    Empty { file: String },
    #[error("{file} holds {found} documents, and one is expected: give a file for each")]
    Several { file: String, found: usize },
}

/// The bytes of a file up to a bound; `-` is stdin.
pub fn read_bytes(path: &Path, bound: u64) -> Result<Vec<u8>, DocumentError> {
    let file = || path.display().to_string();
    let mut bytes = Vec::new();
    let read = if path.as_os_str() == "-" {
        io::stdin().lock().take(bound + 1).read_to_end(&mut bytes)
    } else {
        std::fs::File::open(path).and_then(|file| file.take(bound + 1).read_to_end(&mut bytes))
    };
    match read {
        Err(source) => Err(DocumentError::Read { file: file(), source }),
        Ok(_) if bytes.len() as u64 > bound => Err(DocumentError::TooLarge { file: file(), bound }),
        Ok(_) => Ok(bytes),
    }
}

/// All documents of a file that are not empty; `-` is stdin.
pub fn read(path: &Path) -> Result<Vec<Document>, DocumentError> {
    let file = path.display().to_string();
    of_text(&file, &text(&file, read_bytes(path, MAX_FILE)?)?)
}

/// All documents of files, and of the files in folders; not the requests of hooks, nor the schemas for editors, that lie in a folder
/// beside objects.
pub fn read_all(paths: &[PathBuf]) -> Result<Vec<Document>, DocumentError> {
    let mut all = Vec::new();
    for path in paths {
        let is_folder = path.is_dir();
        for file in files(path)? {
            let documents = read(&file)?.into_iter();
            all.extend(documents.filter(|document| !(is_folder && is_no_object(&document.value))));
        }
    }
    Ok(all)
}

/// Whether a value is the request of a hook, or a schema as `metahook schema` prints it: those have no kind.
fn is_no_object(value: &Value) -> bool {
    let is_request =
        || ["parent", "object"].iter().any(|field| value.get(field).is_some_and(Value::is_object));
    value.get("kind").is_none() && (value.get("$schema").is_some() || is_request())
}

/// The text of a file's only document as JSON. JSON stays as it is, byte for byte.
pub fn read_one_as_json(path: &Path) -> Result<(String, Value), DocumentError> {
    let file = path.display().to_string();
    let text = text(&file, read_bytes(path, MAX_FILE)?)?;
    if let Ok(value) = serde_json::from_str(&text) {
        return Ok((text, value));
    }
    let mut all = of_text(&file, &text)?;
    match (all.len(), all.pop()) {
        (1, Some(one)) => Ok((one.value.to_string(), one.value)),
        (0, _) | (_, None) => Err(DocumentError::Empty { file }),
        (found, _) => Err(DocumentError::Several { file, found }),
    }
}

fn text(file: &str, bytes: Vec<u8>) -> Result<String, DocumentError> {
    String::from_utf8(bytes).map_err(|_invalid| DocumentError::NotText { file: file.to_owned() })
}

/// The documents of a text; `file` is what errors call it. The items of a `List` are documents of their own.
pub fn of_text(file: &str, text: &str) -> Result<Vec<Document>, DocumentError> {
    let file: Arc<str> = file.into();
    if let Ok(value) = serde_json::from_str(text) {
        return Ok(items(Document { place: DocumentLocation { file, number: 1, line: 1 }, value }).collect());
    }
    let mut found = Vec::new();
    for (nth, (line, part)) in split(text).into_iter().enumerate() {
        let place = DocumentLocation { file: Arc::clone(&file), number: nth + 1, line };
        let value: Value = yaml::read(part).map_err(|_again| {
            // Below so many empty lines the parser counts as the file does.
            let below = format!("{}{part}", "\n".repeat(line - 1));
            let why = yaml::read(&below).err().map(|error| error.without_snippet().to_string());
            DocumentError::Syntax {
                place: place.to_string(),
                why: shorten(&why.unwrap_or_default(), MAX_ERROR),
            }
        })?;
        if !value.is_null() {
            found.extend(items(Document { place, value }));
        }
    }
    Ok(found)
}

/// Objects that a cluster has, as documents.
pub fn of_cluster(objects: Vec<Value>) -> Vec<Document> {
    let named = |value: Value| {
        let name = value.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default();
        let file = format!("{name} of the cluster").into();
        Document { place: DocumentLocation { file, number: 1, line: 0 }, value }
    };
    objects.into_iter().map(named).collect()
}

/// The items of a `List`; else the document itself.
fn items(Document { place, mut value }: Document) -> impl Iterator<Item = Document> {
    let is_list = value.get("kind").and_then(Value::as_str).is_some_and(|kind| kind.ends_with("List"));
    let all = match value.get_mut("items").map(Value::take) {
        Some(Value::Array(items)) if is_list => items,
        Some(items) => {
            if let Some(fields) = value.as_object_mut() {
                fields.insert("items".to_owned(), items);
            }
            vec![value]
        }
        None => vec![value],
    };
    all.into_iter().map(move |value| Document { place: place.clone(), value })
}

/// The documents of a YAML stream, each with the number of its first line. A line that begins with `---` begins a document,
/// wherever it stands. Documents of comments and empty lines alone are left out.
fn split(text: &str) -> Vec<(usize, &str)> {
    let is_marker = |line: &str| {
        let rest = line.strip_prefix("---");
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(char::is_whitespace))
    };
    let mut starts = vec![(1, 0)];
    let mut at = 0;
    for (number, line) in (1..).zip(text.split_inclusive('\n')) {
        if is_marker(line) {
            starts.push((number, at));
        }
        at += line.len();
    }
    let ends = starts.iter().skip(1).map(|(_, at)| *at).chain([text.len()]);
    let parts =
        starts.iter().zip(ends).map(|((line, at), end)| (*line, text.get(*at..end).unwrap_or_default()));
    let is_content = |line: &str| {
        let line = if is_marker(line) { line.get(3..).unwrap_or_default() } else { line };
        !line.trim().is_empty() && !line.trim_start().starts_with('#')
    };
    parts.filter(|(_, part)| part.lines().any(is_content)).collect()
}

impl DocumentLocation {
    /// `None`: it is from no file.
    pub(crate) fn file(&self) -> Option<&Path> {
        (self.line > 0).then(|| Path::new(&*self.file))
    }
}

impl fmt::Display for DocumentLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => f.write_str(&self.file),
            line => write!(f, "{}, document {} (line {line})", self.file, self.number),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn requests_and_schemas_in_a_folder_of_objects_are_left_out() {
        let folder = tempfile::tempdir().unwrap();
        let request = folder.path().join("request.yaml");
        std::fs::write(&request, "parent: {kind: X}\nchildren: {}\n").unwrap();
        std::fs::write(folder.path().join("x.yaml"), "kind: X\nparent: {}\n---\nname: typo\n").unwrap();
        std::fs::write(folder.path().join("x.schema.json"), r#"{"$schema": "http://json-schema.org/x"}"#)
            .unwrap();
        let found = read_all(&[folder.path().to_owned()]).unwrap();
        assert_eq!(found.len(), 2, "an object has a kind, and a mistake stays to be told");
        assert_eq!(read_all(&[request]).unwrap().len(), 1, "what is named is read");
    }

    fn of(text: &str) -> Vec<(String, Value)> {
        let all = of_text("f.yaml", text).unwrap();
        all.into_iter().map(|one| (one.place.to_string(), one.value)).collect()
    }

    #[test]
    fn each_document_of_a_file_has_its_place() {
        let text = "# a comment\n---\na: 1\n---\n\n---   # nothing\n--- {b: 2}\n---\nc: |\n  --- no marker\n---x: 3\n";
        assert_eq!(
            of(text),
            [
                ("f.yaml, document 1 (line 2)".to_owned(), json!({"a": 1})),
                ("f.yaml, document 2 (line 7)".to_owned(), json!({"b": 2})),
                ("f.yaml, document 3 (line 8)".to_owned(), json!({"c": "--- no marker\n", "---x": 3})),
            ]
        );
        assert_eq!(of(""), []);
        assert_eq!(of("{\"a\": 1}"), [("f.yaml, document 1 (line 1)".to_owned(), json!({"a": 1}))]);
    }

    #[test]
    fn the_items_of_a_list_are_documents() {
        let values = |text: &str| of(text).into_iter().map(|(_, value)| value).collect::<Vec<_>>();
        assert_eq!(values("kind: List\nitems: [{a: 1}, {b: 2}]"), [json!({"a": 1}), json!({"b": 2})]);
        assert!(values("{\"kind\": \"PodList\", \"items\": []}").is_empty());
        let other = json!({"kind": "Menu", "items": [1]});
        assert_eq!(values(&other.to_string()), [other]);
    }

    #[test]
    fn an_error_names_file_document_and_line() {
        let error = of_text("f.yaml", "a: 1\n---\nb: [\n").unwrap_err().to_string();
        assert!(error.starts_with("f.yaml, document 2 (line 2) is neither YAML nor JSON: "), "{error}");
        assert!(error.contains("line 3") || error.contains("line 4"), "{error}");
    }

    #[test]
    fn what_cannot_be_read_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("f.yaml");
        let refused = |content: &[u8]| {
            std::fs::write(&file, content).unwrap();
            let error = read_one_as_json(&file).unwrap_err().to_string();
            error.replace(folder.path().to_str().unwrap(), "")
        };
        assert_eq!(refused(b"\xff"), "/f.yaml is not text in UTF-8: give YAML or JSON");
        assert_eq!(refused(b"# nothing"), "/f.yaml holds no document");
        let several = "/f.yaml holds 2 documents, and one is expected: give a file for each";
        assert_eq!(refused(b"a: 1\n---\nb: 2"), several);
        assert_eq!(
            read_one_as_json(&folder.path().join("none"))
                .unwrap_err()
                .to_string()
                .replace(folder.path().to_str().unwrap(), ""),
            "/none cannot be read"
        );
    }

    #[test]
    fn a_file_may_be_as_large_as_its_bound_and_no_larger() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("f");
        std::fs::write(&file, "abc").unwrap();
        assert_eq!(read_bytes(&file, 3).unwrap(), b"abc");
        let error = read_bytes(&file, 2).unwrap_err().to_string();
        assert!(error.ends_with("f has more than 2: give a smaller one"), "{error}");
    }

    #[test]
    fn json_stays_as_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("f.json");
        for (content, text) in [("{ \"b\":1e2, \"a\":2}", "{ \"b\":1e2, \"a\":2}"), ("b: 1\n", "{\"b\":1}")] {
            std::fs::write(&file, content).unwrap();
            assert_eq!(read_one_as_json(&file).unwrap().0, text);
        }
    }
}
