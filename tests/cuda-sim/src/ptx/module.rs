//! Parser of the outermost level of a text: its header, variables and kernels.

use std::collections::HashMap;
use std::sync::Arc;

use super::body::{self, Scope};
use super::decode::{self, Needs};
use super::ir::{Space, Var};
use super::lex::{self, Tok, Token};
use super::types::Type;
use super::{Global, Kernel, Module, Param, ParseError};

/// Parses a module.
///
/// # Errors
/// Returns the first error: text that is not PTX, or PTX that this crate does not support.
pub fn parse(text: &str) -> Result<Module, ParseError> {
    let mut parser = Parser::new(text)?;
    parser.find_functions();
    parser.version = parser.version()?;
    parser.target = parser.target()?;
    let (version, target) = (parser.version, parser.target);
    let mut module = Module { version, target, kernels: vec![], globals: vec![] };
    while *parser.peek() != Tok::End {
        parser.item(&mut module.kernels)?;
    }
    module.globals = parser.globals;
    let constants = module.globals.iter().zip(0..).filter(|(global, _)| global.is_constant);
    let constants: Arc<[(u32, u64)]> =
        constants.map(|(global, number)| (number, global.init.len() as u64)).collect();
    module.kernels.iter_mut().for_each(|kernel| kernel.code.constant_memory = Arc::clone(&constants));
    Ok(module)
}

/// First two directives of a text, which may name a version or a device that this crate does not know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    /// Major and minor number of `.version`, and the directive's line.
    pub(crate) version: (u32, u32),
    pub(crate) version_line: u32,
    /// Architecture of `.target`, and the directive's line.
    pub(crate) target: String,
    pub(crate) target_line: u32,
}

/// Parses only the first two directives of a module.
///
/// # Errors
/// The errors of [`parse`].
pub(crate) fn header(text: &str) -> Result<Header, ParseError> {
    let mut parser = Parser::new(text)?;
    let line = |at: usize| text[..at].matches('\n').count() as u32 + 1;
    let version_line = line(parser.at());
    let version = parser.version()?;
    let target_line = line(parser.at());
    if !parser.take_dot("target") {
        return parser.expected("`.target`");
    }
    Ok(Header { version, version_line, target: parser.name()?.into(), target_line })
}

/// Maximum number of bytes of a variable in this simulator.
pub(super) const MOST_BYTES: u64 = 1 << 30;
const MOST_PARAMS: u32 = 32764;
/// Maximum number of bytes of a kernel's parameters in all versions of PTX.
const FEW_PARAMS: u32 = 4352;
/// Maximum depth of nested braces or parentheses.
pub(super) const MOST_LEVELS: u32 = 128;

/// State of the parser, with the declarations outside of kernels.
pub(super) struct Parser<'t> {
    pub(super) text: &'t str,
    whole: Arc<str>,
    /// PTX version and target that the text declares.
    pub(super) version: (u32, u32),
    pub(super) target: u32,
    tokens: Vec<Token<'t>>,
    pos: usize,
    depth: u32,
    globals: Vec<Global>,
    outer: Scope<'t>,
    /// First token after `.func` of each function that has a body.
    functions: HashMap<&'t str, usize>,
}

/// State space of a variable outside of kernels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Home {
    /// Module variable: `.global` or `.const`.
    Module {
        is_constant: bool,
    },
    Shared,
}

/// Declaration of a variable.
pub(super) struct Variable<'t> {
    pub(super) name: &'t str,
    pub(super) align: u64,
    pub(super) bytes: u64,
    /// True for `.extern`, and for an array without a length.
    pub(super) open: bool,
    pub(super) init: Vec<u8>,
}

/// Meaning of a name.
#[derive(Clone, Debug)]
pub(super) enum Named {
    /// One register of the type, or several with numbered names.
    Registers { ty: Type, rows: Vec<Option<u32>>, numbered: bool },
    /// Shared variable of the module that has no place in this kernel yet.
    SharedOutside { align: u64, bytes: u64 },
    /// Dynamic shared memory: `.extern .shared`.
    Dynamic { align: u64 },
    /// Variable of shared or local memory, or a kernel's parameter.
    Placed(Var),
    /// Variable of the module: `.global` or `.const`.
    Global { number: u32, space: Space },
    /// Variable of `.param` within a body: an argument or a result of a call, in local memory.
    Argument(Var),
}

