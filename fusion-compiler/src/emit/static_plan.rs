//! Plan → the Rust expression of a `static`.
//!
//! Invariant: the tokens name only `::fusion::__private` and build exactly the plan that they are given.

use proc_macro2::{Ident, TokenStream};
use quote::{format_ident, quote};

use crate::CpuKernels;
use crate::ir::dim::{DimExpr, DimOp};
use crate::ir::dtype::DType;
use crate::ir::graph::Access;
use crate::ir::kernel::IndexWidth;
use crate::ir::plan::{
    Array, ArrayKind, Boundary, BufferArg, Code, Condition, Dest, Dim, GroupSummary, IndexMap, Lack, Launch,
    Output, Param, ParamKind, Plan, Product, Program, Reach, Slot, Step, Sum, Summary, Target, Temporary,
    Traffic, UniformArg, Variant, Ways,
};

/// The plan as an expression, in a scope where `p` is `::fusion::__private`, `cpu` holds the functions, and
/// `PTX` and `WGSL` are the first texts.
pub(super) fn plan(plan: &Plan<CpuKernels>) -> TokenStream {
    let Plan { name, symbols, params, nonempty, products, sums, outputs, programs, .. } = plan;
    let symbols = list(symbols, |symbol| text(symbol));
    let (params, outputs) = (list(params, param), list(outputs, output));
    let (nonempty, products, sums) = (list(nonempty, dim), list(products, product), list(sums, sum));
    let first = |target| first_text(plan, target).unwrap_or_default();
    let first = Firsts { ptx: first(Target::Ptx), wgsl: first(Target::Wgsl) };
    let programs = list(programs, |one| program(one, &first));
    let (name, lacks, summary) = (text(name), list(&plan.lacks, lack), summary(&plan.summary));
    quote!(p::Plan {
        name: #name, symbols: #symbols, params: #params, nonempty: #nonempty, products: #products,
        sums: #sums, outputs: #outputs, programs: #programs, lacks: #lacks, summary: #summary,
    })
}

