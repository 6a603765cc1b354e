//! Circles between modules: each module of a folder may use its siblings, and none of them may lead back to it.
//!
//! A module is its file or folder with all that lies in it. What counts are the paths in a crate's own code, `crate::…`,
//! `super::…` and `self::…`, in use-statements and elsewhere, but for tests. A folder's `mod.rs` and its modules may use
//! each other. A name that a module imports stands for the module that it is imported from.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;

use super::tokens::{Token, product};

/// Modules that use each other in turn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Circle {
    arrows: Vec<Arrow>,
}

/// One module uses another of the same folder, for example here.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Arrow {
    from: String,
    to: String,
    example: String,
}

impl fmt::Display for Circle {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.arrows.iter().map(|arrow| arrow.from.as_str()).collect();
        let first = names.first().copied().unwrap_or_default();
        writeln!(out, "{} -> {first}", names.join(" -> "))?;
        for Arrow { from, to, example } in &self.arrows {
            writeln!(out, "  {from} -> {to}: {example}")?;
        }
        Ok(())
    }
}

type Path = Vec<String>;

/// The circles in the files of one crate, given as paths below its `src` and texts: for each arrow that is part of one
/// the shortest, shorter ones first.
pub(super) fn circles(files: &[(String, String)]) -> Vec<Circle> {
    let uses = uses(files);
    let mut folders: BTreeMap<Path, BTreeMap<(String, String), String>> = BTreeMap::new();
    for Use { from, to, example } in &uses {
        let common = from.iter().zip(to).take_while(|(one, other)| one == other).count();
        if let (Some(one), Some(other)) = (from.get(common), to.get(common)) {
            let folder = from.get(..common).unwrap_or_default().to_vec();
            let arrows = folders.entry(folder).or_default();
            arrows.entry((one.clone(), other.clone())).or_insert_with(|| example.clone());
        }
    }
    let mut found: Vec<Circle> = folders.iter().flat_map(|(folder, arrows)| within(folder, arrows)).collect();
    found.sort_by_key(|circle| circle.arrows.len());
    found
}

/// The circles between the modules of one folder.
fn within(folder: &[String], arrows: &BTreeMap<(String, String), String>) -> Vec<Circle> {
    let named = |name: &String| [folder, std::slice::from_ref(name)].concat().join("::");
    let mut seen = BTreeSet::new();
    let mut found = Vec::new();
    for (from, to) in arrows.keys() {
        let Some(back) = shortest(to, from, arrows) else {
            continue;
        };
        let mut members = back.clone();
        members.sort();
        if !seen.insert(members) {
            continue;
        }
        let round: Vec<&String> = [from].into_iter().chain(&back).collect();
        let steps = round.windows(2).filter_map(|step| match step {
            [from, to] => Some((*from, *to)),
            _ => None,
        });
        let arrow = |(from, to): (&String, &String)| Arrow {
            from: named(from),
            to: named(to),
            example: arrows.get(&(from.clone(), to.clone())).cloned().unwrap_or_default(),
        };
        found.push(Circle { arrows: steps.map(arrow).collect() });
    }
    found
}

/// The modules on the shortest way, both ends included.
fn shortest(from: &String, to: &String, arrows: &BTreeMap<(String, String), String>) -> Option<Path> {
    let mut ways = VecDeque::from([vec![from.clone()]]);
    let mut reached = BTreeSet::from([from]);
    while let Some(way) = ways.pop_front() {
        let last = way.last()?;
        if last == to {
            return Some(way);
        }
        for (_, next) in arrows.keys().filter(|(from, _)| from == last) {
            if reached.insert(next) {
                ways.push_back([way.as_slice(), std::slice::from_ref(next)].concat());
            }
        }
    }
    None
}

/// A module uses another, as one line of it shows.
struct Use {
    from: Path,
    to: Path,
    example: String,
}

/// A path as it is written: from the module that names it, which may be one within a file.
struct Written {
    scope: Path,
    path: Path,
    /// The name that it is imported by.
    import: Option<String>,
    line: usize,
}

