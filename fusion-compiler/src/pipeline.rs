//! The pipeline from tokens to the macro's output: the only module that knows the order of the passes.

use std::collections::BTreeSet;
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::{self, ScopedJoinHandle};
use std::{io, iter};

use proc_macro2::{Ident, Span, TokenStream};
use rustc_hash::FxHashMap;

use crate::check::{self, Function, Source};
use crate::fuse::{Grouping, Reason};
use crate::ir::dim::DimExpr;
use crate::ir::graph::{Fusing, Graph, Math, NodeId, SpanId};
use crate::ir::kernel::{Expr, Kernel, LoopKind, Stmt, Uniform};
use crate::ir::plan::{
    Code, Condition, Footprint, Lack, Launch, LaunchSpec, Plan, Program, Target, Variant, VariantSummary,
};
use crate::plan::assemble::reason_text;
use crate::plan::summary::Locate;
use crate::plan::{
    Compiled, FusedGraph, UnloweredKernel, assemble, cost, nonempty, summary, variant_summary,
};
use crate::report::dump;
use crate::schedule::{self, Config, Schedule, Scheduled, Scratch, Work};
use crate::target::tuning_table::all;
use crate::target::{self, Dialect, TargetFacts};
use crate::{CpuKernel, KernelCode};
use crate::{emit, fuse, ir, legalize, parse, rewrite};

/// A pass, by the IR that it changes.
#[derive(Clone, Copy)]
enum CompilerPass {
    /// Changes the graph, for all targets.
    Graph(fn(Graph) -> Graph),
    /// Changes a kernel as its schedule made it. Costs are read off the result.
    Kernel(fn(Kernel) -> Kernel),
    /// Lowers a kernel to operations that the dialect can print.
    Lower(fn(Kernel, Dialect) -> Kernel),
}

/// Kernels and graphs that the passes are for.
#[derive(Clone, Copy)]
struct PassOptions {
    math: Math,
    dialect: Dialect,
    /// True for a variant whose teams combine values through subgroups.
    subgroups: bool,
}

/// Returns the names of all passes, in the order in which they run.
fn passes(options: PassOptions) -> impl Iterator<Item = (&'static str, CompilerPass)> {
    use CompilerPass::{Graph, Kernel, Lower};
    let PassOptions { math, dialect, subgroups } = options;
    let contracts = math != Math::Strict;
    let all = [
        (true, "widen", Graph(rewrite::widen)),
        (true, "simplify", Graph(rewrite::simplify)),
        (true, "cse", Graph(rewrite::cse)),
        (true, "dce", Graph(rewrite::dce)),
        (contracts, "normalize_late", Graph(rewrite::normalize_late)),
        (true, "group_factors", Graph(rewrite::group_factors)),
        (true, "reduce_factors", Graph(rewrite::reduce_factors)),
        (contracts, "fma", Graph(rewrite::fma)),
        (contracts, "near_one", Graph(rewrite::near_one)),
        (true, "dce", Graph(rewrite::dce)),
        (true, "max_num", Graph(rewrite::max_num)),
        (true, "copy_products", Graph(fuse::products::copy_products)),
        // `fuse` makes groups of the graph, and `schedule` makes kernels of each group.
        (subgroups, "by_subgroups", Kernel(legalize::by_subgroups)),
        (true, "skip_unchanged", Kernel(rewrite::skip_unchanged)),
        (true, "kernel_dce", Kernel(rewrite::kernel_dce)),
        (math == Math::Fast, "fast_math", Kernel(rewrite::fast_math)),
        (true, "prune_uniforms", Kernel(rewrite::prune_uniforms)),
        (dialect.reorders(), "hide_arithmetic", Lower(|kernel, _| rewrite::hide_arithmetic(kernel))),
        (true, "tiles", Lower(|kernel, _| legalize::tiles(kernel))),
        (true, "legalize", Lower(legalize::legalize)),
        (true, "kernel_cse", Lower(|kernel, _| rewrite::kernel_cse(kernel))),
        (true, "kernel_dce", Lower(|kernel, _| rewrite::kernel_dce(kernel))),
    ];
    all.into_iter().filter(|(runs, ..)| *runs).map(|(_, name, pass)| (name, pass))
}

/// Runs the passes on graphs, which do not depend on the target.
pub fn optimize(graph: Graph) -> Graph {
    let options = PassOptions { math: graph.math, dialect: Dialect::Cpu, subgroups: false };
    passes(options).fold(verified(graph, "check"), |graph, (name, pass)| match pass {
        CompilerPass::Graph(run) => verified(run(graph), name),
        CompilerPass::Kernel(_) | CompilerPass::Lower(_) => graph,
    })
}

