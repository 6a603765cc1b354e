//! Size of a module: by section, and by the crate that the code of its functions comes from.

use std::collections::BTreeMap;
use std::fmt;

use wasmparser::{BinaryReaderError, KnownCustom, Name, NameSectionReader, Parser, Payload, TypeRef};

use super::HEADER;
use metahook_core::counted;
use metahook_server::hook::wasm::compile::outline::WasmKind;
use metahook_server::telemetry::escape;

/// Rows of each part; the others are added up.
const MAX_ROWS: usize = 12;

/// Entry of the functions whose names name no crate: those of C, and of the linker.
const NO_CRATE: &str = "no crate: C, the linker, imports";

/// Bytes by what they are of, the most first.
#[derive(Debug, Clone, PartialEq)]
pub struct SizeReport {
    sections: Vec<(String, usize)>,
    /// Bytes of the code by crate; Go's packages count as crates. Empty where functions have no names.
    crates: Vec<(String, usize)>,
}

/// The report of a module.
pub fn measure(module: &[u8]) -> Result<SizeReport, BinaryReaderError> {
    let (mut sections, mut bodies) = (BTreeMap::new(), Vec::new());
    let (mut imported, mut names) = (0_u32, BTreeMap::new());
    let mut start = HEADER.len();
    for payload in Parser::new(0).parse_all(module) {
        let payload = payload?;
        match &payload {
            Payload::ImportSection(imports) => {
                for import in imports.clone().into_imports() {
                    imported += u32::from(matches!(import?.ty, TypeRef::Func(_) | TypeRef::FuncExact(_)));
                }
            }
            Payload::CodeSectionEntry(body) => bodies.push(body.range().len()),
            Payload::CustomSection(section) => {
                if let KnownCustom::Name(reader) = section.as_known() {
                    names = function_names(reader);
                }
            }
            _ => {}
        }
        // Of a component the sections of its modules are counted.
        if matches!(payload, Payload::ModuleSection { .. } | Payload::ComponentSection { .. }) {
            continue;
        }
        if let Payload::Version { range, .. } = &payload {
            start = range.end;
        }
        let Some((_, range)) = payload.as_section() else { continue };
        *sections.entry(section_name(&payload)).or_default() += range.end.saturating_sub(start);
        start = range.end;
    }
    let mut crates = BTreeMap::new();
    // The functions of a component are numbered by module.
    if !names.is_empty() && WasmKind::of(module) == WasmKind::Module {
        for (index, size) in (imported..).zip(bodies) {
            let owner = names.get(&index).and_then(|name| crate_of(name));
            *crates.entry(owner.unwrap_or_else(|| NO_CRATE.to_owned())).or_default() += size;
        }
    }
    Ok(SizeReport { sections: largest_first(sections), crates: largest_first(crates) })
}

/// Up to the first name that cannot be read: no server reads that section.
fn function_names(reader: NameSectionReader<'_>) -> BTreeMap<u32, &str> {
    let maps = reader.into_iter().map_while(Result::ok);
    let functions = maps.filter_map(|map| if let Name::Function(names) = map { Some(names) } else { None });
    let all = functions.flat_map(|names| names.into_iter().map_while(Result::ok));
    all.map(|naming| (naming.index, naming.name)).collect()
}

fn section_name(payload: &Payload<'_>) -> String {
    let name = match payload {
        Payload::TypeSection(_) => "types",
        Payload::ImportSection(_) => "imports",
        Payload::FunctionSection(_) => "functions",
        Payload::TableSection(_) => "tables",
        Payload::MemorySection(_) => "memories",
        Payload::GlobalSection(_) => "globals",
        Payload::ExportSection(_) => "exports",
        Payload::ElementSection(_) => "elements",
        Payload::CodeSectionStart { .. } => "code",
        Payload::DataSection(_) => "data",
        Payload::CustomSection(section) if section.name() == "name" => "names of functions",
        Payload::CustomSection(section) => return format!("custom section {}", escape(section.name())),
        _ => "other sections",
    };
    name.to_owned()
}

/// The crate, or Go's package, that a function's name begins with.
fn crate_of(name: &str) -> Option<String> {
    let name = format!("{:#}", rustc_demangle::demangle(name));
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    // `<&T as core::fmt::Debug>::fmt` is core's.
    let rust = name.match_indices("::").find_map(|(at, _)| {
        let before = name.get(..at)?;
        let word = before.get(before.trim_end_matches(is_word).len()..)?;
        (!word.is_empty()).then(|| word.to_owned())
    });
    rust.or_else(|| {
        let name = name.trim_start_matches(['(', '*']);
        let path = name.split(['(', ')', '[', ' ', '$']).next()?;
        let folder = path.rfind('/').map_or(0, |at| at + 1);
        let end = folder + path.get(folder..)?.find('.')?;
        let package = path.get(..end).filter(|package| package.starts_with(char::is_alphabetic))?;
        package.chars().all(|c| is_word(c) || "/.-".contains(c)).then(|| package.to_owned())
    })
}

