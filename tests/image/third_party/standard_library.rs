//! Rust's standard library and the crates in it: the toolchain has their notices as a page of HTML.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use binaries::paths;

use super::Notices;

/// Below the toolchain's folder, with the texts that the page names.
const FOLDER: &str = "share/doc/rust";
const PAGE: &str = "COPYRIGHT-library.html";
const TEXTS: [&str; 2] = ["licenses/MIT.txt", "licenses/Unicode-3.0.txt"];

/// Beginnings of the names of crates that it has on other systems than Linux and WASI.
const ELSEWHERE: [&str; 7] = ["fortanix-", "hermit-", "moto-", "r-efi-", "vex-", "windows-", "windows_"];

/// Where the page goes on with the crates.
const CRATES: &str = "<h2 id=\"out-of-tree-dependencies\">";

pub(super) fn add(notices: &mut Notices) -> Result<()> {
    let version = rustc(&["--version"])?;
    let version = version.split_whitespace().nth(1).context("rustc says no version")?;
    let folder = PathBuf::from(rustc(&["--print", "sysroot"])?).join(FOLDER);
    let part = format!("Rust's standard library {version}");
    let read = |path: &Path| {
        fs::read_to_string(path)
            .with_context(|| format!("no licence of {part}: {} cannot be read", path.display()))
    };
    for text in TEXTS {
        notices.text(&part, &read(&folder.join(text))?);
    }
    notices.text(&part, &read(&paths::workspace().join("LICENSE"))?);
    let page = read(&folder.join(PAGE))?;
    of_page(notices, &part, &page).with_context(|| format!("{PAGE} of Rust {version} is not as it was"))
}

/// What the page says of the library itself, then a section for each crate.
fn of_page(notices: &mut Notices, part: &str, page: &str) -> Result<()> {
    let (library, crates) = page.split_once(CRATES).context("it has no list of crates")?;
    let (_, library) = library.split_once("</ul>").context("it has no contents")?;
    let lines = shown(library);
    let lines: Vec<&str> = lines.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    notices.add(part, "MIT OR Apache-2.0", &lines.join("\n"));
    for section in crates.split("<h3>").skip(1) {
        let (name, section) = section.split_once("</h3>").context("a heading does not end")?;
        let name = name.trim_start_matches(|c: char| !c.is_ascii());
        let name = name.trim();
        if ELSEWHERE.iter().any(|start| name.starts_with(start)) {
            continue;
        }
        let licence =
            between(section, "<b>License:</b>", "</p>").with_context(|| format!("{name} has no licence"))?;
        let mut rest = section;
        while let Some((_, text)) = rest.split_once("<pre>") {
            let (text, after) =
                text.split_once("</pre>").with_context(|| format!("a text of {name} does not end"))?;
            notices.add(
                &format!("{name} (in Rust's standard library)"),
                &shown(licence).trim().replace('/', " OR "),
                &shown(text),
            );
            rest = after;
        }
    }
    Ok(())
}

fn between<'a>(text: &'a str, before: &str, after: &str) -> Option<&'a str> {
    Some(text.split_once(before)?.1.split_once(after)?.0)
}

/// HTML as a browser shows it: without tags, and each sign as itself.
fn shown(html: &str) -> String {
    let text: String = html
        .split('<')
        .enumerate()
        .map(|(nth, part)| if nth == 0 { part } else { part.split_once('>').map_or("", |(_, text)| text) })
        .collect();
    let signs = [
        ("&#34;", "\""),
        ("&#39;", "'"),
        ("&#60;", "<"),
        ("&#62;", ">"),
        ("&lt;", "<"),
        ("&gt;", ">"),
        ("&quot;", "\""),
    ];
    let text = signs.iter().fold(text, |text, (name, sign)| text.replace(name, sign));
    text.replace("&#38;", "&").replace("&amp;", "&")
}

fn rustc(args: &[&str]) -> Result<String> {
    let output = Command::new("rustc").args(args).current_dir(paths::workspace()).output();
    let output = output.context("cannot run rustc")?;
    ensure!(output.status.success(), "rustc {} failed ({})", args.join(" "), output.status);
    Ok(String::from_utf8(output.stdout)?.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOP: &str = "<ul><li>contents</li></ul><p>The <b>library</b> is dual-licensed.</p>\n";

    #[test]
    fn a_crate_has_each_text_of_its_section_and_those_of_other_systems_have_none() {
        let page = format!(
            "{TOP}{CRATES}</h2><h3>📦 a-1</h3><p><b>License:</b> MIT/Zlib</p><pre>\n&#34;x&#34; &#60;y&#62; &#38;lt;\n</pre><pre>two</pre>\
             <h3>📦 windows-sys-1</h3><p><b>License:</b> MIT</p><pre>three</pre>"
        );
        let mut notices = Notices::default();
        of_page(&mut notices, "library", &page).unwrap();
        let text = notices.print();
        assert!(
            text.contains("- a-1 (in Rust's standard library): MIT OR Zlib\n- library: MIT OR Apache-2.0\n"),
            "{text}"
        );
        assert!(text.contains("\"x\" <y> &lt;") && text.contains("two") && !text.contains("three"), "{text}");
        assert!(text.contains("The library is dual-licensed."), "{text}");
    }

    #[test]
    fn a_page_of_another_form_is_an_error() {
        let page = format!("{TOP}{CRATES}</h2><h3>📦 a-1</h3><pre>one</pre>");
        let error = of_page(&mut Notices::default(), "library", &page).unwrap_err();
        assert!(error.to_string().contains("a-1 has no licence"), "{error}");
        assert!(of_page(&mut Notices::default(), "library", "<html></html>").is_err());
    }

    #[test]
    fn this_toolchain_has_the_page() {
        let mut notices = Notices::default();
        add(&mut notices).unwrap();
        assert!(notices.parts.keys().any(|part| part.starts_with("hashbrown-")), "{:?}", notices.parts);
    }
}