/// Runs the passes on kernels, before their costs are read off.
fn simplified(kernel: Kernel, options: PassOptions) -> Kernel {
    passes(options).fold(verified_kernel(kernel, "schedule"), |kernel, (name, pass)| match pass {
        CompilerPass::Kernel(run) => verified_kernel(run(kernel), name),
        CompilerPass::Graph(_) | CompilerPass::Lower(_) => kernel,
    })
}

/// Lowers a kernel to operations that a dialect can print.
pub fn lower(kernel: Kernel, dialect: Dialect) -> Kernel {
    let options = PassOptions { math: Math::Accurate, dialect, subgroups: false };
    passes(options).fold(kernel, |kernel, (name, pass)| match pass {
        CompilerPass::Lower(run) => verified_kernel(run(kernel, dialect), name),
        CompilerPass::Graph(_) | CompilerPass::Kernel(_) => kernel,
    })
}

/// Output of `fuse!`, with the plans it was generated from.
pub struct Expansion {
    /// Rust code.
    pub tokens: TokenStream,
    /// Graph and plan of each function instance.
    made: Vec<(Graph, Plan<KernelCode>)>,
}

impl Expansion {
    /// Returns the names and texts of all dump files: the graph and report of each function, and the text of
    /// each kernel.
    pub fn dumps(&self) -> Vec<(String, String)> {
        self.made.iter().flat_map(|(graph, plan)| dump::dump(graph, plan)).collect()
    }
}

/// Runs the whole compiler for the targets in `built`. `runtime` names the runtime's crate where the output
/// is used.
pub fn expand(runtime: &Ident, tokens: TokenStream, built: &[Target]) -> Expansion {
    let made_of = |graph: &Graph, asked: &[Target], spans: &[Span]| {
        let targets = among(graph, asked, built);
        let plan = compile(graph.clone(), &targets, &|span| location(spans, span));
        (graph.clone(), plan)
    };
    let mut made = Vec::new();
    let is_expression = !parse::is_items(&tokens);
    let tokens = match check::front_end(tokens) {
        Ok(Source::Items(functions, unused)) => {
            let of_one = |a: &Function, b: &Function| a.number == b.number;
            let functions = functions.chunk_by(of_one).map(|instances| {
                let plan = |one: &Function| made_of(&one.graph, &one.options.targets, &one.spans);
                let first = made.len();
                made.extend(instances.iter().map(plan));
                let plans: Vec<&Plan<KernelCode>> = made[first..].iter().map(|(_, plan)| plan).collect();
                emit::host::function(runtime, &instances[0].signature, &plans)
            });
            functions.chain(unused.iter().flat_map(|names| emit::host::unused(names))).collect()
        }
        Ok(Source::Inline(inline)) => {
            made.push(made_of(&inline.graph, &inline.options.targets, &inline.spans));
            emit::host::inline(runtime, &inline, &made[0].1)
        }
        Err(failure) => emit::host::failure(runtime, &failure, is_expression),
    };
    Expansion { tokens, made }
}

/// Returns the targets that the function asks for and the build includes, if one of them can run it.
/// Otherwise returns all that the function asks for.
fn among(graph: &Graph, asked: &[Target], built: &[Target]) -> Vec<Target> {
    let both: Vec<Target> = asked.iter().filter(|target| built.contains(target)).copied().collect();
    let holds = |target: &Target| target::lacks(graph, *target).is_none();
    if both.iter().any(holds) { both } else { asked.to_vec() }
}

/// Returns the line and the column of a token, both counted from 1.
fn location(spans: &[Span], span: SpanId) -> (u32, u32) {
    let start = spans.get(span.0 as usize).map(Span::start);
    start.map_or((0, 0), |start| (start.line as u32, start.column as u32 + 1))
}

