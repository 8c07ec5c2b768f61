//! Reductions over the blocks of a cluster: each block sends its partial results to all blocks.
//!
//! Invariant: every block combines the same numbers in the same order. No block sends to a block that has not
//! yet initialised its exchange buffers, or that still reads them. Each fold of an iteration has an exchange
//! buffer of its own, and the next iteration begins when all blocks have ended the current one.

use super::{BOOL, Legalizer};
use crate::ir::kernel::{
    Builtin, ClusterExchange, Expr, Fold, Shared, SharedId, SharedLen, Stmt, Value, WARP,
};
use crate::ir::op::Op;
use crate::target::CLUSTER_MAX;

impl Legalizer<'_> {
    /// Surrounds an iteration that exchanges values: `Init` comes first, and `Invalidate` last if another
    /// iteration follows.
    pub(super) fn begun(&mut self, mut iteration: Stmt) -> Stmt {
        if !std::mem::take(&mut self.has_exchange) {
            return iteration;
        }
        if let Stmt::Loop { var, end, step, body, .. } = &mut iteration {
            body.insert(0, Stmt::ClusterExchange(ClusterExchange::Init));
            let mut b = self.builder(body);
            let next = b.apply(Op::Add, &[*var, *step]);
            let cond = b.bind(BOOL, Expr::Apply(Op::Lt, [next, *end].into_iter().collect()));
            body.push(Stmt::If { cond, body: vec![Stmt::ClusterExchange(ClusterExchange::Invalidate)] });
        }
        iteration
    }

    /// Reduces over the threads of each block, then in each warp over the blocks of the cluster.
    pub(super) fn by_cluster(&mut self, fold: &Fold, out: &mut Vec<Stmt>) -> Vec<Value> {
        let of_block = self.by_shuffles(fold, out);
        if !std::mem::replace(&mut self.has_exchange, true) {
            out.push(Stmt::ClusterExchange(ClusterExchange::Wait));
        }
        let len = SharedLen::ExchangeBuffer;
        let first = self.shared.len();
        let all = fold.over.iter().map(|value| Shared { dtype: self.types[value.0 as usize].dtype, len });
        self.shared.extend(all);
        let exchange_buffers: Vec<SharedId> =
            (first..self.shared.len()).map(|id| SharedId(id as u16)).collect();
        let mut b = self.builder(out);
        let thread = b.builtin(Builtin::ThreadId);
        let (rank, size) = (b.builtin(Builtin::ClusterRank), b.builtin(Builtin::ClusterSize));
        let cond = b.apply(Op::Lt, &[thread, size]);
        let sends = exchange_buffers.iter().zip(&of_block);
        let body = sends
            .map(|(&id, &value)| Stmt::ClusterExchange(ClusterExchange::Send(id, thread, rank, value)))
            .collect();
        b.body.push(Stmt::If { cond, body });
        b.body.extend(exchange_buffers.iter().map(|&id| Stmt::ClusterExchange(ClusterExchange::Receive(id))));
        let parts = self.of_blocks(fold, &exchange_buffers, (thread, size), out);
        self.fold_warp(fold, parts, CLUSTER_MAX as u32, out)
    }

    /// Returns the partial results of the block whose number is the thread's lane. Lanes without a block get
    /// the identity.
    fn of_blocks(
        &mut self,
        fold: &Fold,
        memory: &[SharedId],
        (thread, size): (Value, Value),
        out: &mut Vec<Stmt>,
    ) -> Vec<Value> {
        let mut b = self.builder(out);
        let (mask, zero) = (b.index(i64::from(WARP) - 1), b.index(0));
        let lane = b.apply(Op::And, &[thread, mask]);
        let is_there = b.apply(Op::Lt, &[lane, size]);
        let block = b.apply(Op::Select, &[is_there, lane, zero]);
        let parts = self.read_shared(fold, memory, block, out);
        let mut b = self.builder(out);
        let parts = parts.into_iter().zip(&fold.identity);
        parts.map(|(part, &nothing)| b.apply(Op::Select, &[is_there, part, nothing])).collect()
    }
}
