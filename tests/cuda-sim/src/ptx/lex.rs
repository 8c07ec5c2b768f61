//! Lexer: splits a text into tokens with their places, and skips comments and white space.
//!
//! A name keeps its `%` or `$`. A dot and the word after it are one token, `::` included, so that an
//! instruction is a name followed by its modifiers.

use super::ParseError;

/// One token.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Tok<'t> {
    /// Name: `add`, `%r1`, `$L__BB0_1`, `_`.
    Name(&'t str),
    /// Modifier or directive without its dot: `f32` for `.f32`.
    Dot(&'t str),
    /// Integer, as its bits.
    Int(u64),
    /// Bits of an f32: `0f3F800000`.
    Single(u32),
    /// Value of an f64: `0d…` or `1.5`.
    Double(f64),
    /// String, without its quotes.
    Text(&'t str),
    /// Sign, including `<<` and `>>`.
    Sign(&'static str),
    /// End of the text.
    End,
}

/// A token and its byte range in the text.
#[derive(Clone, Debug)]
pub(crate) struct Token<'t> {
    /// Kind and value of the token.
    pub(crate) tok: Tok<'t>,
    /// First byte of the token.
    pub(crate) at: usize,
    /// End of the token: one after its last byte.
    pub(crate) end: usize,
}

const SIGNS: [&str; 27] = [
    "<<", ">>", "(", ")", "[", "]", "{", "}", "<", ">", ",", ";", ":", "@", "!", "+", "-", "*", "/", "%",
    "&", "|", "^", "~", "=", "?", "\\",
];

/// Returns the error at a byte of the text.
pub(crate) fn error(text: &str, at: usize, message: impl Into<String>) -> ParseError {
    let before = &text[..at.min(text.len())];
    let line = before.matches('\n').count() as u32 + 1;
    let column = before.chars().rev().take_while(|&c| c != '\n').count() as u32 + 1;
    ParseError { line, column, message: message.into() }
}

/// Splits a text into tokens. The last one is [`Tok::End`].
pub(crate) fn tokens(text: &str) -> Result<Vec<Token<'_>>, ParseError> {
    let mut tokens = Vec::new();
    let mut at = 0;
    loop {
        at = skip(text, at)?;
        let (tok, end) = token(text, at)?;
        let last = tok == Tok::End;
        tokens.push(Token { tok, at, end });
        if last {
            return Ok(tokens);
        }
        at = end;
    }
}

/// Returns the start of the next token.
fn skip(text: &str, mut at: usize) -> Result<usize, ParseError> {
    loop {
        let rest = &text[at..];
        let trimmed = rest.trim_start_matches(|c: char| c.is_whitespace() || c == '\0');
        at += rest.len() - trimmed.len();
        if trimmed.starts_with("//") {
            at += trimmed.find('\n').unwrap_or(trimmed.len());
        } else if trimmed.starts_with("/*") {
            let end = trimmed.find("*/").ok_or_else(|| error(text, at, "the comment does not end"))?;
            at += end + 2;
        } else {
            return Ok(at);
        }
    }
}

fn is_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_' || c == '$'
}

/// Returns the number of bytes of the word at the start of `text`.
fn word(text: &str) -> usize {
    text.find(|c| !is_word(c)).unwrap_or(text.len())
}

fn token(text: &str, at: usize) -> Result<(Tok<'_>, usize), ParseError> {
    let rest = &text[at..];
    let Some(first) = rest.chars().next() else { return Ok((Tok::End, at)) };
    if first.is_ascii_digit() {
        return number(text, at);
    }
    if is_word(first) || (first == '%' && rest[1..].starts_with(is_word)) {
        let len = 1 + word(&rest[1..]);
        return Ok((Tok::Name(&rest[..len]), at + len));
    }
    if first == '.' && rest[1..].starts_with(is_word) {
        let mut len = 1 + word(&rest[1..]);
        while rest[len..].starts_with("::") && rest[len + 2..].starts_with(is_word) {
            len += 2 + word(&rest[len + 2..]);
        }
        return Ok((Tok::Dot(&rest[1..len]), at + len));
    }
    if first == '"' {
        let end = rest[1..].find('"').ok_or_else(|| error(text, at, "the string does not end"))?;
        return Ok((Tok::Text(&rest[1..=end]), at + end + 2));
    }
    let sign = SIGNS.iter().find(|sign| rest.starts_with(**sign));
    let sign = sign.ok_or_else(|| error(text, at, format!("`{first}` is no part of PTX")))?;
    Ok((Tok::Sign(sign), at + sign.len()))
}

