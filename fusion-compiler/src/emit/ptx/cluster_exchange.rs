//! What blocks of a cluster send each other.
//!
//! An exchange buffer has a barrier in memory that counts bytes which are on their way (PTX ISA, "mbarrier" and "st.async"): who waits
//! there knows what came, and nobody needs a fence, which takes a GPU a microsecond. It is made anew for each iteration, so that it is
//! always its first phase that is waited for.

use super::{Bank, Emitter, Register, shared_name, suffix};
use crate::ir::kernel::{ClusterExchange, Kernel, SharedId, SharedLen, Value};

/// The memory of a kernel that other blocks send to.
pub(super) fn exchange_buffers(kernel: &Kernel) -> impl Iterator<Item = SharedId> {
    let all = kernel.shared.iter().enumerate().filter(|(_, shared)| shared.len == SharedLen::ExchangeBuffer);
    all.map(|(i, _)| SharedId(i as u16))
}

/// Returns the name of the barrier of an exchange buffer.
pub(super) fn barrier_name(id: SharedId) -> String {
    format!("m{}", id.0)
}

impl Emitter<'_> {
    pub(super) fn cluster_exchange(&mut self, exchange: ClusterExchange) {
        match exchange {
            ClusterExchange::Init => self.open(),
            ClusterExchange::Wait => self.line("barrier.cluster.wait.acquire.aligned;"),
            ClusterExchange::Send(id, to, from, value) => self.send(id, (to, from), value),
            ClusterExchange::Receive(id) => {
                let (came, again) = (self.register(Bank::Pred), self.label("again"));
                self.mark(&again);
                let wait = "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64";
                self.line(format_args!("{wait} {came}, [{}], 0;", barrier_name(id)));
                self.line(format_args!("@!{came} bra {again};"));
            }
            ClusterExchange::Invalidate => {
                self.cluster_barrier();
                let first = self.first_thread();
                for id in exchange_buffers(self.kernel) {
                    let barrier = barrier_name(id);
                    self.line(format_args!("@{first} mbarrier.inval.shared::cta.b64 [{barrier}];"));
                }
            }
        }
    }

    pub(super) fn cluster_barrier(&mut self) {
        self.line("barrier.cluster.arrive.release.aligned;");
        self.line("barrier.cluster.wait.acquire.aligned;");
    }

    /// Says how many bytes will come to each exchange buffer, and of memory no more than that there are such buffers.
    fn open(&mut self) {
        let (first, blocks) = (self.first_thread(), self.register(Bank::Bits32));
        self.line(format_args!("mov.u32 {blocks}, %cluster_nctarank;"));
        for id in exchange_buffers(self.kernel) {
            let (barrier, bytes) = (barrier_name(id), self.register(Bank::Bits32));
            let each = self.kernel.shared[usize::from(id.0)].dtype.size();
            self.line(format_args!("mul.lo.u32 {bytes}, {blocks}, {each};"));
            self.line(format_args!("@{first} mbarrier.init.shared::cta.b64 [{barrier}], 1;"));
            let expect = "mbarrier.arrive.expect_tx.shared::cta.b64";
            self.line(format_args!("@{first} {expect} _, [{barrier}], {bytes};"));
        }
        self.line(format_args!("@{first} fence.mbarrier_init.release.cluster;"));
        self.line("barrier.cluster.arrive.relaxed.aligned;");
    }

    fn send(&mut self, id: SharedId, (to, from): (Value, Value), value: Value) {
        let [place, barrier, base] = [(); 3].map(|()| self.register(Bank::Bits32));
        let (to, from, value_of) = (self.one(to), self.one(from), self.one(value));
        let dtype = self.kernel.ty(value).dtype;
        self.line(format_args!("mov.u32 {base}, {};", shared_name(id)));
        self.line(format_args!("mad.lo.u32 {place}, {from}, {}, {base};", dtype.size()));
        self.line(format_args!("mov.u32 {barrier}, {};", barrier_name(id)));
        for address in [place, barrier] {
            self.line(format_args!("mapa.shared::cluster.u32 {address}, {address}, {to};"));
        }
        let (send, t) = ("st.async.shared::cluster.mbarrier::complete_tx::bytes", suffix(self.kernel, dtype));
        self.line(format_args!("{send}.{t} [{place}], {value_of}, [{barrier}];"));
    }

    /// Whether this is the first thread of its block.
    fn first_thread(&mut self) -> Register {
        let (thread, first) = (self.register(Bank::Bits32), self.register(Bank::Pred));
        self.line(format_args!("mov.u32 {thread}, %tid.x;"));
        self.line(format_args!("setp.eq.u32 {first}, {thread}, 0;"));
        first
    }
}