/// Compiles a checked function into its plan.
pub fn compile(graph: Graph, targets: &[Target], locate: Locate<'_>) -> Plan<KernelCode> {
    let graph = optimize(graph);
    let lack = |&target: &Target| Some(Lack { target, what: target::lacks(&graph, target)? });
    let lacks: Vec<Lack> = targets.iter().filter_map(lack).collect();
    let able = |target: &&Target| lacks.iter().all(|lack| lack.target != **target);
    let targets: Vec<Target> = targets.iter().filter(able).copied().collect();
    let facts: Vec<TargetFacts> = targets.iter().map(|&target| target::facts(target)).collect();
    let fused = fuse::fuse_for(graph.clone(), &facts);
    let of_target = |((&target, &facts), (graph, fused))| FusedGraph { target, facts, graph, fused };
    let graphs: Vec<FusedGraph> = targets.iter().zip(&facts).zip(fused).map(of_target).collect();
    let memory = assemble::SlotAssignment::new(&graph, graphs.iter().map(|one| &one.fused));
    let make = |of| {
        let mut kernels = Vec::new();
        let program = assemble::program(&memory, of, |work| variants(work, of, &mut kernels));
        Compiled { of, program, kernels }
    };
    let made = on_threads(&graphs, &make);
    let off = Graph { fusing: Fusing::Off, ..graphs[0].graph.clone() };
    let unfused = fuse::fuse(&off, &facts[0], &BTreeSet::new());
    let summary = summary::summary(&made, &unfused, locate);
    Plan {
        name: graph.name.clone().into(),
        symbols: graph.symbols.iter().map(|name| name.clone().into()).collect(),
        params: assemble::params(&graph).into(),
        nonempty: assemble::dims(&graph, &nonempty::axes(&graph)).into(),
        splits: assemble::splits(&graph).into(),
        concats: graph.concats.clone().into(),
        outputs: memory.plan_outputs().into(),
        programs: emitted(made.into_iter().map(|made| made.program).collect()).into(),
        lacks: lacks.into(),
        summary,
    }
}

/// The boundaries between the kernels of a function on one target.
#[derive(Clone, Debug, PartialEq)]
pub struct KernelBoundaries {
    /// Target of the kernels.
    pub target: Target,
    /// Number of kernels.
    pub kernels: usize,
    /// Values that are stored between kernels, and results with a kernel of their own.
    pub boundaries: Vec<KernelBoundary>,
}

/// A value at which one kernel ends.
#[derive(Clone, Debug, PartialEq)]
pub struct KernelBoundary {
    /// Name of the value: its operation, or the parameter it is.
    pub value: String,
    /// The reason for the boundary, as reports give it.
    pub reason: String,
    /// Token of the value in the user's source.
    pub span: SpanId,
}

/// Returns the kernel boundaries of a checked function for each target that can run it, without making the
/// texts of kernels.
pub fn kernel_boundaries(graph: Graph, targets: &[Target]) -> Vec<KernelBoundaries> {
    let graph = optimize(graph);
    let able = |target: &&Target| target::lacks(&graph, **target).is_none();
    let targets: Vec<Target> = targets.iter().filter(able).copied().collect();
    let facts: Vec<TargetFacts> = targets.iter().map(|&target| target::facts(target)).collect();
    let fused = fuse::fuse_for(graph.clone(), &facts);
    let of_target = |(target, (graph, fused)): (Target, (Graph, Grouping))| {
        let boundary = |node: NodeId, reason: &Reason| KernelBoundary {
            value: assemble::value_name(&graph, node),
            reason: reason_text(&graph, reason).into(),
            span: graph.node(node).span,
        };
        let stored = fused.boundaries.iter().map(|(&node, reason)| boundary(node, reason));
        let apart = fused.apart.iter().map(|(&i, reason)| boundary(graph.outputs[i].node, reason));
        KernelBoundaries { target, kernels: fused.groups.len(), boundaries: stored.chain(apart).collect() }
    };
    targets.into_iter().zip(fused).map(of_target).collect()
}

/// Stack size of a compiler thread. Deeply nested expressions need as much stack as on the main thread.
const STACK_BYTES: usize = 64 << 20;

/// Largest number of threads for one function. Starting a thread takes as long as compiling a kernel.
const THREADS_MAX: usize = 4;

/// Maps values in order, on as many threads as there are processors: users wait for the result.
fn on_threads<'t, T: Sync, U: Send>(all: &'t [T], make: &(impl Fn(&'t T) -> U + Sync)) -> Vec<U> {
    static PROCESSORS: OnceLock<usize> = OnceLock::new();
    let processors = *PROCESSORS.get_or_init(|| thread::available_parallelism().map_or(1, usize::from));
    let next = AtomicUsize::new(0);
    let work = || {
        let taken = iter::repeat_with(|| next.fetch_add(1, Ordering::Relaxed));
        taken.map_while(|i| Some((i, make(all.get(i)?)))).collect::<Vec<_>>()
    };
    let mut made = thread::scope(|scope| {
        let spawn = |_| thread::Builder::new().stack_size(STACK_BYTES).spawn_scoped(scope, work);
        let wait = |thread: io::Result<ScopedJoinHandle<'_, Vec<_>>>| match thread {
            Ok(thread) => thread.join().unwrap_or_else(|panic| resume_unwind(panic)),
            Err(error) => panic!("the compiler needs threads: {error}"),
        };
        let threads: Vec<_> = (0..processors.min(all.len()).min(THREADS_MAX)).map(spawn).collect();
        threads.into_iter().flat_map(wait).collect::<Vec<_>>()
    });
    made.sort_by_key(|(i, _)| *i);
    made.into_iter().map(|(_, made)| made).collect()
}

