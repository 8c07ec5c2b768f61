//! Operands: constants, registers, vectors and addresses, checked against the instruction's type.

use super::ParseError;
use super::body::Body;
use super::decode;
use super::ir::{Addr, Constant, DYNAMIC, Guard, Inst, Op, Placed, PredSrc, Reg, Space, Special, Wide};
use super::lex::Tok;
use super::module::{Named, Parser};
use super::types::{Class, Type};

/// Value of a constant expression.
#[derive(Clone, Copy, Debug)]
pub(super) struct Value {
    /// Bits of an integer.
    pub(super) whole: Option<u64>,
    single: Option<u32>,
    double: Option<f64>,
}

impl Value {
    fn whole(value: u64) -> Value {
        Value { whole: Some(value), single: None, double: None }
    }

    /// Returns the bits of the constant as an operand of a type. None if the ISA has no such constant.
    pub(super) fn bits(self, ty: Type) -> Option<u64> {
        let keep = |bits: u64| if ty.bytes() == 8 { bits } else { bits & ((1 << (8 * ty.bytes())) - 1) };
        if ty.is_packed() {
            return None;
        }
        match ty.class() {
            // Any integer but 0 is true, as in C.
            Class::Pred => self.whole.map(|bits| u64::from(bits != 0)),
            Class::Int => self.whole.map(keep),
            Class::Bits | Class::Float => match (ty.bytes(), self.whole, self.single, self.double) {
                (_, Some(whole), ..) => (ty.class() == Class::Bits).then(|| keep(whole)),
                (4, None, Some(single), _) => Some(u64::from(single)),
                // A constant written as a double is no operand of `.b32`.
                (4, None, None, Some(double)) => {
                    (ty.class() == Class::Float).then(|| u64::from((double as f32).to_bits()))
                }
                (8, None, None, Some(double)) => Some(double.to_bits()),
                (_, None, _, _) => None,
            },
        }
    }

    fn map(self, f: impl Fn(u64) -> u64) -> Option<Value> {
        self.whole.map(|whole| Value::whole(f(whole)))
    }
}

/// Function of an operator. None where the operator has no value.
type Operator = fn(i64, i64) -> Option<i64>;

/// Binary operators of constants with their precedence.
const OPERATORS: [(&str, u8, Operator); 10] = [
    ("*", 6, |a, b| Some(a.wrapping_mul(b))),
    ("/", 6, i64::checked_div),
    ("%", 6, i64::checked_rem),
    ("+", 5, |a, b| Some(a.wrapping_add(b))),
    ("-", 5, |a, b| Some(a.wrapping_sub(b))),
    ("<<", 4, |a, b| a.checked_shl(b.try_into().ok()?)),
    (">>", 4, |a, b| a.checked_shr(b.try_into().ok()?)),
    ("&", 3, |a, b| Some(a & b)),
    ("^", 2, |a, b| Some(a ^ b)),
    ("|", 1, |a, b| Some(a | b)),
];

impl Parser<'_> {
    /// Parses a constant expression.
    pub(super) fn constant(&mut self) -> Result<Value, ParseError> {
        self.binary(0)
    }

    fn binary(&mut self, least: u8) -> Result<Value, ParseError> {
        let at = self.at();
        let mut left = self.unary()?;
        loop {
            let found = OPERATORS.iter().find(|(sign, level, _)| {
                *level > least && matches!(self.peek(), Tok::Sign(found) if found == sign)
            });
            let Some(&(_, level, apply)) = found else { return Ok(left) };
            self.next();
            let right = self.binary(level)?;
            let both = left.whole.zip(right.whole).and_then(|(a, b)| apply(a as i64, b as i64));
            let Some(value) = both else { return self.error(at, "this constant has no value") };
            left = Value::whole(value as u64);
        }
    }

    fn unary(&mut self) -> Result<Value, ParseError> {
        self.nested(Parser::unary_inside)
    }

    fn unary_inside(&mut self) -> Result<Value, ParseError> {
        let at = self.at();
        let value = match *self.peek() {
            Tok::Sign("-") => {
                self.next();
                let value = self.unary()?;
                value
                    .map(|whole| whole.wrapping_neg())
                    .or(value.double.map(|x| Value { double: Some(-x), ..value }))
            }
            Tok::Sign("+") => {
                self.next();
                Some(self.unary()?)
            }
            Tok::Sign("~") => {
                self.next();
                self.unary()?.map(|whole| !whole)
            }
            Tok::Sign("!") => {
                self.next();
                self.unary()?.map(|whole| u64::from(whole == 0))
            }
            Tok::Sign("(") => {
                self.next();
                let value = self.constant()?;
                self.sign(")")?;
                Some(value)
            }
            Tok::Int(value) => {
                self.next();
                Some(Value::whole(value))
            }
            Tok::Name("WARP_SZ") => {
                self.next();
                Some(Value::whole(32))
            }
            Tok::Single(bits) => {
                self.next();
                Some(Value { whole: None, single: Some(bits), double: Some(f64::from(f32::from_bits(bits))) })
            }
            Tok::Double(value) => {
                self.next();
                Some(Value { whole: None, single: None, double: Some(value) })
            }
            Tok::Name(_) | Tok::Dot(_) | Tok::Text(_) | Tok::Sign(_) | Tok::End => {
                return self.expected("a constant");
            }
        };
        value.map_or_else(|| self.error(at, "this constant has no value"), Ok)
    }
}