impl<'t> Parser<'t> {
    fn new(text: &'t str) -> Result<Parser<'t>, ParseError> {
        let tokens = lex::tokens(text)?;
        let (globals, outer, functions) = (vec![], Scope::default(), HashMap::new());
        let (version, target, pos, depth) = ((0, 0), 0, 0, 0);
        Ok(Parser {
            text,
            whole: text.into(),
            version,
            target,
            tokens,
            pos,
            depth,
            globals,
            outer,
            functions,
        })
    }

    /// Parses a construct that may nest. The depth is bounded, so that the stack suffices.
    pub(super) fn nested<T>(
        &mut self,
        read: impl FnOnce(&mut Parser<'t>) -> Result<T, ParseError>,
    ) -> Result<T, ParseError> {
        if self.depth == MOST_LEVELS {
            let at = self.at();
            return self.error(at, format!("nested deeper than {MOST_LEVELS} levels"));
        }
        self.depth += 1;
        let read = read(self);
        self.depth -= 1;
        read
    }

    pub(super) fn peek(&self) -> &Tok<'t> {
        &self.tokens[self.pos].tok
    }

    /// Returns the token after the next.
    pub(super) fn peek_second(&self) -> &Tok<'t> {
        &self.tokens[(self.pos + 1).min(self.tokens.len() - 1)].tok
    }