fn lack(lack: &Lack) -> TokenStream {
    let (target, what) = (target(lack.target), text(&lack.what));
    quote!(p::Lack { target: #target, what: #what })
}

/// The text of the first kernel for a GPU target.
pub(super) fn first_text(plan: &Plan<CpuKernels>, target: Target) -> Option<&str> {
    let program = plan.programs.iter().find(|program| program.target == target)?;
    match &program.steps.first()?.variants.first()?.launches.first()?.code {
        Code::Ptx(text) | Code::Wgsl(text) => Some(text),
        Code::Cpu(_) => None,
    }
}

/// Texts that have a name, so that they are said once.
struct Firsts<'a> {
    ptx: &'a str,
    wgsl: &'a str,
}

fn list<T>(items: &[T], tokens: impl FnMut(&T) -> TokenStream) -> TokenStream {
    let items = items.iter().map(tokens);
    quote!(p::Cow::Borrowed(&[#(#items),*]))
}

fn text(text: &str) -> TokenStream {
    quote!(p::Cow::Borrowed(#text))
}

fn variant_name(debug: impl std::fmt::Debug) -> Ident {
    format_ident!("{debug:?}")
}

fn dtype(dtype: DType) -> TokenStream {
    let name = variant_name(dtype);
    quote!(p::DType::#name)
}

fn access(access: Access) -> TokenStream {
    let name = variant_name(access);
    quote!(p::Access::#name)
}

fn target(target: Target) -> TokenStream {
    let name = variant_name(target);
    quote!(p::Target::#name)
}

fn extent(extent: &DimExpr) -> TokenStream {
    let steps = list(&extent.0, |step| match step {
        DimOp::Const(extent) => quote!(p::DimOp::Const(#extent)),
        DimOp::Sym(sym) => quote!(p::DimOp::Sym(#sym)),
        DimOp::Add | DimOp::Sub | DimOp::Mul | DimOp::FloorDiv | DimOp::CeilDiv => {
            let name = variant_name(step);
            quote!(p::DimOp::#name)
        }
    });
    quote!(p::DimExpr(#steps))
}

fn dim(dim: &Dim) -> TokenStream {
    let (name, extent) = (text(&dim.name), extent(&dim.extent));
    quote!(p::Dim { name: #name, extent: #extent })
}

fn product(product: &Product) -> TokenStream {
    let (whole, parts) = (dim(&product.whole), list(&product.parts, dim));
    quote!(p::Product { whole: #whole, parts: #parts })
}

fn sum(sum: &Sum) -> TokenStream {
    let (whole, parts) = (dim(&sum.whole), list(&sum.parts, dim));
    quote!(p::Sum { whole: #whole, parts: #parts })
}

fn param(param: &Param) -> TokenStream {
    let (name, dtype) = (text(&param.name), dtype(param.dtype));
    let kind = match &param.kind {
        ParamKind::Tensor { access: how, dims } => {
            let (access, dims) = (access(*how), list(dims, dim));
            quote!(Tensor { access: #access, dims: #dims })
        }
        ParamKind::AnyShape { access: how } => {
            let access = access(*how);
            quote!(AnyShape { access: #access })
        }
        ParamKind::Scalar => quote!(Scalar),
        ParamKind::Dim(symbol) => quote!(Dim(#symbol)),
    };
    quote!(p::Param { name: #name, dtype: #dtype, kind: p::ParamKind::#kind })
}

fn output(output: &Output) -> TokenStream {
    let Output { any_shape, .. } = output;
    let (dtype, dims) = (dtype(output.dtype), list(&output.dims, dim));
    let dest = match output.dest {
        Dest::Returned => quote!(Returned),
        Dest::Replaces(param) => quote!(Replaces(#param)),
    };
    quote!(p::Output { dtype: #dtype, dims: #dims, any_shape: #any_shape, dest: p::Dest::#dest })
}

fn program(program: &Program<CpuKernels>, first: &Firsts<'_>) -> TokenStream {
    let (target, temporaries) = (target(program.target), list(&program.temporaries, temporary));
    let steps = list(&program.steps, |one| step(one, first));
    quote!(p::Program { target: #target, temporaries: #temporaries, steps: #steps })
}

fn temporary(temporary: &Temporary) -> TokenStream {
    let Temporary { first, last, .. } = temporary;
    let (dtype, len) = (dtype(temporary.dtype), extent(&temporary.len));
    quote!(p::Temporary { dtype: #dtype, len: #len, first: #first, last: #last })
}

fn step(step: &Step<CpuKernels>, first: &Firsts<'_>) -> TokenStream {
    let variants = list(&step.variants, |Variant { when, launches }| {
        let (when, launches) = (list(when, condition), list(launches, |one| launch(one, first)));
        quote!(p::Variant { when: #when, launches: #launches })
    });
    quote!(p::Step { variants: #variants })
}

fn condition(condition: &Condition) -> TokenStream {
    let condition = match condition {
        Condition::Divides(of, divisor) => {
            let extent = extent(of);
            quote!(Divides(#extent, #divisor))
        }
        Condition::AtMost(of, max) => {
            let extent = extent(of);
            quote!(AtMost(#extent, #max))
        }
        Condition::AtLeast(of, min) => {
            let extent = extent(of);
            quote!(AtLeast(#extent, #min))
        }
        Condition::Subgroups(threads) => quote!(Subgroups(#threads)),
        Condition::Shares(bytes) => {
            let bytes = extent(bytes);
            quote!(Shares(#bytes))
        }
        Condition::Binds(bytes) => {
            let bytes = extent(bytes);
            quote!(Binds(#bytes))
        }
    };
    quote!(p::Condition::#condition)
}

fn launch(launch: &Launch<CpuKernels>, first: &Firsts<'_>) -> TokenStream {
    let (kernel, code) = (text(&launch.kernel), code(&launch.kernel, &launch.code, first));
    let index = match launch.index {
        IndexWidth::Bits32 => quote!(p::IndexWidth::Bits32),
        IndexWidth::Bits64 => quote!(p::IndexWidth::Bits64),
    };
    let (buffers, uniforms) = (list(&launch.buffers, buffer), list(&launch.uniforms, uniform));
    let (grain, team, row_memory) = (launch.space.grain, launch.team, extent(&launch.row_memory));
    let (bytes, trips) = (extent(&launch.bytes), extent(&launch.trips));
    let (rows, cols, each) =
        (extent(&launch.space.rows), extent(&launch.space.cols), extent(&launch.space.each));
    quote!(p::Launch {
        kernel: #kernel, code: #code, index: #index, buffers: #buffers, uniforms: #uniforms,
        space: p::Space { rows: #rows, cols: #cols, grain: #grain, each: #each }, team: #team,
        row_memory: #row_memory, bytes: #bytes, trips: #trips,
    })
}

fn code(kernel: &str, code: &Code<CpuKernels>, first: &Firsts<'_>) -> TokenStream {
    match code {
        Code::Ptx(ptx) if *ptx == first.ptx => quote!(p::Code::Ptx(p::Cow::Borrowed(PTX))),
        Code::Wgsl(wgsl) if *wgsl == first.wgsl => quote!(p::Code::Wgsl(p::Cow::Borrowed(WGSL))),
        Code::Ptx(ptx) => {
            let ptx = text(ptx);
            quote!(p::Code::Ptx(#ptx))
        }
        Code::Wgsl(wgsl) => {
            let wgsl = text(wgsl);
            quote!(p::Code::Wgsl(#wgsl))
        }
        Code::Cpu(kernels) => {
            let (fma, base) = cpu_names(kernel, kernels);
            quote!(p::Code::Cpu(::fusion::__private::cpu_fns!(cpu::#fma, cpu::#base)))
        }
    }
}

/// Names of the two functions of a CPU kernel: one name if they are the same.
pub(super) fn cpu_names(kernel: &str, kernels: &CpuKernels) -> (Ident, Ident) {
    let fma = format_ident!("{kernel}");
    let base = if kernels.fma == kernels.base { fma.clone() } else { format_ident!("{kernel}_base") };
    (fma, base)
}

fn buffer(buffer: &BufferArg) -> TokenStream {
    let slot = match buffer.slot {
        Slot::Param(i) => quote!(Param(#i)),
        Slot::Output(i) => quote!(Output(#i)),
        Slot::Temp(i) => quote!(Temp(#i)),
    };
    let reach = match &buffer.reach {
        Reach::Linear(per) => {
            let per = extent(per);
            quote!(Linear(#per))
        }
        Reach::Beside { each, inner } => {
            let (each, inner) = (extent(each), extent(inner));
            quote!(Beside { each: #each, inner: #inner })
        }
        Reach::Whole => quote!(Whole),
        Reach::Windows(IndexMap { start, dims }) => {
            let start = extent(start);
            let dims = list(dims, |(of, stride)| {
                let (extent, stride) = (extent(of), extent(stride));
                quote!((#extent, #stride))
            });
            quote!(Windows(p::IndexMap { start: #start, dims: #dims }))
        }
    };
    let (access, dtype) = (access(buffer.access), dtype(buffer.dtype));
    quote!(p::BufferArg { slot: p::Slot::#slot, access: #access, dtype: #dtype, reach: p::Reach::#reach })
}

fn uniform(uniform: &UniformArg) -> TokenStream {
    let arg = match uniform {
        UniformArg::Extent(of) => {
            let extent = extent(of);
            quote!(Extent(#extent))
        }
        UniformArg::Scalar(param) => quote!(Scalar(#param)),
        UniformArg::Start => quote!(Start),
        UniformArg::End => quote!(End),
        UniformArg::Offset(buffer) => quote!(Offset(#buffer)),
        UniformArg::Window(buffer) => quote!(Window(#buffer)),
    };
    quote!(p::UniformArg::#arg)
}

fn summary(whole: &Summary) -> TokenStream {
    let Summary { ops, .. } = whole;
    let (before, math) = (extent(&whole.unfused_bytes), format_ident!("{}", format!("{:?}", whole.math)));
    let (arrays, groups) = (list(&whole.arrays, array), list(&whole.groups, group));
    let boundaries = list(&whole.boundaries, boundary);
    let (targets, others) = (list(&whole.targets, |one| target(*one)), list(&whole.others, summary));
    quote!(p::Summary {
        ops: #ops, unfused_bytes: #before, math: p::Math::#math, arrays: #arrays, groups: #groups, boundaries: #boundaries,
        targets: #targets, others: #others,
    })
}

fn array(array: &Array) -> TokenStream {
    let (name, shape, bytes) = (text(&array.name), text(&array.shape), extent(&array.bytes));
    let kind = match array.kind {
        ArrayKind::Param => quote!(Param),
        ArrayKind::InPlace => quote!(InPlace),
        ArrayKind::Returned(i) => quote!(Returned(#i)),
        ArrayKind::Temporary => quote!(Temporary),
    };
    quote!(p::Array { name: #name, shape: #shape, bytes: #bytes, kind: p::ArrayKind::#kind })
}

fn group(group: &GroupSummary) -> TokenStream {
    let moved = |Traffic { array, bytes }: &Traffic| {
        let bytes = extent(bytes);
        quote!(p::Traffic { array: #array, bytes: #bytes })
    };
    let (kernel, schedule, hero) = (text(&group.kernel), text(&group.schedule), text(&group.hero));
    let (ops, space) = (list(&group.ops, |op| text(op)), text(&group.space));
    let (reads, writes) = (list(&group.reads, moved), list(&group.writes, moved));
    let ways = list(&group.ways, |Ways { target: of, variants, kinds }| {
        let (target, kinds) = (target(*of), list(kinds, |kind| text(kind)));
        quote!(p::Ways { target: #target, variants: #variants, kinds: #kinds })
    });
    quote!(p::GroupSummary {
        kernel: #kernel, schedule: #schedule, hero: #hero, ops: #ops, space: #space, reads: #reads,
        writes: #writes, ways: #ways,
    })
}

fn boundary(boundary: &Boundary) -> TokenStream {
    let Boundary { array, line, column, .. } = boundary;
    let (value, reason) = (text(&boundary.value), text(&boundary.reason));
    quote!(p::Boundary { value: #value, array: #array, reason: #reason, line: #line, column: #column })
}