fn uses(files: &[(String, String)]) -> Vec<Use> {
    let products: Vec<_> =
        files.iter().map(|(file, text)| (file.as_str(), module(file), product(text))).collect();
    let tests: BTreeSet<Path> = products
        .iter()
        .flat_map(|(_, module, product)| product.test_modules.iter().map(|name| child(module, name)))
        .collect();
    let for_tests = |module: &Path| prefixes(module).any(|prefix| tests.contains(prefix));
    let products: Vec<_> = products.into_iter().filter(|(_, module, _)| !for_tests(module)).collect();
    let modules: BTreeSet<Path> = products.iter().map(|(_, module, _)| module.clone()).collect();
    let written: Vec<_> = products
        .iter()
        .map(|(file, module, product)| (*file, module, paths(module, &product.tokens)))
        .collect();
    let imports: BTreeMap<Path, Path> = written
        .iter()
        .flat_map(|(_, _, paths)| paths)
        .filter_map(|path| {
            let name = path.import.as_ref()?;
            Some((child(&path.scope, name), absolute(path, &modules)?))
        })
        .collect();
    let mut uses = Vec::new();
    for (file, module, paths) in &written {
        for path in paths {
            if let Some(target) = absolute(path, &modules) {
                let to = home(target.clone(), &modules, &imports);
                let example = format!("{file}:{}: crate::{}", path.line, target.join("::"));
                uses.push(Use { from: (*module).clone(), to, example });
            }
        }
    }
    uses
}

/// The module that a path leads to: names that a module on the way has imported are followed.
fn home(mut target: Path, modules: &BTreeSet<Path>, imports: &BTreeMap<Path, Path>) -> Path {
    const MAX_IMPORTS: usize = 10;
    for _ in 0..MAX_IMPORTS {
        let length = prefixes(&target).filter(|prefix| modules.contains(*prefix)).map(<[_]>::len).max();
        let length = length.unwrap_or_default();
        let imported = target.get(..=length).and_then(|name| imports.get(name));
        match imported {
            Some(path) if *path != target => {
                target = [path.as_slice(), target.get(length + 1..).unwrap_or_default()].concat();
            }
            _ => {
                target.truncate(length);
                return target;
            }
        }
    }
    target
}

/// From the crate's root; none if the path leads to another crate.
fn absolute(written: &Written, modules: &BTreeSet<Path>) -> Option<Path> {
    let first = written.path.first()?;
    let mut base = match first.as_str() {
        "crate" => Vec::new(),
        "self" | "super" => written.scope.clone(),
        name if modules.contains(&child(&written.scope, name)) => written.scope.clone(),
        _ => return None,
    };
    let mut path = written.path.as_slice();
    while let Some((first, rest)) = path.split_first() {
        match first.as_str() {
            "crate" | "self" => {}
            "super" => drop(base.pop()),
            _ => break,
        }
        path = rest;
    }
    base.extend_from_slice(path);
    Some(base)
}

/// `a::b` of `a/b.rs` and of `a/b/mod.rs`.
fn module(file: &str) -> Path {
    let mut names: Path = file.trim_end_matches(".rs").split('/').map(str::to_owned).collect();
    let last = names.last().map(String::as_str);
    if last == Some("mod") || names.len() == 1 && matches!(last, Some("lib" | "main")) {
        names.pop();
    }
    names
}

/// All beginnings of a path but the empty one.
fn prefixes(path: &[String]) -> impl Iterator<Item = &[String]> {
    (1..=path.len()).filter_map(|length| path.get(..length))
}

fn child(module: &[String], name: &str) -> Path {
    [module, &[name.to_owned()]].concat()
}

/// All paths that a file names.
fn paths(module: &Path, tokens: &[Token]) -> Vec<Written> {
    let mut found = Vec::new();
    let mut scope = module.clone();
    let mut inner: Vec<usize> = Vec::new(); // depths at which modules within the file began
    let mut depth = 0_usize;
    let mut at = 0;
    while let Some(token) = tokens.get(at) {
        let rest = tokens.get(at..).unwrap_or_default();
        at += 1;
        match token.text.as_str() {
            "{" => depth += 1,
            "}" => {
                depth = depth.saturating_sub(1);
                if inner.last() == Some(&depth) {
                    inner.pop();
                    scope.pop();
                }
            }
            "mod" => {
                if let [_, name, brace, ..] = rest
                    && brace.is("{")
                {
                    scope.push(name.text.clone());
                    inner.push(depth);
                }
            }
            "use" if !rest.get(1).is_some_and(|next| next.is("<")) => {
                let end = rest.iter().position(|token| token.is(";")).unwrap_or(rest.len());
                tree(&scope, rest.get(1..end).unwrap_or_default(), &[], &mut found);
                at += end;
            }
            "crate" | "super" | "self" if rest.get(1).is_some_and(|next| next.is("::")) => {
                let path = plain(rest);
                at += path.len() * 2 - 2;
                found.push(Written { scope: scope.clone(), path, import: None, line: token.line });
            }
            _ => {}
        }
    }
    found
}