fn number(text: &str, at: usize) -> Result<(Tok<'_>, usize), ParseError> {
    let rest = &text[at..];
    let len = word(rest);
    let digits = &rest[..len];
    let bad = || error(text, at, format!("`{digits}` is not a number"));
    let lower = digits.to_ascii_lowercase();
    if let Some(hex) = lower.strip_prefix("0f").filter(|hex| hex.len() == 8) {
        return u32::from_str_radix(hex, 16).map(|bits| (Tok::Single(bits), at + len)).map_err(|_| bad());
    }
    if let Some(hex) = lower.strip_prefix("0d").filter(|hex| hex.len() == 16) {
        let bits = u64::from_str_radix(hex, 16).map_err(|_| bad())?;
        return Ok((Tok::Double(f64::from_bits(bits)), at + len));
    }
    if !lower.starts_with("0x") && is_decimal_float(rest, len) {
        return decimal_float(text, at);
    }
    let whole = lower.strip_suffix('u').unwrap_or(&lower);
    let value = match whole.as_bytes() {
        [b'0', b'x', ..] => u64::from_str_radix(&whole[2..], 16),
        [b'0', b'b', ..] => u64::from_str_radix(&whole[2..], 2),
        [b'0', _, ..] => u64::from_str_radix(&whole[1..], 8),
        [..] => whole.parse(),
    };
    value.map(|value| (Tok::Int(value), at + len)).map_err(|_| bad())
}

/// Returns true if the digits continue like `1.5` or `1e5`.
fn is_decimal_float(rest: &str, len: usize) -> bool {
    let exponent =
        rest[..len].find(['e', 'E']).is_some_and(|e| rest[..e].bytes().all(|b| b.is_ascii_digit()));
    exponent || rest[len..].starts_with('.')
}

fn decimal_float(text: &str, at: usize) -> Result<(Tok<'_>, usize), ParseError> {
    let rest = &text[at..];
    let digits =
        |from: usize| from + rest[from..].find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len() - from);
    let mut end = digits(0);
    if rest[end..].starts_with('.') {
        end = digits(end + 1);
    }
    if rest[end..].starts_with(['e', 'E']) {
        let signed = end + 1 + usize::from(rest[end + 1..].starts_with(['+', '-']));
        end = digits(signed);
    }
    let value =
        rest[..end].parse().map_err(|_| error(text, at, format!("`{}` is not a number", &rest[..end])))?;
    Ok((Tok::Double(value), at + end))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(text: &str) -> Vec<Tok<'_>> {
        tokens(text).unwrap().into_iter().map(|token| token.tok).collect()
    }

    #[test]
    fn every_form_of_number() {
        let expected = [0xff, 10, 8, 5, 7, u64::MAX].map(Tok::Int);
        assert_eq!(all("0xFF 10 010 0b101 7U 0xFFFFFFFFFFFFFFFFU")[..6], expected);
        assert_eq!(
            all("0f3F800000 0dBFF0000000000000 1.5 2e3 2.5E-1")[..5],
            [
                Tok::Single(0x3f80_0000),
                Tok::Double(-1.0),
                Tok::Double(1.5),
                Tok::Double(2000.0),
                Tok::Double(0.25),
            ]
        );
    }

    #[test]
    fn names_modifiers_and_comments() {
        let expected = [
            Tok::Name("ld"),
            Tok::Dot("global"),
            Tok::Dot("L2::128B"),
            Tok::Name("%r1"),
            Tok::Sign("<<"),
            Tok::Name("$L__BB0_1"),
            Tok::End,
        ];
        assert_eq!(all("ld.global.L2::128B /* x \n */ %r1 << // y\n$L__BB0_1"), expected);
    }

    #[test]
    fn errors_have_places() {
        let error = tokens("a\n  `").unwrap_err();
        assert_eq!((error.line, error.column), (2, 3));
        assert_eq!(tokens("\n/* x").unwrap_err().line, 2);
        assert_eq!(tokens(" \"x").unwrap_err().column, 2);
        assert!(tokens("0xg").unwrap_err().message.contains("0xg"));
    }
}