    pub(super) fn next(&mut self) -> Tok<'t> {
        let tok = self.tokens[self.pos].tok.clone();
        self.pos = (self.pos + 1).min(self.tokens.len() - 1);
        tok
    }

    /// Returns the start of the next token.
    pub(super) fn at(&self) -> usize {
        self.tokens[self.pos].at
    }

    /// Returns the end of the last token.
    pub(super) fn end(&self) -> usize {
        self.tokens[self.pos.saturating_sub(1)].end
    }

    pub(super) fn error<T>(&self, at: usize, message: impl Into<String>) -> Result<T, ParseError> {
        Err(lex::error(self.text, at, message))
    }

    /// Returns the error that names what was expected instead of the next token.
    pub(super) fn expected<T>(&self, wanted: &str) -> Result<T, ParseError> {
        let token = &self.tokens[self.pos];
        let found = if token.tok == Tok::End { "the text ends" } else { &self.text[token.at..token.end] };
        self.error(token.at, format!("expected {wanted}, found `{found}`"))
    }

    pub(super) fn take(&mut self, sign: &str) -> bool {
        let found = matches!(self.peek(), Tok::Sign(found) if *found == sign);
        if found {
            self.next();
        }
        found
    }

    pub(super) fn sign(&mut self, sign: &str) -> Result<(), ParseError> {
        if self.take(sign) { Ok(()) } else { self.expected(&format!("`{sign}`")) }
    }

    pub(super) fn take_dot(&mut self, word: &str) -> bool {
        let found = matches!(self.peek(), Tok::Dot(found) if *found == word);
        if found {
            self.next();
        }
        found
    }

    pub(super) fn name(&mut self) -> Result<&'t str, ParseError> {
        let Tok::Name(name) = *self.peek() else { return self.expected("a name") };
        self.next();
        Ok(name)
    }

    pub(super) fn ty(&mut self) -> Result<Type, ParseError> {
        let found = if let Tok::Dot(name) = self.peek() { Type::named(name) } else { None };
        let Some(ty) = found else { return self.expected("a type") };
        self.next();
        Ok(ty)
    }

    pub(super) fn small(&mut self, what: &str) -> Result<u64, ParseError> {
        let at = self.at();
        let value = self.constant()?;
        if value.whole.is_some_and(|value| value <= i64::MAX as u64) {
            return Ok(value.whole.unwrap_or(0));
        }
        self.error(at, format!("expected {what}"))
    }

    fn alignment(&mut self) -> Result<u64, ParseError> {
        let at = self.at();
        let align = self.small("an alignment")?;
        let valid = align.is_power_of_two() && align <= 1 << 16;
        if valid { Ok(align) } else { self.error(at, "an alignment is a power of two") }
    }

    fn version(&mut self) -> Result<(u32, u32), ParseError> {
        if !self.take_dot("version") {
            return self.expected("`.version`");
        }
        let at = self.at();
        let Tok::Double(_) = self.next() else { return self.error(at, "expected a version such as 7.0") };
        let text = &self.text[at..self.end()];
        let parts =
            text.split_once('.').and_then(|(major, minor)| Some((major.parse().ok()?, minor.parse().ok()?)));
        parts.map_or_else(|| self.error(at, format!("`{text}` is not a version")), Ok)
    }

    fn target(&mut self) -> Result<u32, ParseError> {
        if !self.take_dot("target") {
            return self.expected("`.target`");
        }
        let at = self.at();
        let name = self.name()?;
        let digits = name.strip_prefix("sm_").map(|digits| digits.trim_end_matches(char::is_alphabetic));
        let Some(target) = digits.and_then(|digits| digits.parse().ok()) else {
            return self.error(at, format!("`{name}` is not a target such as sm_80"));
        };
        let letter = name.trim_start_matches("sm_").trim_start_matches(char::is_numeric);
        let Some(version) = decode::target_needs(target, letter) else {
            return self.error(at, format!("`{name}` is not a target that is known here"));
        };
        self.require(at, name, Needs { version, target: 0 })?;
        while self.take(",") {
            let (at, name) = (self.at(), self.name()?);
            if !["debug", "texmode_unified", "texmode_independent"].contains(&name) {
                return self.error(at, format!("unknown property `{name}` of a target"));
            }
        }
        Ok(target)
    }

    fn item(&mut self, kernels: &mut Vec<Kernel>) -> Result<(), ParseError> {
        let mut open = false;
        while let Tok::Dot(word @ ("visible" | "weak" | "extern" | "common")) = *self.peek() {
            if word == "common" {
                self.require(self.at(), ".common", decode::needs_of(".common", &[]))?;
            }
            open |= word == "extern";
            self.next();
        }
        let at = self.at();
        let Tok::Dot(word) = *self.peek() else { return self.expected("a directive") };
        match word {
            "entry" => {
                let kernel = self.entry()?;
                kernels.push(kernel);
                Ok(())
            }
            "global" | "const" => {
                self.next();
                // The host reaches managed memory as well, which makes no difference here.
                if word == "global" && self.take_dot("attribute") {
                    self.sign("(")?;
                    if !self.take_dot("managed") {
                        return self.expected("`.managed`");
                    }
                    self.sign(")")?;
                }
                self.variables(open, Home::Module { is_constant: word == "const" })
            }
            "shared" => {
                self.next();
                self.variables(open, Home::Shared)
            }
            "address_size" => {
                self.next();
                let size = self.small("64")?;
                if size == 64 { Ok(()) } else { self.error(at, "addresses have 64 bits here") }
            }
            "func" => {
                self.next();
                self.function()
            }
            _ => self.debug(),
        }
    }

    /// Records where functions are, because calls may precede definitions.
    fn find_functions(&mut self) {
        for start in 0..self.tokens.len() {
            if self.tokens[start].tok != Tok::Dot("func") {
                continue;
            }
            let mut rest = self.tokens[start + 1..].iter().map(|token| &token.tok);
            if matches!(self.tokens[start + 1].tok, Tok::Sign("(")) {
                rest.find(|tok| matches!(tok, Tok::Sign(")")));
            }
            let name = rest.next();
            let has_body =
                matches!(rest.find(|tok| matches!(tok, Tok::Sign("{" | ";"))), Some(Tok::Sign("{")));
            if let (Some(&Tok::Name(name)), true) = (name, has_body) {
                self.functions.insert(name, start + 1);
            }
        }
    }

    /// Returns the first token of the header of a function that has a body.
    pub(super) fn function_at(&self, name: &str) -> Option<usize> {
        self.functions.get(name).copied()
    }

    /// Moves to a token, and returns the position before.
    pub(super) fn seek(&mut self, to: usize) -> usize {
        std::mem::replace(&mut self.pos, to)
    }

    /// Skips a directive for debuggers.
    pub(super) fn debug(&mut self) -> Result<(), ParseError> {
        let at = self.at();
        let Tok::Dot(word) = self.next() else { return self.error(at, "expected a directive") };
        match word {
            "file" | "loc" => {
                // The directive is a line of numbers, names and strings without an end of its own.
                let line = self.text[at..].find('\n').map_or(self.text.len(), |len| at + len);
                while self.at() < line && *self.peek() != Tok::End {
                    self.next();
                }
                Ok(())
            }
            "pragma" => {
                let at = self.at();
                let Tok::Text(_) = self.next() else { return self.error(at, "expected a string") };
                self.sign(";")
            }
            "section" => {
                while *self.peek() != Tok::End && !self.take("}") {
                    self.next();
                }
                Ok(())
            }
            _ => self.error(at, format!("unknown directive `.{word}`")),
        }
    }

    fn variables(&mut self, open: bool, home: Home) -> Result<(), ParseError> {
        for variable in self.declarations(open)? {
            let named = match home {
                Home::Module { is_constant } => {
                    let number = self.globals.len() as u32;
                    let (name, align) = (variable.name.to_owned(), variable.align);
                    self.globals.push(Global { name, align, init: variable.init, is_constant });
                    Named::Global { number, space: if is_constant { Space::Const } else { Space::Global } }
                }
                Home::Shared if variable.open => Named::Dynamic { align: variable.align },
                Home::Shared => Named::SharedOutside { align: variable.align, bytes: variable.bytes },
            };
            self.outer.names.insert(variable.name, named);
        }
        Ok(())
    }

    /// Parses the declarations after a state space: `.align 4 .b8 a[2][3] = {…}, b;`
    pub(super) fn declarations(&mut self, open: bool) -> Result<Vec<Variable<'t>>, ParseError> {
        let mut align = None;
        if self.take_dot("align") {
            align = Some(self.alignment()?);
        }
        let vectors = [("v2", 2u64), ("v4", 4)];
        let lanes = vectors.into_iter().find_map(|(word, lanes)| self.take_dot(word).then_some(lanes));
        let lanes = lanes.unwrap_or(1);
        let ty = self.ty()?;
        let size = u64::from(ty.bytes()) * lanes;
        let mut variables = Vec::new();
        loop {
            let name = self.name()?;
            let (mut count, mut open) = (1u64, open);
            while self.take("[") {
                if self.take("]") {
                    (open, count) = (true, 0);
                } else {
                    count = count.saturating_mul(self.small("a length")?);
                    self.sign("]")?;
                }
            }
            let bytes = size.saturating_mul(count);
            if bytes > MOST_BYTES {
                return self.expected("a shorter variable");
            }
            let init = self.initial(ty, bytes as usize)?;
            variables.push(Variable { name, align: align.unwrap_or(size), bytes, open, init });
            if !self.take(",") {
                break;
            }
        }
        self.sign(";")?;
        Ok(variables)
    }

    fn initial(&mut self, ty: Type, bytes: usize) -> Result<Vec<u8>, ParseError> {
        let (at, mut init) = (self.at(), Vec::new());
        if self.take("=") {
            self.elements(ty, &mut init)?;
        }
        if init.len() > bytes {
            return self.error(at, format!("{} bytes for a variable of {bytes}", init.len()));
        }
        init.resize(bytes, 0);
        Ok(init)
    }

    fn elements(&mut self, ty: Type, init: &mut Vec<u8>) -> Result<(), ParseError> {
        if !self.take("{") {
            let at = self.at();
            let bits = self.constant()?.bits(ty);
            let Some(bits) = bits else { return self.error(at, "this initial value is not supported") };
            init.extend_from_slice(&bits.to_le_bytes()[..ty.bytes() as usize]);
            return Ok(());
        }
        while !self.take("}") {
            self.nested(|p| p.elements(ty, init))?;
            if !self.take(",") && !matches!(self.peek(), Tok::Sign("}")) {
                return self.expected("`,` or `}`");
            }
        }
        Ok(())
    }

    fn entry(&mut self) -> Result<Kernel, ParseError> {
        self.next();
        let (name, mut params, mut bytes) = (self.name()?, Vec::new(), 0);
        if self.take("(") {
            while !self.take(")") {
                let (name, _, param) = self.param(&mut bytes)?;
                params.push((name, param));
                if !self.take(",") && !matches!(self.peek(), Tok::Sign(")")) {
                    return self.expected("`,` or `)`");
                }
            }
        }
        if bytes > FEW_PARAMS {
            let needs = Needs { version: (8, 1), target: 70 };
            self.require(self.at(), &format!("more than {FEW_PARAMS} bytes of parameters"), needs)?;
        }
        let limits = self.limits()?;
        let (code, static_shared, registers) = body::body(self, &params)?;
        let (name, text) = (name.to_owned(), Arc::clone(&self.whole));
        let params = params.into_iter().map(|(_, param)| param).collect();
        Ok(Kernel { name, params, params_bytes: bytes, static_shared, registers, limits, code, text })
    }

    /// Parses a parameter that follows `bytes` bytes of others. Returns its name, alignment and place.
    pub(super) fn param(&mut self, bytes: &mut u32) -> Result<(&'t str, u32, Param), ParseError> {
        if !self.take_dot("param") {
            return self.expected("`.param`");
        }
        let mut align = None;
        if self.take_dot("align") {
            align = Some(self.alignment()? as u32);
        }
        let ty = self.ty()?;
        if self.take_dot("ptr") {
            while let Tok::Dot(word @ ("global" | "const" | "local" | "shared" | "align")) = *self.peek() {
                self.next();
                if word == "align" {
                    self.alignment()?;
                }
            }
        }
        let (name, mut len) = (self.name()?, ty.bytes());
        if self.take("[") {
            let at = self.at();
            let count = u32::try_from(self.small("a length")?).ok().and_then(|count| len.checked_mul(count));
            let Some(bytes) = count.filter(|&bytes| bytes <= MOST_PARAMS) else {
                return self.error(at, "a kernel's parameters have at most 32764 bytes");
            };
            len = bytes;
            self.sign("]")?;
        }
        let align = align.unwrap_or(ty.bytes()).max(1);
        let offset = bytes.next_multiple_of(align);
        *bytes = offset + len;
        Ok((name, align, Param { name: name.to_owned(), offset, bytes: len }))
    }

    /// Returns the meaning of a name outside of kernels.
    pub(super) fn outer(&self, name: &str) -> Option<Named> {
        self.outer.names.get(name).cloned()
    }
}