/// Prints the kernels of all programs.
fn emitted(programs: Vec<Program<UnloweredKernel>>) -> Vec<Program<KernelCode>> {
    let mut kernels: Vec<(Target, UnloweredKernel)> = Vec::new();
    let mut numbered = |program: Program<UnloweredKernel>| {
        let target = program.target;
        program.map_code(&mut |_, kernel| {
            // Variants share kernels, such as the kernel that combines partial results.
            let known = kernels.iter().position(|(_, known)| Arc::ptr_eq(known, &kernel));
            known.unwrap_or_else(|| {
                kernels.push((target, kernel));
                kernels.len() - 1
            })
        })
    };
    let numbered: Vec<Program<usize>> = programs.into_iter().map(&mut numbered).collect();
    debug_assert!(!verifies() || have_own_names(&kernels), "no two kernels of a target have one name");
    let codes = on_threads(&kernels, &|(target, kernel)| code(Kernel::clone(kernel), *target));
    let mut with_code = |launch: Launch<usize>| {
        let (code, uniforms) = &codes[launch.code];
        let mut launch = launch.map_code(&mut |_, _| code.clone());
        launch.uniforms = uniforms.iter().map(|uniform| uniform.arg.clone()).collect();
        launch
    };
    numbered.into_iter().map(|program| program.map_launches(&mut with_code)).collect()
}

/// Returns true if kernels of one target have different names, by which devices tell them apart.
fn have_own_names(kernels: &[(Target, UnloweredKernel)]) -> bool {
    let mut known: FxHashMap<(Target, &str), &Kernel> = FxHashMap::default();
    kernels.iter().all(|(target, kernel)| {
        known.insert((*target, &kernel.name), kernel).is_none_or(|other| *other == **kernel)
    })
}

/// Returns true if the IR is verified after every pass. Debug builds of this repository do so, because
/// `.cargo/config.toml` sets the variable. Users' macros are debug builds too, but their builds should not
/// wait for it.
fn verifies() -> bool {
    cfg!(debug_assertions) && option_env!("FUSION_VERIFY") == Some("1")
}

/// Verifies what a pass made of a graph, and returns it.
fn verified(graph: Graph, pass: &str) -> Graph {
    if verifies()
        && let Err(error) = ir::verify::graph(&graph)
    {
        unreachable!("`{pass}` broke the graph: {error}\n{graph}");
    }
    graph
}

/// Verifies what a pass made of a kernel, and returns it.
fn verified_kernel(kernel: Kernel, pass: &str) -> Kernel {
    if verifies()
        && let Err(error) = ir::verify_kernel::kernel(&kernel)
    {
        unreachable!("`{pass}` broke the kernel: {error}");
    }
    kernel
}

/// Returns the variants of one group for a target, and the memory between their kernels. Appends what reports
/// need to `kernels`.
fn variants(
    work: &Work<'_>,
    &FusedGraph { target, ref facts, .. }: &FusedGraph,
    kernels: &mut Vec<(Schedule, VariantSummary)>,
) -> (Vec<Variant<UnloweredKernel>>, Vec<Scratch>) {
    let (configs, scratch) = schedule::schedule(work, facts);
    let configs: Vec<Config> = configs.into_iter().flat_map(|config| forms(target, config)).collect();
    kernels.push((
        schedule::chosen(work),
        variant_summary::variant_summary(target, configs.iter().map(Vec::as_slice)),
    ));
    let bytes = |kernel: &Kernel, one: &Scheduled| cost::traffic::bytes(work, &scratch, facts, (kernel, one));
    // Variants share kernels, such as the kernel that combines partial results.
    let mut known: Vec<(Scheduled, Launch<UnloweredKernel>)> = Vec::new();
    let mut made = |one: Scheduled| match known.iter().find(|(other, _)| other.is_same_launch(&one)) {
        Some((_, launch)) => launch.clone(),
        None => {
            let launch = launch(target, (one.clone(), work.graph.math), &bytes);
            known.push((one, launch.clone()));
            launch
        }
    };
    let variant = |config: Config| Variant {
        when: config.iter().flat_map(|scheduled| scheduled.when.clone()).collect(),
        launches: config.into_iter().map(&mut made).collect(),
    };
    let variants = configs.into_iter().map(variant).collect();
    (variants, scratch)
}

