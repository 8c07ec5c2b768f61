//! Device functions: a call is inlined by parsing the function's body again at the place of the call.
//!
//! Arguments and results are `.param` variables of the caller, in local memory. The function reaches them by
//! its own names. A recursive function cannot be inlined and is refused.

use super::ParseError;
use super::body::{Body, Scope};
use super::decode;
use super::ir::{Guard, Inst, Op, Space, Var};
use super::lex::Tok;
use super::module::{Named, Parser};

/// Maximum number of instructions of a kernel, with the functions it calls.
const MOST_INSTRUCTIONS: usize = 1 << 16;

/// Call that was parsed but not inlined yet.
pub(super) struct Call<'t> {
    name: &'t str,
    at: usize,
    results: Vec<Var>,
    arguments: Vec<Var>,
}

/// Declaration of a function: its results and arguments, by name, with alignment and length.
pub(super) struct Header<'t> {
    name: &'t str,
    results: Vec<Formal<'t>>,
    arguments: Vec<Formal<'t>>,
}

#[derive(Clone, Copy)]
struct Formal<'t> {
    name: &'t str,
    align: u32,
    bytes: u32,
}

impl<'t> Parser<'t> {
    /// Parses a function after `.func`: a header and a body. The body is parsed only to check it.
    pub(super) fn function(&mut self) -> Result<(), ParseError> {
        let header = self.header()?;
        if self.take(";") {
            return Ok(());
        }
        let mut body = Body::new(self, &[]);
        let place = |body: &mut Body<'_, 't>, formals: &[Formal<'t>]| -> Vec<Var> {
            let place = |formal: &Formal<'t>| {
                body.place(Space::Local, formal.name, formal.align.into(), formal.bytes.into())
            };
            formals.iter().map(place).collect()
        };
        let (results, arguments) = (place(&mut body, &header.results), place(&mut body, &header.arguments));
        body.expand(&header, &results, &arguments)?;
        body.resolve()
    }

    /// Parses `(results) name (arguments)`, and `.noreturn`, which changes nothing.
    fn header(&mut self) -> Result<Header<'t>, ParseError> {
        let results = self.formals()?;
        let name = self.name()?;
        let arguments = self.formals()?;
        while self.take_dot("noreturn") {
            self.require(self.at(), ".noreturn", decode::needs_of(".noreturn", &[]))?;
        }
        if !matches!(self.peek(), Tok::Sign("{" | ";")) {
            return self.expected("`{` or `;`");
        }
        Ok(Header { name, results, arguments })
    }

    fn formals(&mut self) -> Result<Vec<Formal<'t>>, ParseError> {
        let mut formals = Vec::new();
        if !self.take("(") {
            return Ok(formals);
        }
        while !self.take(")") {
            let mut offset = 0;
            let (name, align, param) = self.param(&mut offset)?;
            formals.push(Formal { name, align, bytes: param.bytes });
            if !self.take(",") && !matches!(self.peek(), Tok::Sign(")")) {
                return self.expected("`,` or `)`");
            }
        }
        Ok(formals)
    }
}

/// Parses a call after `call`: `(results), name, (arguments)`. A failed `assert` is a trap, without its body.
pub(super) fn call(b: &mut Body<'_, '_>) -> Result<Op, ParseError> {
    let results = passed(b)?;
    if !results.is_empty() {
        b.comma()?;
    }
    let (at, name) = (b.p.at(), b.p.name()?);
    let arguments = if b.p.take(",") { passed(b)? } else { vec![] };
    if name == "__assertfail" {
        return Ok(Op::Trap);
    }
    b.call = Some(Call { name, at, results, arguments });
    Ok(Op::Nop)
}

/// Parses `(a, b)`, or nothing.
fn passed(b: &mut Body<'_, '_>) -> Result<Vec<Var>, ParseError> {
    let mut all = Vec::new();
    if !b.p.take("(") {
        return Ok(all);
    }
    while !b.p.take(")") {
        let (at, name) = (b.p.at(), b.p.name()?);
        let Some(Named::Argument(argument)) = b.lookup_variable(name) else {
            return b.wrong(at, format!("`{name}` is not a `.param` variable: nothing else is passed here"));
        };
        all.push(argument);
        if !b.p.take(",") && !matches!(b.p.peek(), Tok::Sign(")")) {
            return b.p.expected("`,` or `)`");
        }
    }
    Ok(all)
}

impl<'t> Body<'_, 't> {
    /// Inlines the instructions of the called function.
    pub(super) fn inline(&mut self, call: &Call<'t>, guard: Option<Guard>) -> Result<(), ParseError> {
        let Call { name, at, ref results, ref arguments } = *call;
        let Some(start) = self.p.function_at(name) else {
            return self.wrong(at, format!("the function `{name}` has no body here"));
        };
        if self.calls.contains(&name) {
            return self.wrong(at, format!("the function `{name}` calls itself, which is not supported"));
        }
        if self.insts.len() > MOST_INSTRUCTIONS {
            return self.wrong(at, format!("a kernel of more than {MOST_INSTRUCTIONS} instructions"));
        }
        // Threads whose guard is false jump past the call. A call without a guard counts as an instruction
        // too, so that functions which only call others reach the limit as well.
        let guard = guard.map(|guard| Guard { negated: !guard.negated, ..guard });
        let op = if guard.is_some() { Op::Branch { target: 0 } } else { Op::Nop };
        let (first, text) = (self.insts.len(), (at as u32, self.p.end() as u32));
        self.push(Inst { guard, op, reads: (0, 0), writes: (0, 0), text }, vec![]);
        let back = self.p.seek(start);
        let header = self.p.header()?;
        let same = |formals: &[Formal<'_>], passed: &[Var]| {
            let lengths = passed.iter().map(|&var| self.vars[var as usize].bytes);
            formals.iter().map(|formal| Some(formal.bytes)).eq(lengths)
        };
        if !same(&header.results, results) || !same(&header.arguments, arguments) {
            return self.wrong(at, format!("the function `{name}` takes and gives other lengths"));
        }
        self.expand(&header, results, arguments)?;
        self.p.seek(back);
        if guard.is_some() {
            self.insts[first].op = Op::Branch { target: self.insts.len() as u32 };
        }
        Ok(())
    }

    /// Expands a function's body, in a scope that sees nothing of the caller's.
    fn expand(&mut self, header: &Header<'t>, results: &[Var], arguments: &[Var]) -> Result<(), ParseError> {
        let formals = header.results.iter().chain(&header.arguments);
        let names = formals
            .zip(results.iter().chain(arguments))
            .map(|(formal, &argument)| (formal.name, Named::Argument(argument)))
            .collect();
        let scope = self.enter(Scope { names, ..Scope::default() });
        let returns = self.returns.replace(vec![]);
        self.calls.push(header.name);
        self.p.sign("{")?;
        self.statements()?;
        self.calls.pop();
        let end = self.insts.len() as u32;
        for at in std::mem::replace(&mut self.returns, returns).unwrap_or_default() {
            self.insts[at].op = Op::Branch { target: end };
        }
        self.leave(scope);
        Ok(())
    }
}
