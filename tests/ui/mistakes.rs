//! Users see the expected messages about their mistakes, as rustc shows them.

use std::fs;
use std::path::Path;

#[test]
fn mistakes_are_shown_at_their_tokens() {
    trybuild::TestCases::new().compile_fail("cases/*.rs");
}

/// A message of the catalogue, split into the texts around its placeholders.
struct Message {
    name: String,
    parts: Vec<String>,
}

/// Parses the lines `name(args) = "text";` of the catalogue.
fn catalogue(source: &str) -> Vec<Message> {
    let message = |line: &str| {
        let (head, text) = line.trim().split_once(") = \"")?;
        let (name, _) = head.split_once('(')?;
        let text = text.strip_suffix("\";")?.replace("{{", "\u{1}").replace("}}", "\u{2}");
        let parts = text.split(['{', '}']).step_by(2);
        let parts = parts.map(|part| part.replace('\u{1}', "{").replace('\u{2}', "}"));
        Some(Message { name: name.into(), parts: parts.collect() })
    };
    source.lines().filter_map(message).collect()
}

impl Message {
    /// Returns true if the message is part of a line, with any texts in its placeholders.
    fn is_in(&self, line: &str) -> bool {
        let mut rest = line;
        for part in &self.parts {
            let Some(at) = rest.find(part.as_str()) else { return false };
            rest = &rest[at + part.len()..];
        }
        true
    }
}

#[test]
fn every_message_is_shown_in_a_case() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let catalogue = catalogue(&fs::read_to_string(root.join("../../fusion-compiler/src/diag.rs")).unwrap());
    assert!(catalogue.len() > 100, "{} messages", catalogue.len());
    let cases = fs::read_dir(root.join("cases")).unwrap().map(|entry| entry.unwrap().path());
    let shown: String = cases
        .filter(|path| path.extension().is_some_and(|extension| extension == "stderr"))
        .map(|path| fs::read_to_string(path).unwrap())
        .collect();
    let unseen: Vec<&str> = catalogue
        .iter()
        .filter(|message| !shown.lines().any(|line| message.is_in(line)))
        .map(|message| message.name.as_str())
        .collect();
    assert_eq!(unseen, [""; 0]);
}
