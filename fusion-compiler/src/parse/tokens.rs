//! The parser's view of the tokens of one group: words, symbols and groups, each with its place.
//!
//! Invariant: symbols are split as Rust's lexer splits them. Invisible groups are transparent, except at the
//! start of an operand, where they act as parentheses.

use proc_macro2::extra::DelimSpan;
use proc_macro2::{Delimiter, Spacing, Span, TokenStream, TokenTree};
use syn::buffer::Cursor;

use super::ast::{At, Dim, Name};
use crate::diag::{self, Diagnostics, Message};

/// The tokens that the tree refers to.
#[derive(Debug, Default)]
pub(crate) struct Places {
    /// Span of each token.
    pub(crate) spans: Vec<Span>,
    /// Text of each token.
    pub(crate) texts: Vec<String>,
}

impl Places {
    fn add(&mut self, span: Span, text: impl Into<String>) -> At {
        self.spans.push(span);
        self.texts.push(text.into());
        At(self.spans.len() as u32 - 1)
    }

    /// Returns the span of the token.
    pub(crate) fn span(&self, at: At) -> Span {
        self.spans[at.0 as usize]
    }

    /// Returns the token as written.
    pub(crate) fn text(&self, at: At) -> &str {
        &self.texts[at.0 as usize]
    }
}

/// A Rust expression in the inline form.
#[derive(Debug)]
pub(crate) struct Capture {
    /// Text of the expression as the user wrote it.
    pub(crate) text: String,
    pub(crate) tokens: TokenStream,
    /// Dims after the expression: `[N, D]`.
    pub(crate) dims: Option<Vec<Dim>>,
    pub(crate) at: At,
    /// True for a name or path, whose repetitions are the same tensor.
    pub(crate) is_path: bool,
}

/// The output of the parser besides the tree.
#[derive(Debug, Default)]
pub(crate) struct Sink {
    pub(crate) places: Places,
    pub(crate) errors: Diagnostics,
    /// Number of errors at the start of the head being parsed.
    pub(crate) head: usize,
    /// Names whose definitions could not be parsed, so that their uses are not reported as mistakes.
    pub(crate) mistaken: Vec<String>,
    /// Names that the function being parsed mentions.
    pub(crate) mentions: Vec<String>,
    /// `let`s of the function being parsed, each with the number of names mentioned before its scope.
    pub(crate) lets: Vec<(Name, usize)>,
    /// Names of all functions that are called.
    pub(crate) calls: Vec<String>,
    /// Rust expressions of the inline form. `None` within functions.
    pub(crate) captures: Option<Vec<Capture>>,
}

/// A mistake that is already in the list.
#[derive(Debug)]
pub(crate) struct Reported;

pub(crate) type Parsed<T> = Result<T, Reported>;

/// A parser of the tokens of one group.
pub(crate) struct Parser<'a, 's> {
    cursor: Cursor<'a>,
    /// End of the group.
    close: Span,
    /// Number of operands that enclose the current one.
    pub(crate) nesting: u32,
    pub(crate) sink: &'s mut Sink,
}

/// All symbols, sorted so that a symbol precedes its prefixes.
const SYMBOLS: [&str; 49] = [
    "<<=", ">>=", "...", "..=", "**", "&&", "||", "<<", ">>", "<=", ">=", "==", "!=", "+=", "-=", "*=", "/=",
    "%=", "&=", "|=", "^=", "->", "=>", "..", "::", "+", "-", "*", "/", "%", "&", "|", "^", "!", "<", ">",
    "=", ",", ";", ":", ".", "#", "?", "@", "$", "~", "'", "\\", "`",
];

impl<'a, 's> Parser<'a, 's> {
    pub(crate) fn new(cursor: Cursor<'a>, close: Span, sink: &'s mut Sink) -> Parser<'a, 's> {
        Parser { cursor, close, nesting: 0, sink }
    }