/// Names that an operand may be, in addition to a register and a constant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Names {
    None,
    /// Special register.
    Special,
    /// Address of a variable in a space.
    Address(Space),
    /// Special register, or address in any space.
    All,
}

/// Declaration of a register.
#[derive(Clone, Copy)]
pub(super) struct Declared {
    pub(super) row: Reg,
    pub(super) ty: Type,
}

impl Declared {
    pub(super) fn wide(self) -> Wide {
        if self.ty.bytes() == 8 { Wide::Two } else { Wide::One }
    }
}

impl<'t> Body<'_, 't> {
    pub(super) fn comma(&mut self) -> Result<(), ParseError> {
        self.sign(",")
    }

    /// Parses a sign between the operands.
    pub(super) fn sign(&mut self, sign: &str) -> Result<(), ParseError> {
        let at = self.p.at();
        self.p.sign(sign).or_else(|error| self.wrong(at, error.message))
    }

    /// Parses the next token if it is a register of this kernel.
    fn register(&mut self) -> Option<Declared> {
        let Tok::Name(name) = *self.p.peek() else { return None };
        let found = self.lookup_register(name)?;
        self.p.next();
        Some(found)
    }

    fn typed(&self, at: usize, ty: Type, declared: Type, fits: bool) -> Result<(), ParseError> {
        if fits {
            return Ok(());
        }
        let (wanted, got) = (name_of(ty), name_of(declared));
        self.wrong(at, format!("an operand of type `.{wanted}` cannot be a register of type `.{got}`"))
    }

    fn register_to_write(&mut self) -> Result<Declared, ParseError> {
        let at = self.p.at();
        let found = self.register();
        let none = || self.p.expected("a register to write").or_else(|error| self.wrong(at, error.message));
        found.map_or_else(none, Ok)
    }

    /// Parses a register to write.
    pub(super) fn dst(&mut self, ty: Type) -> Result<Reg, ParseError> {
        let at = self.p.at();
        let declared = self.register_to_write()?;
        self.typed(at, ty, declared.ty, ty.takes(declared.ty))?;
        self.writes.push(declared.row);
        Ok(declared.row)
    }

    /// Parses a register to write that may be wider than the type.
    pub(super) fn dst_wider(&mut self, ty: Type) -> Result<(Reg, Wide), ParseError> {
        let at = self.p.at();
        let declared = self.register_to_write()?;
        self.typed(at, ty, declared.ty, ty.takes_wider(declared.ty))?;
        self.declared = declared.ty;
        self.writes.push(declared.row);
        Ok((declared.row, declared.wide()))
    }

    /// Parses a register to write, or `_`.
    pub(super) fn dst_or_sink(&mut self, ty: Type) -> Result<Option<Reg>, ParseError> {
        if matches!(self.p.peek(), Tok::Name("_")) {
            self.p.next();
            return Ok(None);
        }
        self.dst(ty).map(Some)
    }

    /// Parses a source operand: a register or a constant.
    pub(super) fn src(&mut self, ty: Type) -> Result<Reg, ParseError> {
        self.src_named(ty, Names::None)
    }

    /// Parses a source operand: a register, a constant or a name.
    pub(super) fn src_named(&mut self, ty: Type, names: Names) -> Result<Reg, ParseError> {
        self.source(ty, Type::takes, names).map(|(reg, _)| reg)
    }

    /// Parses a source operand. The value of a constant has to satisfy `is`.
    pub(super) fn src_of(
        &mut self,
        ty: Type,
        what: &str,
        is: impl Fn(u64) -> bool,
    ) -> Result<Reg, ParseError> {
        let (at, reg) = (self.p.at(), self.src(ty)?);
        match self.constant_in(reg) {
            Some(value) if !is(value) => self.wrong(at, format!("{value} is no {what}")),
            Some(_) | None => Ok(reg),
        }
    }

    /// Parses a source operand whose register may be wider than the type.
    pub(super) fn src_wider(&mut self, ty: Type, names: Names) -> Result<(Reg, Wide), ParseError> {
        self.source(ty, Type::takes_wider, names)
    }

    fn source(
        &mut self,
        ty: Type,
        fits: fn(Type, Type) -> bool,
        names: Names,
    ) -> Result<(Reg, Wide), ParseError> {
        let at = self.p.at();
        let wide = if ty.bytes() == 8 { Wide::Two } else { Wide::One };
        self.declared = ty;
        if let Some(declared) = self.register() {
            self.typed(at, ty, declared.ty, fits(ty, declared.ty))?;
            self.declared = declared.ty;
            self.reads.push(declared.row);
            return Ok((declared.row, declared.wide()));
        }
        if let Tok::Name(name) = *self.p.peek()
            && name != "WARP_SZ"
        {
            let special = name.starts_with('%');
            let reg = if special { self.special(ty, names)? } else { self.variable(name, ty, names)? };
            return Ok((reg, wide));
        }
        let value = self.p.constant()?;
        let Some(bits) = value.bits(ty) else {
            return self.wrong(at, format!("this constant is not of type `.{}`", name_of(ty)));
        };
        Ok((self.constant(Constant::Bits(bits), wide), wide))
    }

    /// Parses a special register. An instruction of its own reads it before the current instruction.
    fn special(&mut self, ty: Type, names: Names) -> Result<Reg, ParseError> {
        let at = self.p.at();
        let (special, native) = self.special_name()?;
        // Registers that had 16 bits in earlier versions, and `%gridid`, which had 32, may still be read at
        // that length.
        let shorter = match special {
            Special::Tid(_) | Special::Ntid(_) | Special::Ctaid(_) | Special::Nctaid(_) => ty.bytes() == 2,
            Special::GridId => ty.bytes() < 8,
            _ => false,
        };
        let fits = match names {
            Names::All => {
                ty == native
                    || (matches!(ty.class(), Class::Int | Class::Bits)
                        && (ty.bytes() == native.bytes() || shorter))
            }
            Names::Special => ty.class() == Class::Int && ty.bytes() <= native.bytes(),
            Names::None | Names::Address(_) => {
                return self.wrong(at, "only `mov`, and `cvt` of integers, read special registers");
            }
        };
        if !fits {
            return self.wrong(at, format!("this special register is not of type `.{}`", name_of(ty)));
        }
        let wide = if ty.bytes() == 8 { Wide::Two } else { Wide::One };
        let d = self.row(wide);
        let text = (at as u32, self.p.end() as u32);
        self.before.push(Inst {
            guard: None,
            op: Op::Special { special, wide, d },
            reads: (0, 0),
            writes: (0, 0),
            text,
        });
        self.reads.push(d);
        Ok(d)
    }

    /// Parses the name of a special register such as `%tid.x`, and returns it with its type.
    pub(super) fn special_name(&mut self) -> Result<(Special, Type), ParseError> {
        let at = self.p.at();
        let name = self.p.name()?;
        let axis = match *self.p.peek() {
            Tok::Dot("x") => Some(0),
            Tok::Dot("y") => Some(1),
            Tok::Dot("z") => Some(2),
            Tok::Dot(_)
            | Tok::Name(_)
            | Tok::Int(_)
            | Tok::Single(_)
            | Tok::Double(_)
            | Tok::Text(_)
            | Tok::Sign(_)
            | Tok::End => None,
        };
        if axis.is_some() {
            self.p.next();
        }
        self.p.require(at, name, decode::needs_of(name, &[]))?;
        let special = match (name, axis) {
            ("%tid", Some(axis)) => Special::Tid(axis),
            ("%ntid", Some(axis)) => Special::Ntid(axis),
            ("%ctaid", Some(axis)) => Special::Ctaid(axis),
            ("%nctaid", Some(axis)) => Special::Nctaid(axis),
            ("%laneid", None) => Special::LaneId,
            ("%warpid", None) => Special::WarpId,
            ("%nwarpid", None) => Special::NWarpId,
            ("%smid", None) => Special::SmId,
            ("%nsmid", None) => Special::NSmId,
            ("%gridid", None) => return Ok((Special::GridId, Type::U64)),
            ("%lanemask_eq", None) => Special::MaskEq,
            ("%lanemask_le", None) => Special::MaskLe,
            ("%lanemask_lt", None) => Special::MaskLt,
            ("%lanemask_ge", None) => Special::MaskGe,
            ("%lanemask_gt", None) => Special::MaskGt,
            ("%clock", None) => Special::Clock,
            ("%clock_hi", None) => Special::ClockHi,
            ("%clock64", None) => return Ok((Special::Clock, Type::U64)),
            ("%globaltimer_lo", None) => Special::GlobalTimer,
            ("%globaltimer_hi", None) => Special::ClockHi,
            ("%globaltimer", None) => return Ok((Special::GlobalTimer, Type::U64)),
            ("%total_smem_size", None) => Special::TotalShared,
            ("%dynamic_smem_size", None) => Special::DynamicShared,
            ("%cluster_ctarank", None) => Special::ClusterRank,
            ("%cluster_nctarank", None) => Special::ClusterBlocks,
            ("%clusterid", Some(axis)) => Special::ClusterId(axis),
            ("%nclusterid", Some(axis)) => Special::NClusterId(axis),
            ("%cluster_ctaid", Some(axis)) => Special::ClusterCtaid(axis),
            ("%cluster_nctaid", Some(axis)) => Special::ClusterNctaid(axis),
            ("%is_explicit_cluster", None) => return Ok((Special::IsExplicitCluster, Type::Pred)),
            (_, _) => {
                return self.wrong(at, format!("`{name}` is neither declared nor a known special register"));
            }
        };
        Ok((special, Type::U32))
    }

    /// Parses the address of a variable, with an optional offset.
    fn variable(&mut self, name: &'t str, ty: Type, names: Names) -> Result<Reg, ParseError> {
        let (at, wide) = (self.p.at(), if ty.bytes() == 8 { Wide::Two } else { Wide::One });
        self.p.next();
        let offset = self.offset()?;
        let (home, constant) = match self.lookup_variable(name) {
            Some(Named::Global { number, space }) => (space, Constant::Global(number, offset)),
            Some(Named::Dynamic { .. }) => (Space::Shared, Constant::Placed(DYNAMIC, offset)),
            Some(Named::Placed(var)) => (self.vars[var as usize].space, Constant::Placed(var, offset)),
            Some(Named::Argument(_)) => {
                return self.wrong(at, format!("the address of the argument `{name}` is not supported"));
            }
            Some(Named::Registers { .. } | Named::SharedOutside { .. }) | None => {
                return self.wrong(at, format!("`{name}` is not declared"));
            }
        };
        let long = !matches!(home, Space::Global | Space::Const) || wide == Wide::Two;
        let fits = match names {
            Names::All => matches!(ty.class(), Class::Int | Class::Bits) && long,
            Names::Address(space) => home == space,
            Names::None | Names::Special => {
                return self.wrong(at, format!("only `mov` and `cvta` take the address of `{name}`"));
            }
        };
        if fits {
            return Ok(self.constant(constant, wide));
        }
        self.wrong(
            at,
            format!("the address of `{name}` is not of type `.{}`, or not in this space", name_of(ty)),
        )
    }

    /// Parses `+ constant`, or nothing.
    fn offset(&mut self) -> Result<i64, ParseError> {
        if !self.p.take("+") {
            return Ok(0);
        }
        let at = self.p.at();
        let Some(whole) = self.p.constant()?.whole else {
            return self.wrong(at, "an offset is a whole number");
        };
        Ok(whole as i64)
    }

    /// Parses an address: `[%rd1+16]`, `[name]`, `[0]`.
    pub(super) fn addr(&mut self, space: Space) -> Result<Addr, ParseError> {
        self.sign("[")?;
        let addr = self.addr_inside(space)?;
        self.sign("]")?;
        Ok(addr)
    }

    fn addr_inside(&mut self, space: Space) -> Result<Addr, ParseError> {
        let at = self.p.at();
        if let Some(declared) = self.register() {
            let narrow_ok = !matches!(space, Space::Generic | Space::Global);
            if !(declared.ty.class() != Class::Float
                && (declared.ty.bytes() == 8 || (narrow_ok && declared.ty.bytes() == 4)))
            {
                return self.wrong(
                    at,
                    format!("an address cannot be a register of type `.{}`", name_of(declared.ty)),
                );
            }
            self.reads.push(declared.row);
            let offset = self.offset()?;
            return Ok(Addr { base: Some((declared.row, declared.wide())), offset, var: None });
        }
        let Tok::Name(name) = *self.p.peek() else {
            if space != Space::Local {
                return self.wrong(at, "only an address of local memory may be a number");
            }
            let offset = self.p.constant()?.whole;
            return offset.map_or_else(
                || self.wrong(at, "an address is a whole number"),
                |offset| Ok(Addr { base: None, offset: offset as i64, var: None }),
            );
        };
        self.p.next();
        let offset = self.offset()?;
        let (home, addr) = match self.lookup_variable(name) {
            Some(Named::Placed(var) | Named::Argument(var)) => {
                let Placed { space, start, .. } = self.vars[var as usize];
                (space, Addr { base: None, offset: i64::from(start) + offset, var: Some(var) })
            }
            Some(Named::Dynamic { .. }) => (Space::Shared, self.based(Constant::Placed(DYNAMIC, offset))),
            Some(Named::Global { number, space }) => (space, self.based(Constant::Global(number, offset))),
            Some(Named::Registers { .. } | Named::SharedOutside { .. }) | None => {
                return self.wrong(at, format!("`{name}` is not declared"));
            }
        };
        let same = match space {
            Space::Generic => home == Space::Global,
            Space::Global | Space::Const | Space::Shared | Space::Cluster | Space::Local | Space::Param => {
                home.is_reached_by(space)
            }
        };
        if same { Ok(addr) } else { self.wrong(at, format!("`{name}` is not in the space of this access")) }
    }

    /// Returns true if the next tokens are `[name]` with a name of a call's argument.
    pub(super) fn next_is_argument(&mut self) -> bool {
        let Tok::Name(name) = *self.p.peek_second() else { return false };
        matches!(self.lookup_variable(name), Some(Named::Argument(_)))
    }

    fn based(&mut self, constant: Constant) -> Addr {
        Addr { base: Some((self.constant(constant, Wide::Two), Wide::Two)), offset: 0, var: None }
    }

    /// Parses a predicate to read: `p`, `!p`, 0 or 1.
    pub(super) fn pred(&mut self) -> Result<PredSrc, ParseError> {
        self.pred_named(Names::None)
    }

    /// Parses a predicate to read, which may be a name.
    pub(super) fn pred_named(&mut self, names: Names) -> Result<PredSrc, ParseError> {
        let negated = self.p.take("!");
        let pred = self.src_named(Type::Pred, names)?;
        Ok(Guard { pred, negated })
    }

    /// Parses the elements of `{a, b}`. One element without braces is a vector of one.
    pub(super) fn vector<T>(
        &mut self,
        element: impl Fn(&mut Self) -> Result<T, ParseError>,
    ) -> Result<Vec<T>, ParseError> {
        if !self.p.take("{") {
            return Ok(vec![element(self)?]);
        }
        let mut elements = vec![element(self)?];
        while self.p.take(",") {
            elements.push(element(self)?);
        }
        self.p.sign("}")?;
        Ok(elements)
    }

    /// Parses a vector of a fixed number of elements.
    pub(super) fn fragment<const N: usize>(
        &mut self,
        wanted: usize,
        element: impl Fn(&mut Self) -> Result<Reg, ParseError>,
    ) -> Result<[Reg; N], ParseError> {
        let at = self.p.at();
        let elements = self.vector(element)?;
        if elements.len() != wanted {
            return self
                .wrong(at, format!("a vector of {wanted} registers is needed, not of {}", elements.len()));
        }
        let mut all = [0; N];
        all[..wanted].copy_from_slice(&elements);
        Ok(all)
    }
}

/// Returns the name of a type.
pub(super) fn name_of(ty: Type) -> &'static str {
    Type::NAMES.iter().find(|(_, known)| *known == ty).map_or("?", |(name, _)| name)
}
