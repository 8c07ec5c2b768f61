//! Parser of a kernel's body: its declarations, scopes and labels, and its instructions in order.

use std::collections::HashMap;
use std::sync::Arc;

use super::call::Call;
use super::decode::{self, Mods};
use super::ir::{Code, Constant, DYNAMIC, Guard, Inst, Op, Orders, Placed, Reg, Space, Var, Wide};
use super::lex::Tok;
use super::live;
use super::module::{MOST_BYTES, Named, Parser, Variable};
use super::operand::Declared;
use super::origin;
use super::types::Type;
use super::{Param, ParseError};

/// Names that are visible in a `{ }` scope.
#[derive(Default)]
pub(super) struct Scope<'t> {
    pub(super) names: HashMap<&'t str, Named>,
    pub(super) labels: HashMap<&'t str, u32>,
    pub(super) tables: HashMap<&'t str, Vec<(&'t str, usize)>>,
    pub(super) parent: Option<usize>,
}

/// State of the parser of a body.
pub(super) struct Body<'p, 't> {
    pub(super) p: &'p mut Parser<'t>,
    scopes: Vec<Scope<'t>>,
    scope: usize,
    rows: u32,
    constants: HashMap<(Constant, Wide), Reg>,
    pub(super) insts: Vec<Inst>,
    all_reads: Vec<Reg>,
    all_writes: Vec<Vec<Reg>>,
    /// Registers that the current instruction reads.
    pub(super) reads: Vec<Reg>,
    pub(super) writes: Vec<Reg>,
    /// Type of the register that was last read as an operand.
    pub(super) declared: Type,
    /// Instructions that must run before the current one.
    pub(super) before: Vec<Inst>,
    pub(super) what: String,
    /// Label that the current instruction jumps to.
    pub(super) target: Option<(&'t str, usize)>,
    /// Call that the current instruction makes.
    pub(super) call: Option<Call<'t>>,
    /// Returns of the function that is being expanded, by instruction. None in the kernel itself. `calls` is
    /// the stack of functions that are being expanded.
    pub(super) returns: Option<Vec<usize>>,
    pub(super) calls: Vec<&'t str>,
    jumps: Vec<(usize, &'t str, usize, usize)>,
    registers: HashMap<Reg, Wide>,
    shared: u64,
    local: u64,
    /// Variables by their numbers. The start of the first, dynamic shared memory, is known at the end of the
    /// body.
    pub(super) vars: Vec<Placed>,
    too_much: Option<ParseError>,
    dynamic_align: u64,
    /// Variables of the module that the body uses. `placed` has the shared variables of functions by the
    /// token of their declaration.
    outer: HashMap<&'t str, Named>,
    placed: HashMap<usize, Var>,
}

/// Parses everything between the braces. Returns the code, the bytes of static shared memory and the number
/// of registers.
pub(super) fn body<'t>(
    p: &mut Parser<'t>,
    params: &[(&'t str, Param)],
) -> Result<(Code, u32, u32), ParseError> {
    p.sign("{")?;
    let mut body = Body::new(p, params);
    body.statements()?;
    let end = body.p.end() as u32;
    body.push(
        Inst { guard: None, op: Op::Exit, reads: (0, 0), writes: (0, 0), text: (end - 1, end) },
        vec![],
    );
    body.resolve()?;
    if let Some(error) = body.too_much {
        return Err(error);
    }
    let registers = live::most(&body.insts, &body.all_reads, &body.all_writes, &body.registers);
    let constants: Vec<_> =
        body.constants.iter().map(|(&(constant, wide), &row)| (row, wide, constant)).collect();
    // Both lengths fit a `u32`, because an excess over their bounds was an error above.
    let (shared, local) = (body.shared as u32, body.local as u32);
    let dynamic_at = shared.next_multiple_of(body.dynamic_align as u32);
    let mut vars = body.vars;
    vars[DYNAMIC as usize].start = dynamic_at;
    let (rows, reads, mut insts) = (body.rows, body.all_reads, body.insts);
    origin::find(&mut insts, rows, (&constants, &vars), (&reads, &body.all_writes));
    let everyone = body.constants.get(&(Constant::Bits(u64::from(u32::MAX)), Wide::One)).copied();
    let orders = || insts.iter().filter_map(|inst| inst.op.orders_some(everyone));
    let (has_fences, orders_some) = (orders().any(|one| one == Orders::Fence), orders().next().is_some());
    let mut writes = Vec::new();
    for (inst, written) in insts.iter_mut().zip(&body.all_writes) {
        inst.writes = (writes.len() as u32, written.len() as u32);
        writes.extend(written);
    }
    // The module fills this in at its end, because variables may follow the kernel.
    let constant_memory = Arc::default();
    let code = Code {
        insts,
        rows,
        constants,
        reads,
        writes,
        local,
        dynamic_at,
        has_fences,
        orders_some,
        constant_memory,
        vars,
    };
    Ok((code, shared, registers))
}

/// Maximum bytes of a thread's local memory, from the CUDA programming guide.
const MOST_LOCAL: u64 = 512 << 10;

/// Returns the start and the end of a variable that follows `used` bytes. Past the bound, which is an error,
/// the start is arbitrary.
fn after(used: u64, align: u64, bytes: u64) -> (u32, u64) {
    let place = used.next_multiple_of(align.max(1));
    (place as u32, place + bytes)
}

impl<'p, 't> Body<'p, 't> {
    pub(super) fn new(p: &'p mut Parser<'t>, params: &[(&'t str, Param)]) -> Body<'p, 't> {
        let dynamic =
            Placed { name: "dynamic shared memory".into(), space: Space::Shared, start: 0, bytes: None };
        let placed = params.iter().map(|(_, Param { name, offset, bytes })| Placed {
            name: name.clone(),
            space: Space::Param,
            start: *offset,
            bytes: Some(*bytes),
        });
        let vars: Vec<Placed> = std::iter::once(dynamic).chain(placed).collect();
        let names = params.iter().zip(DYNAMIC + 1..).map(|((name, _), var)| (*name, Named::Placed(var)));
        Body {
            p,
            scopes: vec![Scope { names: names.collect(), ..Scope::default() }],
            scope: 0,
            rows: 0,
            constants: HashMap::new(),
            insts: vec![],
            all_reads: vec![],
            all_writes: vec![],
            reads: vec![],
            writes: vec![],
            declared: Type::B32,
            before: vec![],
            what: String::new(),
            target: None,
            call: None,
            returns: None,
            calls: vec![],
            jumps: vec![],
            registers: HashMap::new(),
            shared: 0,
            local: 0,
            vars,
            too_much: None,
            dynamic_align: 1,
            outer: HashMap::new(),
            placed: HashMap::new(),
        }
    }

    /// Enters a scope, and returns the scope before.
    pub(super) fn enter(&mut self, scope: Scope<'t>) -> usize {
        self.scopes.push(scope);
        std::mem::replace(&mut self.scope, self.scopes.len() - 1)
    }

    pub(super) fn leave(&mut self, before: usize) {
        self.scope = before;
    }

    /// Returns an error about an operand of the current instruction.
    pub(super) fn wrong<T>(&self, at: usize, message: impl AsRef<str>) -> Result<T, ParseError> {
        self.p.error(at, format!("`{}`: {}", self.what, message.as_ref()))
    }

    /// Allocates a row, or two for a wide register.
    pub(super) fn row(&mut self, wide: Wide) -> Reg {
        let row = self.rows;
        self.rows += match wide {
            Wide::One => 1,
            Wide::Two => 2,
        };
        row
    }

    /// Returns the row of a constant.
    pub(super) fn constant(&mut self, constant: Constant, wide: Wide) -> Reg {
        if let Some(&row) = self.constants.get(&(constant, wide)) {
            return row;
        }
        let row = self.row(wide);
        self.constants.insert((constant, wide), row);
        row
    }

    /// Returns the number in a row, if the row is a constant's.
    pub(super) fn constant_in(&self, row: Reg) -> Option<u64> {
        let found = self.constants.iter().find(|(_, constant)| **constant == row);
        found.and_then(
            |((constant, _), _)| if let Constant::Bits(bits) = constant { Some(*bits) } else { None },
        )
    }

    pub(super) fn lookup_register(&mut self, name: &str) -> Option<Declared> {
        let stem = name.trim_end_matches(|c: char| c.is_ascii_digit());
        let number: Option<usize> = name[stem.len()..]
            .parse()
            .ok()
            .filter(|number: &usize| number.to_string().len() == name.len() - stem.len());
        let mut scope = Some(self.scope);
        while let Some(current) = scope {
            for (key, index) in [(name, Some(0)), (stem, number)] {
                let Some(index) = index else { continue };
                let Some(Named::Registers { ty, rows, numbered }) = self.scopes[current].names.get_mut(key)
                else {
                    continue;
                };
                if *numbered != (key.len() < name.len()) || index >= rows.len() {
                    continue;
                }
                let ty = *ty;
                let wide = if ty.bytes() == 8 { Wide::Two } else { Wide::One };
                let known = rows[index];
                let row = known.unwrap_or_else(|| self.row(wide));
                if let Some(Named::Registers { rows, .. }) = self.scopes[current].names.get_mut(key) {
                    rows[index] = Some(row);
                }
                if ty != Type::Pred {
                    self.registers.insert(row, wide);
                }
                return Some(Declared { row, ty });
            }
            scope = self.scopes[current].parent;
        }
        None
    }

    /// Returns true if the next token is a predicate, negated or not.
    pub(super) fn next_is_predicate(&mut self) -> bool {
        match *self.p.peek() {
            Tok::Sign("!") => true,
            Tok::Name(name) => self.lookup_register(name).is_some_and(|declared| declared.ty == Type::Pred),
            Tok::Dot(_)
            | Tok::Int(_)
            | Tok::Single(_)
            | Tok::Double(_)
            | Tok::Text(_)
            | Tok::Sign(_)
            | Tok::End => false,
        }
    }

    pub(super) fn lookup_variable(&mut self, name: &'t str) -> Option<Named> {
        let mut scope = Some(self.scope);
        while let Some(current) = scope {
            if let Some(named) = self.scopes[current].names.get(name) {
                return Some(named.clone());
            }
            scope = self.scopes[current].parent;
        }
        if let Some(named) = self.outer.get(name) {
            return Some(named.clone());
        }
        let named = match self.p.outer(name)? {
            Named::SharedOutside { align, bytes } => {
                Named::Placed(self.place(Space::Shared, name, align, bytes))
            }
            Named::Dynamic { align } => {
                self.dynamic_align = self.dynamic_align.max(align);
                Named::Dynamic { align }
            }
            named @ (Named::Registers { .. }
            | Named::Placed(_)
            | Named::Argument(_)
            | Named::Global { .. }) => named,
        };
        self.outer.insert(name, named.clone());
        Some(named)
    }

    /// Places a variable in shared or local memory.
    pub(super) fn place(&mut self, space: Space, name: &str, align: u64, bytes: u64) -> Var {
        let (used, most, what) = if space == Space::Shared {
            (&mut self.shared, MOST_BYTES, "`.shared`")
        } else {
            (&mut self.local, MOST_LOCAL, "`.local`")
        };
        let (start, end) = after(*used, align, bytes);
        *used = end;
        self.bound(end, most, what);
        self.vars.push(Placed { name: name.into(), space, start, bytes: Some(bytes as u32) });
        self.vars.len() as Var - 1
    }

    /// Records the first excess over a bound.
    fn bound(&mut self, bytes: u64, most: u64, what: &str) {
        if bytes > most && self.too_much.is_none() {
            self.too_much =
                self.p.error::<()>(self.p.at(), format!("more than {most} bytes of {what} memory")).err();
        }
    }

    pub(super) fn statements(&mut self) -> Result<(), ParseError> {
        loop {
            let at = self.p.at();
            match *self.p.peek() {
                Tok::Sign("}") => {
                    self.p.next();
                    let Some(parent) = self.scopes[self.scope].parent else { return Ok(()) };
                    self.scope = parent;
                }
                Tok::Sign("{") => {
                    self.p.next();
                    self.enter(Scope { parent: Some(self.scope), ..Scope::default() });
                }
                Tok::Dot(_) => self.directive()?,
                Tok::Sign(";") => drop(self.p.next()),
                Tok::Name(name) if matches!(self.p.peek_second(), Tok::Sign(":")) => self.label(at, name)?,
                Tok::Name(_) | Tok::Sign("@") => self.instruction()?,
                Tok::Int(_) | Tok::Single(_) | Tok::Double(_) | Tok::Text(_) | Tok::Sign(_) | Tok::End => {
                    return self.p.expected("an instruction or `}`");
                }
            }
        }
    }

    fn label(&mut self, at: usize, name: &'t str) -> Result<(), ParseError> {
        self.p.next();
        self.p.next();
        if self.p.take_dot("branchtargets") {
            self.p.require(at, ".branchtargets", decode::needs_of(".branchtargets", &[]))?;
            let mut targets = vec![(self.p.name()?, at)];
            while self.p.take(",") {
                targets.push((self.p.name()?, at));
            }
            self.scopes[self.scope].tables.insert(name, targets);
            return self.p.sign(";");
        }
        let here = self.insts.len() as u32;
        if self.scopes[self.scope].labels.insert(name, here).is_some() {
            return self.p.error(at, format!("the label `{name}` is there twice"));
        }
        Ok(())
    }

    fn directive(&mut self) -> Result<(), ParseError> {
        if self.p.take_dot("reg") {
            return self.declare_registers();
        }
        if self.p.take_dot("shared") {
            let at = self.p.at();
            for (i, Variable { name, align, bytes, .. }) in
                self.p.declarations(false)?.into_iter().enumerate()
            {
                // A function that is called twice has one instance of its shared variables.
                let known = self.placed.get(&(at + i)).copied();
                let var = known.unwrap_or_else(|| self.place(Space::Shared, name, align, bytes));
                self.placed.insert(at + i, var);
                self.scopes[self.scope].names.insert(name, Named::Placed(var));
            }
            return Ok(());
        }
        if self.p.take_dot("extern") {
            if !self.p.take_dot("shared") {
                return self.p.expected("`.shared`");
            }
            for Variable { name, align, .. } in self.p.declarations(true)? {
                self.dynamic_align = self.dynamic_align.max(align);
                self.scopes[self.scope].names.insert(name, Named::Dynamic { align });
            }
            return Ok(());
        }
        if self.p.take_dot("param") {
            for Variable { name, align, bytes, .. } in self.p.declarations(false)? {
                let var = self.place(Space::Local, name, align, bytes);
                self.scopes[self.scope].names.insert(name, Named::Argument(var));
            }
            return Ok(());
        }
        if self.p.take_dot("local") {
            for Variable { name, align, bytes, .. } in self.p.declarations(false)? {
                let var = self.place(Space::Local, name, align, bytes);
                self.scopes[self.scope].names.insert(name, Named::Placed(var));
            }
            return Ok(());
        }
        self.p.debug()
    }

    fn declare_registers(&mut self) -> Result<(), ParseError> {
        let at = self.p.at();
        let ty = self.p.ty()?;
        if ty.bytes() == 1 || (ty.is_packed() && ty != Type::F16x2) {
            return self.p.error(at, "no register has this type");
        }
        loop {
            let at = self.p.at();
            let name = self.p.name()?;
            let (mut count, mut numbered) = (1, false);
            if self.p.take("<") {
                (count, numbered) = (self.p.small("a number of registers")?, true);
                self.p.sign(">")?;
            }
            let rows = vec![None; count.min(1 << 20) as usize];
            let named = Named::Registers { ty, rows, numbered };
            if self.scopes[self.scope].names.insert(name, named).is_some() {
                return self.p.error(at, format!("`{name}` is declared twice"));
            }
            if !self.p.take(",") {
                return self.p.sign(";");
            }
        }
    }

    fn instruction(&mut self) -> Result<(), ParseError> {
        let start = self.p.at();
        self.reads.clear();
        self.writes.clear();
        let mut guard = None;
        self.what = "guard".into();
        if self.p.take("@") {
            let negated = self.p.take("!");
            guard = Some(Guard { pred: self.src(Type::Pred)?, negated });
        }
        let at = self.p.at();
        let name = self.p.name()?;
        let mut mods = Mods::new(name, at);
        while let Tok::Dot(word) = *self.p.peek() {
            self.p.next();
            mods.push(word);
        }
        self.what = self.p.text[at..self.p.end()].to_owned();
        let op = decode::decode(self, &mut mods)?;
        self.p.require(at, &self.what, mods.needs())?;
        if let Some(unknown) = mods.unused() {
            return self.wrong(at, format!("the modifier `.{unknown}` is not known here"));
        }
        if !mods.are_known() {
            return self.wrong(at, "the ISA has it with no such modifiers, or not in such an order");
        }
        if !matches!(self.p.peek(), Tok::Sign(";")) {
            return self.wrong(self.p.at(), "expected `;` after the operands");
        }
        self.p.next();
        for inst in std::mem::take(&mut self.before) {
            self.push(inst, vec![]);
        }
        let reads = (self.all_reads.len() as u32, self.reads.len() as u32);
        self.all_reads.append(&mut self.reads);
        if let Some(call) = self.call.take() {
            return self.inline(&call, guard);
        }
        if let (Op::Branch { .. }, None, Some(returns)) = (&op, self.target, &mut self.returns) {
            returns.push(self.insts.len());
        }
        if let Some((label, at)) = self.target.take() {
            self.jumps.push((self.insts.len(), label, at, self.scope));
        }
        let writes = std::mem::take(&mut self.writes);
        self.push(
            Inst { guard, op, reads, writes: (0, 0), text: (start as u32, self.p.end() as u32) },
            writes,
        );
        Ok(())
    }

    pub(super) fn push(&mut self, inst: Inst, writes: Vec<Reg>) {
        self.insts.push(inst);
        self.all_writes.push(writes);
    }

    /// Resolves the target of every jump to the number of an instruction.
    pub(super) fn resolve(&mut self) -> Result<(), ParseError> {
        for (inst, label, at, scope) in std::mem::take(&mut self.jumps) {
            let find = |label: &str, at: usize| {
                let found = self.upwards(scope, |scope| scope.labels.get(label).copied());
                found.map_or_else(|| self.p.error(at, format!("the label `{label}` is nowhere")), Ok)
            };
            let resolved = if let Op::BranchTable { index, .. } = self.insts[inst].op {
                let Some(table) = self.upwards(scope, |scope| scope.tables.get(label).cloned()) else {
                    return self.p.error(at, format!("the list of targets `{label}` is nowhere"));
                };
                let targets: Result<_, ParseError> =
                    table.into_iter().map(|(label, at)| find(label, at)).collect();
                Op::BranchTable { index, targets: targets? }
            } else {
                Op::Branch { target: find(label, at)? }
            };
            self.insts[inst].op = resolved;
        }
        Ok(())
    }

    fn upwards<T>(&self, scope: usize, get: impl Fn(&Scope<'t>) -> Option<T>) -> Option<T> {
        let mut scope = Some(scope);
        while let Some(current) = scope {
            if let Some(found) = get(&self.scopes[current]) {
                return Some(found);
            }
            scope = self.scopes[current].parent;
        }
        None
    }
}