/// Returns the configs with each way to reduce over a team, in order of preference. Parts of split rows are
/// so long that the way does not matter.
fn forms(target: Target, config: Config) -> Vec<Config> {
    let matters = |scheduled: &Scheduled| scheduled.common && scheduled.kernel.threads.rows == 1;
    if target != Target::Wgsl || !config.iter().any(matters) {
        return vec![config];
    }
    let mut by_subgroups = config.clone();
    for scheduled in by_subgroups.iter_mut().filter(|scheduled| matters(scheduled)) {
        scheduled.when.push(Condition::Subgroups(scheduled.kernel.threads.team));
    }
    vec![by_subgroups, config]
}

/// Function that returns the bytes a kernel with these buffers moves.
type BytesOf<'b> = dyn Fn(&Kernel, &Scheduled) -> DimExpr + 'b;

fn launch(
    target: Target,
    (scheduled, math): (Scheduled, Math),
    bytes: &BytesOf<'_>,
) -> Launch<UnloweredKernel> {
    let subgroups = scheduled.combines_by_subgroups();
    let options = PassOptions { math, dialect: dialect(target), subgroups };
    let kernel = simplified(scheduled.kernel.clone(), options);
    let bytes = bytes(&kernel, &scheduled);
    let Scheduled { buffers, space, row_memory, cluster, contraction, of_blocks, .. } = scheduled;
    let trips = match target {
        Target::Wgsl => cost::trips::trips(&kernel),
        Target::Ptx | Target::Cpu => None,
    };
    debug_assert!(trips.is_some() || target != Target::Wgsl, "the bounds of loops are known: {kernel}");
    let trips = trips.unwrap_or_else(|| DimExpr::constant(0));
    let are_strided = buffers.iter().map(|buffer| matches!(buffer.footprint, Footprint::Strided { .. }));
    debug_assert!(are_strided.eq(kernel.buffers.iter().map(|buffer| buffer.strided)), "{kernel}");
    let prologue = has_prologue(&kernel);
    let (team, buffers) = (kernel.threads.team, buffers.into());
    // The dialect may ask for one more uniform, so the list of uniforms is known only with the code.
    let spec = LaunchSpec::new(kernel.name.clone(), kernel.index, space);
    let spec = LaunchSpec { buffers, team, row_memory, bytes, trips, prologue, cluster, ..spec };
    let spec = LaunchSpec { contraction, of_blocks, ..spec };
    Launch { code: Arc::new(kernel), spec }
}

/// Returns true if each thread reduces elements before its iterations, in a loop or unrolled.
fn has_prologue(kernel: &Kernel) -> bool {
    let is_loop = |stmt: &Stmt| matches!(stmt, Stmt::Loop { kind: LoopKind::Serial, .. });
    let is_load = |stmt: &&Stmt| matches!(stmt, Stmt::Let(_, Expr::Load(_)));
    kernel.body.iter().any(is_loop) || kernel.body.iter().filter(is_load).count() > all::PROLOGUE_LOADS_MAX
}

fn dialect(target: Target) -> Dialect {
    match target {
        Target::Ptx => Dialect::Ptx,
        Target::Wgsl => Dialect::Wgsl,
        Target::Cpu => Dialect::Cpu,
    }
}

/// Prints a kernel for a target. Returns the code and the uniforms that it needs.
fn code(kernel: Kernel, target: Target) -> (KernelCode, Vec<Uniform>) {
    let kernel = lower(kernel, dialect(target));
    match target {
        Target::Ptx => (Code::Ptx(emit::ptx::ptx(&kernel).into()), kernel.uniforms),
        Target::Wgsl => (Code::Wgsl(emit::wgsl::wgsl(&kernel).into()), kernel.uniforms),
        Target::Cpu => {
            let (rust, uniforms) = (emit::rust::rust(&kernel), kernel.uniforms.clone());
            let (rust, is_memory_bound) = (rust.text.into(), rust.is_memory_bound);
            (Code::Cpu(CpuKernel { kernel, rust, is_memory_bound }), uniforms)
        }
    }
}

#[cfg(test)]
mod tests {
    /// No other test fails where `.cargo/config.toml` is not found.
    #[test]
    fn what_passes_make_is_checked_in_this_repository() {
        assert_eq!(super::verifies(), cfg!(debug_assertions));
    }
}