    /// Returns a parser for the tokens of a group.
    pub(crate) fn within<'t>(&'t mut self, inner: Cursor<'a>, delim: DelimSpan) -> Parser<'a, 't> {
        Parser { cursor: inner, close: delim.close(), nesting: self.nesting, sink: self.sink }
    }

    pub(crate) fn cursor(&self) -> Cursor<'a> {
        self.cursor
    }

    pub(crate) fn at_end(&self) -> bool {
        self.cursor.eof()
    }

    /// Returns the next symbol.
    pub(crate) fn symbol(&self) -> Option<&'static str> {
        self.read_symbol().map(|(symbol, _, _)| symbol)
    }

    /// Returns the next symbol as an operator. Operators within an invisible group, which `macro_rules!` puts
    /// around expressions, stay inside of the group.
    pub(crate) fn operator(&self) -> Option<&'static str> {
        if self.is_group(Delimiter::None) { None } else { self.symbol() }
    }

    /// Consumes the symbol if it comes next.
    pub(crate) fn eat(&mut self, symbol: &str) -> Option<At> {
        let (found, span, rest) = self.read_symbol()?;
        (found == symbol).then(|| {
            self.cursor = rest;
            self.sink.places.add(span, found)
        })
    }

    /// Consumes the symbol, which must come next.
    pub(crate) fn expect(&mut self, symbol: &str, what: &str) -> Parsed<At> {
        match self.eat(symbol) {
            Some(at) => Ok(at),
            None => Err(self.error_expected(what)),
        }
    }

    /// Returns the next word.
    pub(crate) fn word(&self) -> Option<String> {
        self.cursor.ident().map(|(ident, _)| ident.to_string())
    }

    pub(crate) fn is_word(&self, word: &str) -> bool {
        self.cursor.ident().is_some_and(|(ident, _)| ident == word)
    }

    /// Consumes any word. `r#type` is named `type`, as in Rust.
    pub(crate) fn any_word(&mut self) -> Option<Name> {
        let (ident, rest) = self.cursor.ident()?;
        self.cursor = rest;
        let text = plain(&ident);
        Some(Name { at: self.sink.places.add(ident.span(), text.clone()), text })
    }

    /// Consumes the word if it comes next.
    pub(crate) fn eat_word(&mut self, word: &str) -> Option<At> {
        if self.is_word(word) { self.any_word().map(|name| name.at) } else { None }
    }

    /// Consumes a name, which is any word but a keyword.
    pub(crate) fn name(&mut self, what: &str) -> Parsed<Name> {
        match self.word() {
            Some(word) if !is_keyword(&word) => self.any_word().ok_or(Reported),
            Some(_) | None => Err(self.error_expected(what)),
        }
    }

    /// Consumes a literal.
    pub(crate) fn literal(&mut self) -> Option<(proc_macro2::Literal, At)> {
        let (literal, rest) = self.cursor.literal()?;
        self.cursor = rest;
        let at = self.sink.places.add(literal.span(), literal.to_string());
        Some((literal, at))
    }

    /// Consumes a group and returns its tokens, the place of its start, and both of its ends.
    pub(crate) fn group(&mut self, delimiter: Delimiter) -> Option<(Cursor<'a>, At, DelimSpan)> {
        let (inner, span, rest) = self.cursor.group(delimiter)?;
        self.cursor = rest;
        let text = match delimiter {
            Delimiter::Parenthesis => "(",
            Delimiter::Brace => "{",
            Delimiter::Bracket => "[",
            Delimiter::None => "",
        };
        let at = self.sink.places.add(span.open(), text);
        Some((inner, at, span))
    }

    /// Returns true if a group of this kind comes next.
    pub(crate) fn is_group(&self, delimiter: Delimiter) -> bool {
        self.cursor.group(delimiter).is_some()
    }

    /// Skips the next token.
    pub(crate) fn skip(&mut self) {
        if let Some((_, rest)) = self.cursor.token_tree() {
            self.cursor = rest;
        }
    }

    /// Moves the parser to this position.
    pub(crate) fn seek(&mut self, cursor: Cursor<'a>) {
        self.cursor = cursor;
    }

    /// Returns the span of the next token, or of the end of the group.
    pub(crate) fn span(&self) -> Span {
        if self.at_end() { self.close } else { self.cursor.span() }
    }

    /// Returns the next token, for a message.
    pub(crate) fn found(&self) -> String {
        if let Some(symbol) = self.symbol() {
            return format!("`{symbol}`");
        }
        match self.cursor.token_tree() {
            None => String::from("the end"),
            Some((TokenTree::Group(group), _)) => String::from(match group.delimiter() {
                Delimiter::Parenthesis => "`(`",
                Delimiter::Brace => "`{`",
                Delimiter::Bracket => "`[`",
                Delimiter::None => "an expression",
            }),
            Some((TokenTree::Ident(word), _)) if is_keyword(&word.to_string()) && word != "_" => {
                format!("the keyword `{word}`")
            }
            Some((token, _)) => format!("`{token}`"),
        }
    }

    /// Reports a mistake at the next token.
    pub(crate) fn error(&mut self, message: Message) -> Reported {
        let span = self.span();
        self.sink.errors.push(span, message);
        Reported
    }

    /// Reports a mistake at an earlier token.
    pub(crate) fn error_at(&mut self, at: At, message: Message) -> Reported {
        let span = self.sink.places.span(at);
        self.sink.errors.push(span, message);
        Reported
    }

    pub(crate) fn error_expected(&mut self, what: &str) -> Reported {
        let found = self.found();
        self.error(diag::expected(what, found))
    }

    /// Parses items separated by commas until the group ends.
    pub(crate) fn list<T>(
        &mut self,
        mut one: impl FnMut(&mut Parser<'a, '_>) -> Parsed<T>,
    ) -> Parsed<Vec<T>> {
        let mut all = Vec::new();
        while !self.at_end() {
            all.push(one(self)?);
            if !self.at_end() {
                self.expect(",", "`,`")?;
            }
        }
        Ok(all)
    }

    /// Parses like `list`, but continues with the next item after a mistake. `instead` makes an item in place
    /// of a mistaken one.
    pub(crate) fn list_whole<T>(
        &mut self,
        mut one: impl FnMut(&mut Parser<'a, '_>, &[T]) -> Parsed<T>,
        instead: impl Fn() -> T,
    ) -> (Vec<T>, Parsed<()>) {
        let (mut all, mut whole) = (Vec::new(), Ok(()));
        while !self.at_end() {
            let before = self.cursor;
            let read = one(self, &all).and_then(|one| match self.at_end() {
                true => Ok(one),
                false => self.expect(",", "`,`").map(|_| one),
            });
            all.push(read.unwrap_or_else(|reported| {
                whole = Err(reported);
                self.cursor = before;
                self.skip_past_comma();
                instead()
            }));
        }
        (all, whole)
    }

    /// Skips past the next comma that is not between angle brackets.
    fn skip_past_comma(&mut self) {
        let mut open = 0;
        while !self.at_end() {
            match self.symbol() {
                Some(",") if open == 0 => {
                    self.skip_symbol();
                    return;
                }
                Some("<") => open += 1,
                Some(">") => open -= 1,
                Some("<<") => open += 2,
                Some(">>") => open -= 2,
                Some(_) | None => {}
            }
            self.skip_symbol();
        }
    }

    /// Skips the next token, and a symbol as a whole.
    pub(crate) fn skip_symbol(&mut self) {
        match self.read_symbol() {
            Some((_, _, rest)) => self.cursor = rest,
            None => self.skip(),
        }
    }

    fn read_symbol(&self) -> Option<(&'static str, Span, Cursor<'a>)> {
        let (mut text, mut ends) = (String::new(), Vec::new());
        let (first, mut rest) = self.cursor.punct()?;
        let mut punct = first.clone();
        loop {
            text.push(punct.as_char());
            ends.push(rest);
            if punct.spacing() == Spacing::Alone || ends.len() == 3 {
                break;
            }
            match rest.punct() {
                Some((next, after)) => (punct, rest) = (next, after),
                None => break,
            }
        }
        let symbol = SYMBOLS.into_iter().find(|symbol| text.starts_with(symbol))?;
        Some((symbol, first.span(), ends[symbol.len() - 1]))
    }
}

/// Returns the name of an identifier: `x` for `r#x`.
pub(crate) fn plain(ident: &proc_macro2::Ident) -> String {
    let text = ident.to_string();
    text.strip_prefix("r#").map_or_else(|| text.clone(), str::to_owned)
}

/// Returns true for words that Rust reserves in any edition. `self` is reserved, too: it occurs only in
/// captured paths.
pub(crate) fn is_keyword(word: &str) -> bool {
    const KEYWORDS: [&str; 53] = [
        "_", "as", "async", "await", "break", "const", "continue", "crate", "dyn", "else", "enum", "extern",
        "false", "fn", "for", "if", "impl", "in", "let", "loop", "match", "mod", "move", "mut", "pub", "ref",
        "return", "self", "Self", "static", "struct", "super", "trait", "true", "type", "unsafe", "use",
        "where", "while", "yield", "abstract", "become", "box", "do", "final", "gen", "macro", "override",
        "priv", "try", "typeof", "unsized", "virtual",
    ];
    KEYWORDS.contains(&word)
}