fn largest_first(all: BTreeMap<String, usize>) -> Vec<(String, usize)> {
    let mut all: Vec<_> = all.into_iter().collect();
    all.sort_by(|(one, size), (other, other_size)| other_size.cmp(size).then_with(|| one.cmp(other)));
    all
}

impl fmt::Display for SizeReport {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(out, "by section:")?;
        rows(&self.sections, out)?;
        if self.crates.is_empty() {
            return writeln!(
                out,
                "code by crate: functions have no names (Cargo's profile keeps them with `strip = \"debuginfo\"`)"
            );
        }
        writeln!(out, "code by crate:")?;
        rows(&self.crates, out)
    }
}

fn rows(all: &[(String, usize)], out: &mut fmt::Formatter<'_>) -> fmt::Result {
    let (shown, others) = all.split_at(all.len().min(MAX_ROWS));
    shown.iter().try_for_each(|(name, size)| writeln!(out, "{size:>10}  {name}"))?;
    if others.is_empty() {
        return Ok(());
    }
    let size: usize = others.iter().map(|(_, size)| size).sum();
    writeln!(out, "{size:>10}  {}", counted(others.len(), "other", "others"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_begins_with_its_crate() {
        let of = |name: &str| crate_of(name).unwrap_or_default();
        for (name, expected) in [
            ("demo::main", "demo"),
            ("_ZN4core3fmt9Formatter3pad17h0123456789abcdefE", "core"),
            ("_RNvCs15kBYyAo9fc_7mycrate7example", "mycrate"),
            ("<alloc::string::String as core::fmt::Write>::write_str", "alloc"),
            ("<&T as core::fmt::Debug>::fmt", "core"),
            ("<str>::trim", ""),
            ("runtime.alloc", "runtime"),
            ("encoding/json.Unmarshal", "encoding/json"),
            ("(*encoding/json.decodeState).value", "encoding/json"),
            ("github.com/a/b-c.F[go.shape.int]", "github.com/a/b-c"),
            ("dlmalloc", ""),
            ("__wasm_call_ctors", ""),
            ("", ""),
            (".x", ""),
            ("interface:{}.F", ""),
        ] {
            assert_eq!(of(name), expected, "{name}");
        }
    }

    #[test]
    fn each_byte_but_the_header_is_of_a_section() {
        let module = wat::parse_str(
            r#"(module (import "a" "b" (func $imported)) (memory 1) (data (i32.const 0) "0123456789")
                 (func $"demo::main" (drop (i64.const 9223372036854775807))) (func $"demo::more") (func $"core::fmt::f")
                 (func $malloc) (@custom ".debug\1b" "debug"))"#,
        )
        .unwrap();
        let report = measure(&module).unwrap();
        let sum: usize = report.sections.iter().map(|(_, size)| size).sum();
        assert_eq!(sum + HEADER.len(), module.len(), "{report}");
        let text = report.to_string();
        for name in ["  names of functions\n", "  data\n", "  custom section .debug\\u{1b}\n", "  code\n"] {
            assert!(text.contains(name), "{name} is not in {text}");
        }
        let owner = |name: &str, size| (name.to_owned(), size);
        assert_eq!(report.crates, [owner("demo", 16), owner("core", 2), owner(NO_CRATE, 2)], "{text}");
    }

    #[test]
    fn small_rows_are_added_up() {
        let crates = (1..=MAX_ROWS + 2).map(|size| (format!("c{size}"), size)).collect();
        let report = SizeReport { sections: Vec::new(), crates: largest_first(crates) };
        let text = report.to_string();
        assert!(text.ends_with("         3  c3\n         3  2 others\n"), "{text}");
        let exact = (1..=MAX_ROWS).map(|size| (format!("c{size}"), size)).collect();
        let report = SizeReport { sections: Vec::new(), crates: largest_first(exact) };
        assert!(report.to_string().ends_with("         1  c1\n"));
    }

    #[test]
    fn what_has_no_names_says_so_and_what_is_broken_is_refused() {
        let report = measure(&wat::parse_str("(module (func))").unwrap()).unwrap();
        assert!(report.to_string().contains("functions have no names"), "{report}");
        let broken_names = [&HEADER[..], &[0, 7, 4, b'n', b'a', b'm', b'e', 1, 9]].concat();
        assert_eq!(measure(&broken_names).unwrap().crates, []);
        assert!(measure(b"\0asm\x01\0\0\0\x01\xff").is_err());
    }
}
