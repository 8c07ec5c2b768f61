//! Checks of the sources and documents themselves: names, links, lengths and imports.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// Largest number of lines of a source file.
const FILE_MAX: usize = 600;

/// Documents with a limit on their lines.
const DOCUMENTS: [(&str, usize); 3] =
    [("README.md", 150), ("ARCHITECTURE.md", 200), ("CONTRIBUTING.md", 100)];

/// Names that `GLOSSARY.md` replaced.
const REPLACED: [&str; 49] = [
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
    "Way",
    "ways",
    "ways_of",
    "ways_rows",
    "Beside",
    "BESIDE",
    "are_beside",
    "lies_side_by_side",
    "reach",
    "take_turns",
    "takes_turns",
    "UNHELD",
    "unheld",
    "check_held",
    "Pick",
    "picks",
    "mail",
    "has_mail",
    "Mailbox",
    "Mailboxes",
    "mailbox",
    "mailboxes",
    "dealt",
    "is_dealt",
    "with_help",
    "Follow",
    "with_follower",
    "follower",
    "followers",
    "has_halves",
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
            // A module of the compiler is called as the directory of outputs.
            let is_output = name == "target" && !path.join("mod.rs").exists();
            if !is_output && !name.starts_with('.') {
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
        let stem = Path::new(&path).file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
        assert!(!REPLACED.contains(&stem), "{path}: `{stem}` has another name, see GLOSSARY.md");
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

/// Words that start no sentence of a doc comment: such a sentence has its verb late, or no noun.
const NO_START: [&str; 7] = ["What", "Whether", "Of", "Those", "That", "As", "Such"];

/// Directories whose comments follow the rule of first words once they are rewritten.
const EXEMPT: [&str; 3] = ["fusion-compiler/src/schedule", "fusion-compiler/src/emit", "tests/tidy.rs"];

/// Sentences of doc comments begin with a noun or a verb, and comments of all kinds begin so.
#[test]
fn sentences_begin_with_their_subject() {
    for (path, text) in sources() {
        if EXEMPT.iter().any(|exempt| path.starts_with(exempt)) {
            continue;
        }
        let (mut is_code, mut before) = (false, String::new());
        for (number, line) in text.lines().enumerate() {
            let line = line.trim_start();
            let Some(comment) = line.strip_prefix("//") else {
                (is_code, before) = (false, String::new());
                continue;
            };
            let comment = comment.trim_start_matches(['/', '!']).trim();
            is_code ^= comment.starts_with("```");
            if is_code {
                continue;
            }
            // The line goes on with the sentence of the line before, unless that one ended.
            let is_start = before.is_empty() || before.ends_with(['.', ':', '`', '?', '!']);
            let starts = is_start.then_some(comment).into_iter();
            let starts = starts.chain(comment.match_indices(". ").map(|(at, _)| &comment[at + 2..]));
            for sentence in starts {
                let first = words(sentence.trim_start_matches(['-', '*', ' '])).next().unwrap_or_default();
                let is_word = sentence.trim_start_matches(['-', '*', ' ']).starts_with(first);
                assert!(
                    !(is_word && NO_START.contains(&first)),
                    "{path}:{}: a sentence begins with `{first}`: {comment}",
                    number + 1
                );
            }
            before = comment.to_owned();
        }
    }
}

/// Documents whose sentences begin as those of comments do, beside those with a limit on their lines.
const PROSE: [&str; 2] = ["GLOSSARY.md", "docs/"];

/// Sentences of documents begin with a noun or a verb, in headings, lists and cells of tables too.
#[test]
fn sentences_of_documents_begin_with_their_subject() {
    let is_ours = |path: &str| {
        DOCUMENTS.iter().any(|(name, _)| *name == path) || PROSE.iter().any(|name| path.starts_with(name))
    };
    let ours: Vec<(String, String)> = documents().into_iter().filter(|(path, _)| is_ours(path)).collect();
    assert!(ours.len() > 4, "{} documents", ours.len());
    for (path, text) in ours {
        let (mut is_code, mut before) = (false, "");
        for (number, line) in text.lines().enumerate() {
            let line = line.trim();
            is_code ^= line.starts_with("```");
            let starts_anew =
                line.starts_with(['-', '*', '#', '|']) || before.ends_with(['.', ':', '`', '?', '!']);
            for cell in line.split('|').filter(|_| !is_code) {
                let whole = (before.is_empty() || starts_anew).then_some(cell);
                let ends = [". ", ": ", "; ", "? ", "! "].into_iter().flat_map(|end| cell.match_indices(end));
                for sentence in whole.into_iter().chain(ends.map(|(at, end)| &cell[at + end.len()..])) {
                    let is_mark = |c: char| c.is_ascii_digit() || "-*#`_.[ ".contains(c);
                    let sentence = sentence.trim_start_matches(is_mark);
                    let first = words(sentence).next().filter(|first| sentence.starts_with(first));
                    assert!(
                        first.is_none_or(|first| !NO_START.contains(&first)),
                        "{path}:{}: a sentence begins so: {sentence}",
                        number + 1
                    );
                }
            }
            before = line;
        }
    }
}

/// Largest number of words of the first sentence of a doc comment.
const WORDS_MAX: usize = 25;

/// Returns the first paragraph of each doc comment of a source, with the line on which it starts.
fn first_paragraphs(text: &str) -> Vec<(usize, String)> {
    let mut found: Vec<(usize, String)> = Vec::new();
    // The state is none outside of comments.
    let mut is_first: Option<bool> = None;
    for (number, line) in text.lines().enumerate() {
        let line = line.trim_start();
        let comment = ["///", "//!"].iter().find_map(|mark| line.strip_prefix(mark)).map(str::trim);
        match (comment, is_first, found.last_mut()) {
            (None, ..) => is_first = None,
            (Some(""), ..) => is_first = Some(false),
            (Some(comment), Some(true), Some((_, paragraph))) => *paragraph += &format!(" {comment}"),
            (Some(_), Some(_), _) => {}
            (Some(comment), None, _) => {
                found.push((number + 1, comment.to_owned()));
                is_first = Some(true);
            }
        }
    }
    found
}

/// The first sentence of a doc comment says in few words what the thing is or does.
#[test]
fn first_sentences_are_short() {
    for (path, text) in sources() {
        if EXEMPT.iter().any(|exempt| path.starts_with(exempt)) {
            continue;
        }
        for (line, paragraph) in first_paragraphs(&text) {
            let sentence = paragraph.split(". ").next().unwrap_or_default();
            let count = sentence.split_whitespace().count();
            assert!(count <= WORDS_MAX, "{path}:{line}: {count} words in the first sentence: {sentence}");
        }
    }
}

/// Directories of the sources with messages to users.
const MESSAGES: [&str; 4] = ["fusion-compiler/src", "fusion-runtime/src", "fusion-macros/src", "src/"];

/// Files whose literals are whole messages, which start in lower case.
const CATALOGUES: [&str; 4] = [
    "fusion-compiler/src/diag.rs",
    "fusion-compiler/src/diag/hints.rs",
    "fusion-compiler/src/diag/hints/functions.rs",
    "fusion-runtime/src/error.rs",
];

/// Code around literals that users never see.
const UNSEEN: [&str; 5] = ["unreachable!", "assert", "panic!", "expect(", "reason = "];

/// Words of the language that are also names of modules.
const PUBLIC: [&str; 1] = ["fast_math"];

/// Returns the string literals of a source, each with its line and the code before it in its statement.
fn literals(text: &str) -> Vec<(usize, &str, String)> {
    let (mut found, mut at) = (Vec::new(), 0);
    while let Some(start) = text[at..].find(['"', '\'', '/']).map(|i| at + i) {
        let (before, rest) = text.split_at(start);
        let len = match rest.as_bytes() {
            [b'/', b'/', ..] => rest.find('\n').unwrap_or(rest.len()),
            [b'\'', b'\\', ..] => 3 + rest[3..].find('\'').expect("the end of a character"),
            [b'\'', ..] => {
                let char = rest[1..].chars().next().map_or(0, char::len_utf8);
                if rest[1 + char..].starts_with('\'') { char + 2 } else { 1 }
            }
            [b'"', ..] => {
                let hashes = before.len() - before.trim_end_matches('#').len();
                let is_raw = before[..start - hashes].ends_with('r');
                let end = format!("\"{}", "#".repeat(if is_raw { hashes } else { 0 }));
                let mut ends = rest[1..].match_indices(&end).map(|(i, _)| 1 + i);
                let slashes = |i: &usize| rest[..*i].len() - rest[..*i].trim_end_matches('\\').len();
                let end = ends.find(|i| is_raw || slashes(i) % 2 == 0).expect("the end of a literal");
                let parts: Vec<&str> = rest[1..end].split("\\\n").map(str::trim_start).collect();
                let statement = before.rsplit([';', '{', '}']).next().unwrap_or_default();
                found.push((1 + before.lines().count(), statement, parts.concat()));
                end + 1
            }
            _ => 1,
        };
        at = start + len;
    }
    found
}

/// Returns the literals of more than two words that users may see: path, line and text.
fn messages() -> Vec<(String, usize, String)> {
    let mut messages = Vec::new();
    for (path, text) in sources() {
        if !MESSAGES.iter().any(|of| path.starts_with(of)) || path.contains("/tests") {
            continue;
        }
        let code = text.split("\nmod tests {").next().unwrap_or_default();
        for (line, before, literal) in literals(code) {
            let is_unseen = UNSEEN.iter().any(|unseen| before.contains(unseen));
            if !is_unseen && literal.split_whitespace().count() > 2 {
                messages.push((path.clone(), line, literal));
            }
        }
    }
    assert!(messages.len() > 500, "{} messages", messages.len());
    messages
}

/// Sentences of messages begin with a noun or a verb, after a colon or a semicolon too.
#[test]
fn sentences_of_messages_begin_with_their_subject() {
    for (path, line, message) in messages() {
        let is_whole = CATALOGUES.contains(&&*path);
        let ends = [": ", "; ", ". ", "? "].into_iter().flat_map(|end| message.match_indices(end));
        let later = ends.map(|(at, end)| &message[at + end.len()..]);
        for (number, sentence) in [&*message].into_iter().chain(later).enumerate() {
            let Some(first) = words(sentence).next().filter(|first| sentence.starts_with(first)) else {
                continue;
            };
            let is_wrong = |word: &&str| {
                **word == *first || word.eq_ignore_ascii_case(first) && (is_whole || number > 0)
            };
            assert!(
                !NO_START.iter().any(is_wrong),
                "{path}:{line}: a sentence begins with `{first}`: {message}"
            );
        }
    }
}

/// Messages name nothing internal: no type and no module of the compiler, and no private type of the runtime.
#[test]
fn messages_name_nothing_internal() {
    let mut names: BTreeSet<String> = REPLACED.into_iter().map(String::from).collect();
    for (path, text) in sources() {
        let is_compiler = path.starts_with("fusion-compiler/src");
        if !is_compiler && !path.starts_with("fusion-runtime/src") {
            continue;
        }
        names.extend(path.rsplit('/').next().and_then(|file| file.strip_suffix(".rs")).map(String::from));
        for line in text.lines() {
            let is_public = !is_compiler && line.trim_start().starts_with("pub ");
            let declared: Vec<&str> = words(line.trim_start()).collect();
            let kind = declared.iter().position(|word| ["struct", "enum", "trait"].contains(word));
            if let Some(name) = kind.and_then(|kind| declared.get(kind + 1)).filter(|_| !is_public) {
                names.insert((*name).to_owned());
            }
        }
    }
    // Names of one word are words of the language or of English as well.
    let is_long = |name: &String| name.contains('_') || name.chars().filter(|c| c.is_uppercase()).count() > 1;
    names.retain(|name| is_long(name) && !PUBLIC.contains(&&**name));
    assert!(names.len() > 100, "{names:?}");
    for (path, line, message) in messages() {
        let texts: Vec<&str> = message.split(['{', '}']).step_by(2).collect();
        if let Some(name) = texts.iter().flat_map(|text| words(text)).find(|word| names.contains(*word)) {
            panic!("{path}:{line}: a message names `{name}`: {message}");
        }
    }
}

/// The modules of a crate, by the files and directories of its sources, without those that tie them together.
fn modules(root_of: &str) -> BTreeMap<String, BTreeSet<String>> {
    let directory = format!("{root_of}/");
    let own = sources().into_iter().filter_map(|(path, text)| {
        let inner = path.strip_prefix(&directory)?.to_owned();
        (!inner.contains("tests")).then_some((inner, text))
    });
    let mut modules: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (path, text) in own {
        let name = path.split(['/', '.']).next().unwrap_or_default().to_owned();
        if ["lib", "pipeline"].contains(&&*name) {
            continue;
        }
        let imports = modules.entry(name.clone()).or_default();
        let code = text.split("\nmod tests {").next().unwrap_or_default();
        for import in code.split("use crate::").skip(1).filter_map(|rest| rest.split(';').next()) {
            let names: Vec<&str> = match import.strip_prefix('{') {
                Some(list) => list.split(',').filter_map(|one| words(one).next()).collect(),
                None => words(import).take(1).collect(),
            };
            imports.extend(names.into_iter().filter(|other| *other != name).map(String::from));
        }
    }
    modules
}

/// Crates whose modules import each other one way.
const LAYERED: [&str; 2] = ["fusion-compiler/src", "fusion-runtime/src"];

/// No two modules of a crate import each other, directly or through others.
#[test]
fn modules_form_no_circle() {
    for root_of in LAYERED {
        let mut left = modules(root_of);
        assert!(left.len() > 10, "{root_of}: {left:?}");
        // Modules that import none of those that are left are not part of a circle.
        loop {
            let names: BTreeSet<String> = left.keys().cloned().collect();
            let before = left.len();
            left.retain(|_, imports| imports.iter().any(|import| names.contains(import)));
            if left.len() == before {
                break;
            }
        }
        for imports in left.values_mut() {
            imports.retain(|import| import.starts_with(char::is_lowercase));
        }
        assert!(left.is_empty(), "{root_of}: these modules import each other: {left:?}");
    }
}

/// Directories of the compiler whose files import each other one way.
const ONE_WAY: [&str; 4] = ["check", "parse", "schedule", "emit/rust"];

/// Pairs of files that import each other: a value holds a weak number, which makes nodes; an argument is an
/// expression, which may be a call; and a body is defined in two files.
const PAIRS: [(&str, &str); 3] = [("build", "weak"), ("call", "expr"), ("body", "staged_buffer")];

/// Returns the names after `use`, each with the path up to its module, of a file at this depth below a directory.
fn siblings(text: &str, depth: usize) -> BTreeSet<String> {
    let prefix = format!("use {}", "super::".repeat(depth + 1));
    let code = text.split("\nmod tests {").next().unwrap_or_default();
    let imports = code.split(&prefix).skip(1).filter_map(|rest| rest.split(';').next());
    imports
        .flat_map(|import| match import.strip_prefix('{') {
            Some(list) => list.split(',').filter_map(|one| words(one).next()).map(String::from).collect(),
            None => words(import).take(1).map(String::from).collect::<Vec<_>>(),
        })
        .collect()
}

/// No two files of a directory import each other, except for the listed pairs.
#[test]
fn files_of_a_directory_import_one_way() {
    for directory in ONE_WAY {
        let mut imports: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for (path, text) in sources() {
            let Some(inner) = path.strip_prefix(&format!("fusion-compiler/src/{directory}/")) else {
                continue;
            };
            let name = inner.split(['/', '.']).next().unwrap_or_default();
            if !inner.contains("tests") && name != "mod" {
                let found = siblings(&text, inner.matches('/').count());
                imports.entry(name.to_owned()).or_default().extend(found);
            }
        }
        assert!(imports.len() > 4, "{directory}: {imports:?}");
        for (one, others) in &imports {
            for other in others.iter().filter(|other| one < *other) {
                let back = imports.get(other).is_some_and(|imports| imports.contains(one));
                assert!(
                    !back || PAIRS.contains(&(one.as_str(), other.as_str())),
                    "{directory}: `{one}` and `{other}` import each other"
                );
            }
        }
    }
}

/// ARCHITECTURE.md has every module of the compiler and of the runtime.
#[test]
fn the_architecture_names_every_module() {
    let text = fs::read_to_string(root().join("ARCHITECTURE.md")).expect("text");
    for root_of in LAYERED {
        for name in modules(root_of).keys() {
            let is_named =
                [format!("`{name}.rs`"), format!("`{name}/`")].iter().any(|name| text.contains(name));
            assert!(is_named, "ARCHITECTURE.md lacks `{name}` of {root_of}");
        }
    }
}
