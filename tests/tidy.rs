//! Checks of the sources and documents themselves: names, links, lengths and imports.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Largest number of lines of a source file.
const FILE_MAX: usize = 800;

/// Documents with a limit on their lines.
const DOCUMENTS: [(&str, usize); 3] =
    [("README.md", 150), ("ARCHITECTURE.md", 200), ("CONTRIBUTING.md", 100)];

/// Names that `GLOSSARY.md` replaced.
const REPLACED: [&str; 19] = [
    "Reach",
    "Sight",
    "Dealt",
    "Among",
    "Mail",
    "Ways",
    "HeldPart",
    "Holds",
    "Unheld",
    "lies_beside",
    "Avx512Halves",
    "after_all",
    "Follower",
    "held_of",
    "held_values",
    "set_turns",
    "writes_beside",
    "Fetches",
    "PointwiseWay",
];

/// Directories of sources.
const SOURCES: [&str; 8] = [
    "src",
    "fusion-compiler",
    "fusion-macros/src",
    "fusion-runtime/src",
    "tests",
    "examples",
    "benches",
    "docs",
];

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// Collects the files below a directory that have one of these extensions, in order.
fn files(directory: &Path, extensions: &[&str], found: &mut Vec<PathBuf>) {
    let mut entries: Vec<PathBuf> =
        fs::read_dir(directory).expect("a directory").map(|entry| entry.expect("an entry").path()).collect();
    entries.sort();
    for path in entries {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if path.is_dir() {
            if name != "target" && !name.starts_with('.') {
                files(&path, extensions, found);
            }
        } else if path.extension().and_then(|of| of.to_str()).is_some_and(|of| extensions.contains(&of)) {
            found.push(path);
        }
    }
}

fn sources() -> Vec<(String, String)> {
    let mut found = Vec::new();
    SOURCES.iter().for_each(|directory| files(&root().join(directory), &["rs"], &mut found));
    assert!(found.len() > 300, "{} sources", found.len());
    found.into_iter().map(read).collect()
}

fn documents() -> Vec<(String, String)> {
    let mut found = Vec::new();
    files(&root(), &["md"], &mut found);
    assert!(found.len() >= 6, "{found:?}");
    found.into_iter().map(read).collect()
}

/// Returns the path of a file within the repository, and its text.
fn read(path: PathBuf) -> (String, String) {
    let text = fs::read_to_string(&path).expect("text");
    (path.strip_prefix(root()).expect("a file of ours").display().to_string(), text)
}

/// Returns the code of a line, without strings and comments.
fn code(line: &str) -> String {
    let mut code = String::new();
    for (i, part) in line.split('"').enumerate() {
        if i % 2 == 0 {
            match part.split_once("//") {
                Some((before, _)) => return code + before,
                None => code += part,
            }
        }
    }
    code
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|word| !word.is_empty())
}

#[test]
fn files_are_short() {
    for (path, text) in sources() {
        assert!(text.lines().count() <= FILE_MAX, "{path} has {} lines", text.lines().count());
    }
    for (path, most) in DOCUMENTS {
        let lines = fs::read_to_string(root().join(path)).expect(path).lines().count();
        assert!(lines <= most, "{path} has {lines} lines, of {most}");
    }
}

/// A concept has one name.
#[test]
fn replaced_names_are_gone() {
    for (path, text) in sources() {
        // The simulator has names of its own, and this file lists the replaced names.
        if path.starts_with("tests/cuda-sim") || path == "tests/tidy.rs" {
            continue;
        }
        for (number, line) in text.lines().enumerate() {
            let code = code(line);
            if let Some(word) = words(&code).find(|word| REPLACED.contains(word)) {
                panic!("{path}:{}: `{word}` has another name, see GLOSSARY.md", number + 1);
            }
        }
    }
}

/// File names in documents and comments belong to existing files: `schedule/passes.rs`, or only `passes.rs`.
#[test]
fn documents_name_files_that_exist() {
    let all: Vec<String> = {
        let mut found = Vec::new();
        files(&root(), &["rs", "md", "sh", "py", "toml", "fuse", "tsv"], &mut found);
        found.into_iter().map(|path| path.strip_prefix(root()).expect("ours").display().to_string()).collect()
    };
    let ends: BTreeSet<&str> = all
        .iter()
        .flat_map(|path| path.match_indices('/').map(|(at, _)| &path[at + 1..]).chain([path.as_str()]))
        .collect();
    let comments = sources().into_iter().map(|(path, text)| {
        let lines: Vec<&str> = text.lines().filter(|line| line.trim_start().starts_with("//")).collect();
        (path, lines.join("\n"))
    });
    for (path, text) in documents().into_iter().chain(comments) {
        for quoted in text.split('`').skip(1).step_by(2) {
            let is_path = quoted.chars().all(|c| c.is_ascii_alphanumeric() || "_-./".contains(c));
            let is_source = [".rs", ".sh", ".py"].iter().any(|end| quoted.ends_with(end));
            // Files of users.
            let is_theirs = ["main.rs", "lib.rs", "build.rs"].iter().any(|of| quoted.ends_with(of))
                || quoted.starts_with('.');
            if is_path && is_source && !is_theirs {
                assert!(ends.contains(quoted), "{path} names `{quoted}`, which is no file");
            }
        }
        if path.ends_with(".md") {
            for target in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
                let file = target.split('#').next().unwrap_or_default();
                let is_here = !file.is_empty()
                    && !file.contains(':')
                    && !file.contains(' ')
                    && !file.starts_with("crate");
                let folder = root().join(&path).parent().map(Path::to_owned).unwrap_or_default();
                let is_link = is_here && (file.contains('/') || file.contains('.'));
                assert!(!is_link || folder.join(file).exists(), "{path} links to {file}, which is not there");
            }
        }
    }
}

/// The compiler imports no runtime, and its IR imports no pass, schedule or target language.
#[test]
fn imports_go_one_way() {
    let forbidden: [(&str, &[&str]); 5] = [
        ("fusion-compiler/src/", &["fusion_runtime", "wgpu", "cust"]),
        (
            "fusion-compiler/src/ir/",
            &["crate::check", "crate::emit", "crate::schedule", "crate::legalize", "crate::fuse"],
        ),
        ("fusion-compiler/src/parse/", &["crate::check", "crate::emit", "crate::schedule", "crate::fuse"]),
        (
            "fusion-compiler/src/schedule/",
            &["crate::emit", "crate::legalize", "crate::check", "crate::report"],
        ),
        ("fusion-compiler/src/emit/", &["crate::schedule", "crate::legalize"]),
    ];
    for (path, text) in sources() {
        for (directory, names) in forbidden.iter().filter(|(directory, _)| path.starts_with(directory)) {
            let mut lines = text.lines().enumerate().take_while(|(_, line)| !line.starts_with("mod tests"));
            let import = lines.find(|(_, line)| {
                let is_use =
                    line.trim_start().starts_with("use ") || line.trim_start().starts_with("pub use ");
                is_use && names.iter().any(|name| line.contains(name))
            });
            if let Some((number, line)) = import {
                panic!("{path}:{}: nothing in {directory} imports this: {line}", number + 1);
            }
        }
    }
}