/// `a::b::c` at the beginning.
fn plain(tokens: &[Token]) -> Path {
    let mut path = Vec::new();
    let mut rest = tokens;
    while let [word, after @ ..] = rest
        && word.is_word()
    {
        path.push(word.text.clone());
        match after {
            [colons, next @ ..] if colons.is("::") => rest = next,
            _ => break,
        }
    }
    path
}

/// The paths of a use-tree, which ends before a `,` or `}`; how many tokens it has.
fn tree(scope: &Path, tokens: &[Token], prefix: &[String], found: &mut Vec<Written>) -> usize {
    let mut path = prefix.to_vec();
    let mut alias = None;
    let mut glob = false;
    let mut at = 0;
    while let Some(token) = tokens.get(at) {
        at += 1;
        match token.text.as_str() {
            "," | "}" => {
                at -= 1;
                break;
            }
            "{" => {
                while let Some(token) = tokens.get(at)
                    && !token.is("}")
                {
                    let branch = tokens.get(at..).unwrap_or_default();
                    at += if token.is(",") { 1 } else { tree(scope, branch, &path, found) };
                }
                return at + 1;
            }
            "as" => {
                alias = tokens.get(at).map(|name| name.text.clone());
                at += 1;
            }
            "*" => glob = true,
            "self" if !path.is_empty() => {}
            _ if token.is_word() => path.push(token.text.clone()),
            _ => {}
        }
    }
    let import = if glob { None } else { alias.or_else(|| path.last().cloned()) };
    let line = tokens.first().map_or(0, |token| token.line);
    found.push(Written { scope: scope.clone(), path, import, line });
    at
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(files: &[(&str, &str)]) -> Vec<String> {
        let files: Vec<_> =
            files.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned())).collect();
        circles(&files).iter().map(Circle::to_string).collect()
    }

    #[test]
    fn a_tree_without_a_circle_has_none() {
        let files = [
            ("lib.rs", "mod low; mod high; pub use high::top; use crate::low::Low;"),
            ("low/mod.rs", "mod a; mod b; use crate::low::a::A; pub struct Low;"),
            ("low/a.rs", "use super::Low; use super::b::{self, B}; pub struct A;"),
            ("low/b.rs", "use std::fmt; use other::high::top; // use crate::high"),
            ("high.rs", "use crate::low::Low; fn text() { \"crate::high::x\" }"),
        ];
        assert_eq!(found(&files), [""; 0]);
    }

    #[test]
    fn a_circle_is_named_with_a_line_for_each_arrow() {
        let files = [
            ("lib.rs", "mod a; mod b; mod c;"),
            ("a/mod.rs", "mod deep;"),
            ("a/deep.rs", "\nuse crate::{b::B, other};"),
            ("b.rs", "fn b() -> crate::c::C { }"),
            ("c.rs", "use super::a;"),
        ];
        let circle = "a -> b -> c -> a
  a -> b: a/deep.rs:2: crate::b::B
  b -> c: b.rs:1: crate::c::C
  c -> a: c.rs:1: crate::a
";
        assert_eq!(found(&files), [circle]);
    }

    #[test]
    fn siblings_in_a_folder_may_not_go_round_either() {
        let files = [
            ("lib.rs", "mod a;"),
            ("a/mod.rs", "pub mod one; pub mod two;"),
            ("a/one.rs", "use super::two::Two;"),
            ("a/two.rs", "mod inner { use super::super::one::One as Other; }"),
        ];
        let circle = "a::one -> a::two -> a::one
  a::one -> a::two: a/one.rs:1: crate::a::two::Two
  a::two -> a::one: a/two.rs:1: crate::a::one::One
";
        assert_eq!(found(&files), [circle]);
    }

    #[test]
    fn an_imported_name_stands_for_where_it_is_imported_from() {
        let files = [
            ("lib.rs", "mod a; mod b; pub use b::Name;"),
            ("a.rs", "use crate::Name;"),
            ("b.rs", "use crate::a;"),
        ];
        assert_eq!(found(&files).len(), 1);
    }

    #[test]
    fn tests_may_use_everything() {
        let files = [
            ("lib.rs", "mod a; mod b; #[cfg(test)] mod fake;"),
            ("a.rs", "use crate::b; #[cfg(test)] mod tests { use crate::fake; }"),
            ("b.rs", "#[cfg(test)] mod tests { use crate::a; }"),
            ("fake.rs", "use crate::a;"),
        ];
        assert_eq!(found(&files), [""; 0]);
    }
}
