//! Visits of the operands, bodies, accesses and definitions of statements and expressions.

use smallvec::{SmallVec, smallvec};

use super::{
    Address, AsyncCopy, ClusterExchange, Expr, Fold, Kernel, Lanes, SharedId, Shuffle, Stmt, Value, Values,
};

/// Defines visitors for shared and for mutable references.
macro_rules! visits {
    ($operands:ident, $bodies:ident, $iter:ident $(, $mutable:tt)?) => {
        impl Stmt {
            /// Visits the operands of the statement itself, without those of nested statements.
            pub fn $operands(&$($mutable)? self, mut visit: impl FnMut(&$($mutable)? Value)) {
                match self {
                    Stmt::Let(_, expr) => expr.$operands(visit),
                    Stmt::Store(at, value) => [&$($mutable)? at.index, value].into_iter().for_each(visit),
                    Stmt::Loop { start, end, step, carried, .. } => {
                        [start, end, step].into_iter().for_each(&mut visit);
                        carried.$iter().for_each(|carried| visit(&$($mutable)? carried.start));
                    }
                    Stmt::Vector { len, folds, .. } => {
                        visit(len);
                        folds.$iter().flat_map(|fold| fold.identity.$iter()).for_each(visit);
                    }
                    Stmt::AllReduce(fold) => {
                        let Fold { over, identity, .. } = &$($mutable)? **fold;
                        over.$iter().chain(identity).for_each(visit);
                    }
                    Stmt::StoreShared(_, index, value) => [index, value].into_iter().for_each(visit),
                    Stmt::AsyncCopy(AsyncCopy::Start(at, _, index, mask)) => {
                        [&$($mutable)? at.index, index, mask].into_iter().for_each(visit);
                    }
                    Stmt::ClusterExchange(ClusterExchange::Send(_, to, from, value)) => {
                        [to, from, value].into_iter().for_each(visit);
                    }
                    Stmt::If { cond, .. } => visit(cond),
                    Stmt::ClusterExchange(ClusterExchange::Init | ClusterExchange::Wait | ClusterExchange::Receive(_) | ClusterExchange::Invalidate)
                    | Stmt::AsyncCopy(AsyncCopy::Commit | AsyncCopy::Wait(_))
                    | Stmt::Barrier(_) => {}
                }
            }

            /// Visits each nested body, with the values that leave it.
            pub fn $bodies(
                &$($mutable)? self,
                mut visit: impl FnMut(&$($mutable)? Vec<Stmt>, &$($mutable)? [&$($mutable)? Value]),
            ) {
                type Leaving<'v> = SmallVec<[&'v $($mutable)? Value; 4]>;
                match self {
                    Stmt::Let(..)
                    | Stmt::Store(..)
                    | Stmt::StoreShared(..)
                    | Stmt::AsyncCopy(_)
                    | Stmt::ClusterExchange(_)
                    | Stmt::Barrier(_) => {}
                    Stmt::If { body, .. } => visit(body, &$($mutable)? []),
                    Stmt::Loop { body, carried, .. } => {
                        let next = carried.$iter().map(|carried| &$($mutable)? carried.next);
                        visit(body, &$($mutable)? next.collect::<Leaving<'_>>());
                    }
                    Stmt::Vector { body, folds, .. } => {
                        let terms = folds.$iter().flat_map(|fold| fold.over.$iter().chain(&$($mutable)? fold.times));
                        visit(body, &$($mutable)? terms.collect::<Leaving<'_>>());
                        for Fold { body, results, .. } in folds {
                            visit(body, &$($mutable)? results.$iter().collect::<Leaving<'_>>());
                        }
                    }
                    Stmt::AllReduce(fold) => {
                        let Fold { body, results, .. } = &$($mutable)? **fold;
                        visit(body, &$($mutable)? results.$iter().collect::<Leaving<'_>>());
                    }
                }
            }
        }

        impl Expr {
            /// Visits the operands.
            pub fn $operands(&$($mutable)? self, mut visit: impl FnMut(&$($mutable)? Value)) {
                match self {
                    Expr::Apply(_, args) | Expr::Pack(args) => args.$iter().for_each(visit),
                    Expr::Cast(arg)
                    | Expr::Bitcast(arg)
                    | Expr::Splat(arg)
                    | Expr::Lane(arg, _)
                    | Expr::Shuffle(arg, Shuffle::Down(_) | Shuffle::First)
                    | Expr::LoadShared(_, arg)
                    | Expr::LoadMatrices(_, arg, _) => visit(arg),
                    Expr::Shuffle(arg, Shuffle::DownBy(distance)) => {
                        [arg, distance].into_iter().for_each(visit);
                    }
                    Expr::Product(sum, left, right) | Expr::MatrixProduct(_, sum, left, right) => [sum, left, right].into_iter().for_each(visit),
                    Expr::Load(at) => visit(&$($mutable)? at.index),
                    Expr::LoadWhere(at, mask) => {
                        [&$($mutable)? at.index, mask].into_iter().for_each(visit);
                    }
                    Expr::Const(_)
                    | Expr::Uniform(_)
                    | Expr::Builtin(_) => {}
                }
            }
        }
    };
}

visits!(for_each_operand, for_each_body, iter);
visits!(for_each_operand_mut, for_each_body_mut, iter_mut, mut);

/// Iterates over statements, each before those of its body. The bodies of folds are left out.
pub fn statements(body: &[Stmt]) -> impl Iterator<Item = &Stmt> {
    let mut open = vec![body.iter()];
    std::iter::from_fn(move || {
        loop {
            if let Some(stmt) = open.last_mut()?.next() {
                open.push(stmt.body().iter());
                return Some(stmt);
            }
            open.pop();
        }
    })
}

impl Stmt {
    /// Returns the statements of a loop, a vector loop or a conditional; none for other statements.
    pub fn body(&self) -> &[Stmt] {
        if let Stmt::Loop { body, .. } | Stmt::Vector { body, .. } | Stmt::If { body, .. } = self {
            body
        } else {
            &[]
        }
    }

    /// Visits all values of the statement and of nested statements: operands and definitions. A value may be visited
    /// for each of its uses.
    pub fn for_each_value_mut(&mut self, visit: &mut impl FnMut(&mut Value)) {
        self.for_each_operand_mut(&mut *visit);
        match self {
            Stmt::Let(value, _) => visit(value),
            Stmt::Loop { var, carried, .. } => {
                visit(var);
                carried.iter_mut().flat_map(|one| [&mut one.var, &mut one.out]).for_each(&mut *visit);
            }
            Stmt::Vector { folds, .. } => {
                folds.iter_mut().for_each(|fold| fold.for_each_definition_mut(visit))
            }
            Stmt::AllReduce(fold) => fold.for_each_definition_mut(visit),
            Stmt::Store(..)
            | Stmt::StoreShared(..)
            | Stmt::AsyncCopy(_)
            | Stmt::ClusterExchange(_)
            | Stmt::Barrier(_)
            | Stmt::If { .. } => {}
        }
        self.for_each_body_mut(|body, leaving| {
            leaving.iter_mut().for_each(|value| visit(value));
            body.iter_mut().for_each(|stmt| stmt.for_each_value_mut(visit));
        });
    }

    /// Returns the address in a buffer that the statement reads or writes, with the value read or written.
    pub fn access(&self) -> Option<(&Address, Value)> {
        if let Stmt::Let(value, Expr::Load(at) | Expr::LoadWhere(at, _)) | Stmt::Store(at, value) = self {
            Some((at, *value))
        } else {
            None
        }
    }

    /// Returns the array in shared memory that the statement reads or writes, with the index and the value
    /// read or written.
    pub fn shared_access(&self) -> Option<(SharedId, Value, Value)> {
        if let Stmt::Let(value, Expr::LoadShared(id, index)) | Stmt::StoreShared(id, index, value) = self {
            Some((*id, *index, *value))
        } else {
            None
        }
    }

    /// Returns true if a statement of a vector loop runs for each lane, instead of once for all lanes.
    pub fn is_per_lane(&self, kernel: &Kernel) -> bool {
        match self {
            Stmt::Let(value, _) => kernel.ty(*value).lanes == Lanes::Loop,
            Stmt::Store(..) | Stmt::StoreShared(..) => true,
            _ => unreachable!("a vector loop holds no other statements"),
        }
    }

    /// Returns the values that the statement defines for the statements after it.
    pub fn made(&self) -> Values {
        match self {
            Stmt::Let(value, _) => smallvec![*value],
            Stmt::Loop { carried, .. } => carried.iter().map(|carried| carried.out).collect(),
            Stmt::Vector { folds, .. } => folds.iter().flat_map(|fold| &fold.out).copied().collect(),
            Stmt::AllReduce(fold) => fold.out.iter().copied().collect(),
            Stmt::Store(..)
            | Stmt::StoreShared(..)
            | Stmt::AsyncCopy(_)
            | Stmt::ClusterExchange(_)
            | Stmt::Barrier(_)
            | Stmt::If { .. } => {
                smallvec![]
            }
        }
    }
}

impl Fold {
    /// Visits the arguments of the function and the results of the reduction.
    fn for_each_definition_mut(&mut self, visit: &mut impl FnMut(&mut Value)) {
        let Fold { left, right, out, .. } = self;
        [left, right, out].into_iter().flatten().for_each(visit);
    }
}

impl Expr {
    /// Returns true if the value depends on nothing but the operands and the thread.
    pub fn is_pure(&self) -> bool {
        !matches!(self, Expr::Load(_) | Expr::LoadWhere(..) | Expr::LoadShared(..) | Expr::LoadMatrices(..))
    }
}
