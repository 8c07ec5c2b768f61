//! The Rust around the kernels: one thin typed function for each fused one, and a module with what was made.
//!
//! Invariant: what is emitted holds no `unsafe`, names only `::fusion`, and does nothing that the runtime could
//! do: it states types and hands over.

use proc_macro2::{Ident, Span, TokenStream, TokenTree};
use quote::{format_ident, quote};

use super::{rust, static_plan};
use crate::CpuKernels;
use crate::check::{Failure, Function, Inline, ParamType, Signature, Stub};
use crate::ir::dtype::DType;
use crate::ir::graph::{Dest, Graph, ParamKind};
use crate::ir::plan::{Code, Plan, Target};
use crate::target::Dialect;

/// An exported function: the function itself, and its module.
pub fn function(function: &Function, plan: &Plan<CpuKernels>) -> TokenStream {
    let Function { signature, graph, .. } = function;
    let params: Vec<ParamType> =
        graph.params.iter().map(|param| param_type(param.dtype, &param.kind)).collect();
    let results = results(graph);
    let arguments = names(signature, &params);
    let call = call(&signature.name, &results, &quote!([#(::fusion::__private::Arg::from(#arguments)),*]));
    let into = into(signature, &params, &results);
    let (contents, cfgs) = (contents(plan), cfgs(&signature.attributes));
    let Signature { attributes, visibility, name, .. } = signature;
    let (typed, result) = (typed_params(signature, &params), result_type(&results));
    let about =
        format!("What was made of [`{name}()`]: its kernels, its report, and a call that allocates nothing.");
    quote! {
        #attributes
        #[allow(clippy::too_many_arguments, reason = "as many as the maths has")]
        #visibility fn #name(#typed) -> ::fusion::Result<#result> {
            #call
        }

        #(#cfgs)*
        #[doc = #about]
        #[allow(unreachable_pub, reason = "reachable as far as the function is")]
        #visibility mod #name {
            #contents
            #into

            /// What was fused, what was not and why, and the bytes saved.
            pub fn report() -> ::fusion::Report {
                ::fusion::Report::new(&PLAN)
            }

            /// The text of every kernel, for GPUs.
            pub fn kernels() -> ::std::vec::Vec<::fusion::KernelText> {
                ::fusion::__private::kernels(&PLAN)
            }
        }
    }
}

/// The inline form, as an expression of type `Result<Tensor<_>>`.
pub fn inline(inline: &Inline, plan: &Plan<CpuKernels>) -> TokenStream {
    let arguments = inline.graph.params.iter().zip(&inline.captures).map(|(param, capture)| {
        let dtype = primitive(param.dtype);
        match param.kind {
            ParamKind::Tensor { .. } => {
                quote!(::fusion::__private::AsTensor::<#dtype>::as_tensor(&(#capture)))
            }
            ParamKind::Scalar => quote!(::fusion::__private::identity::<#dtype>(#capture)),
            ParamKind::Dim(_) => quote!(::fusion::__private::identity::<::core::primitive::usize>(#capture)),
        }
    });
    let name = Ident::new("__fused", Span::call_site());
    let call =
        call(&name, &results(&inline.graph), &quote!([#(::fusion::__private::Arg::from(#arguments)),*]));
    let contents = contents(plan);
    quote! {{
        #[allow(dead_code, reason = "an expression needs its plan only")]
        mod #name {
            #contents
        }
        #call
    }}
}

/// Every mistake, and stand-ins that keep the callers of what is mistaken from failing too.
pub fn failure(failure: &Failure, is_expression: bool) -> TokenStream {
    let errors = failure.errors.to_compile_errors();
    if is_expression {
        return quote!({ #errors ::fusion::__private::mistaken() });
    }
    let stubs = failure.stubs.iter().map(stub);
    quote!(#errors #(#stubs)*)
}

fn stub(stub: &Stub) -> TokenStream {
    let Stub { signature: Signature { visibility, name, attributes, .. }, params, results } = stub;
    let (types, result, cfgs) =
        (params.iter().map(|&param| rust_type(param)), result_type(results), cfgs(attributes));
    quote! {
        #(#cfgs)*
        #[allow(missing_docs, reason = "a stand-in")]
        #visibility fn #name(#(_: #types),*) -> ::fusion::Result<#result> {
            ::core::unimplemented!()
        }
    }
}

/// The plan and its texts.
fn contents(plan: &Plan<CpuKernels>) -> TokenStream {
    let (statics, functions) = (static_plan::plan(plan), cpu_functions(plan));
    let text = |target, name: &str, language: &str| {
        let (text, name) = (static_plan::first_text(plan, target)?, format_ident!("{name}"));
        let about = format!("{language} of the first kernel.");
        Some(quote!(#[doc = #about] pub const #name: &::core::primitive::str = #text;))
    };
    let (ptx, wgsl) = (text(Target::Ptx, "PTX", "PTX"), text(Target::Wgsl, "WGSL", "WGSL"));
    quote! {
        use ::fusion::__private as p;

        #ptx
        #wgsl
        #[doc(hidden)]
        pub static PLAN: p::Plan = #statics;

        #[allow(clippy::all, clippy::pedantic, clippy::restriction, unused, reason = "generated loops")]
        mod cpu {
            use ::fusion::__private::CpuArgs;
            #functions
        }
    }
}

fn cpu_functions(plan: &Plan<CpuKernels>) -> TokenStream {
    let mut text = String::new();
    for (name, kernels) in cpu_kernels(plan) {
        let (fma, base) = static_plan::cpu_names(name, kernels);
        text += &rust::rust(&kernels.fma, &fma.to_string(), Dialect::Cpu);
        if base != fma {
            text += &rust::rust(&kernels.base, &base.to_string(), Dialect::CpuBase);
        }
    }
    text.parse().unwrap_or_else(|error| unreachable!("emitted Rust is tokens: {error}"))
}

/// The CPU kernels of a plan with their names.
fn cpu_kernels(plan: &Plan<CpuKernels>) -> impl Iterator<Item = (&str, &CpuKernels)> {
    let steps = plan.programs.iter().flat_map(|program| program.steps.iter());
    let launches = steps.flat_map(|step| step.variants.iter().flat_map(|variant| variant.launches.iter()));
    launches.filter_map(|launch| match &launch.code {
        Code::Cpu(kernels) => Some((&*launch.kernel, kernels)),
        Code::Ptx(_) | Code::Wgsl(_) => None,
    })
}

/// The statement that runs a plan and types its results.
fn call(module: &Ident, results: &[DType], arguments: &TokenStream) -> TokenStream {
    let types: Vec<TokenStream> = results.iter().map(|&dtype| primitive(dtype)).collect();
    let names: Vec<Ident> = (0..results.len()).map(|i| format_ident!("result_{i}")).collect();
    match &types[..] {
        [dtype] => quote!(::fusion::__private::run_one::<#dtype>(&#module::PLAN, &mut #arguments)),
        _ => quote! {
            let [#(#names),*] = ::fusion::__private::run(&#module::PLAN, &mut #arguments)?;
            ::core::result::Result::Ok((#(::fusion::Tensor::<#types>::from_raw(#names)?),*))
        },
    }
}

/// The form that writes into tensors of the caller.
fn into(signature: &Signature, params: &[ParamType], results: &[DType]) -> Option<TokenStream> {
    if results.is_empty() {
        return None;
    }
    let arguments = names(signature, params);
    let taken = |name: &Ident| arguments.contains(name);
    let free = |name: Ident| if taken(&name) { format_ident!("{name}_result") } else { name };
    let outs: Vec<Ident> = match results.len() {
        1 => vec![free(format_ident!("out"))],
        many => (0..many).map(|i| free(format_ident!("out_{i}"))).collect(),
    };
    let types = results.iter().map(|&dtype| primitive(dtype));
    let typed = typed_params(signature, params);
    Some(quote! {
        /// Writes the results into tensors of their shapes, and allocates nothing.
        ///
        /// # Errors
        /// As the function; also where a tensor has not the shape of its result.
        #[allow(clippy::too_many_arguments, reason = "as many as the maths has")]
        pub fn into(#(#outs: &mut ::fusion::Tensor<#types>,)* #typed) -> ::fusion::Result<()> {
            p::run_into(&PLAN, &mut [#(p::Arg::from(#arguments)),*], &mut [#(p::Arg::from(#outs)),*])
        }
    })
}

fn typed_params(signature: &Signature, params: &[ParamType]) -> TokenStream {
    let (names, types) = (names(signature, params), params.iter().map(|&param| rust_type(param)));
    quote!(#(#names: #types),*)
}

/// The names of the parameters in Rust. Extents get names in lower case: Rust would take one in upper case for a
/// constant of that name, which a user may well have.
fn names(signature: &Signature, params: &[ParamType]) -> Vec<Ident> {
    let mut names: Vec<Ident> = Vec::with_capacity(params.len());
    for (name, param) in signature.params.iter().zip(params) {
        let mut name = name.clone();
        if *param == ParamType::Dim {
            name = Ident::new(&format!("dim_{}", name.to_string().to_lowercase()), name.span());
            while names.contains(&name) || signature.params.contains(&name) {
                name = format_ident!("{name}_");
            }
        }
        names.push(name);
    }
    names
}

fn param_type(dtype: DType, kind: &ParamKind) -> ParamType {
    match kind {
        ParamKind::Tensor { access, .. } => ParamType::Tensor(dtype, *access),
        ParamKind::Scalar => ParamType::Scalar(dtype),
        ParamKind::Dim(_) => ParamType::Dim,
    }
}

fn rust_type(param: ParamType) -> TokenStream {
    use crate::ir::graph::Access::{Read, ReadWrite, Write};
    match param {
        ParamType::Tensor(dtype, access) => {
            let dtype = primitive(dtype);
            match access {
                Read => quote!(&::fusion::Tensor<#dtype>),
                Write | ReadWrite => quote!(&mut ::fusion::Tensor<#dtype>),
            }
        }
        ParamType::Scalar(dtype) => primitive(dtype),
        ParamType::Dim => quote!(::core::primitive::usize),
    }
}

fn results(graph: &Graph) -> Vec<DType> {
    let returned = graph.outputs.iter().filter(|output| output.dest == Dest::Fresh);
    returned.map(|output| graph.node(output.node).dtype).collect()
}

fn result_type(results: &[DType]) -> TokenStream {
    let types = results.iter().map(|&dtype| {
        let dtype = primitive(dtype);
        quote!(::fusion::Tensor<#dtype>)
    });
    match results.len() {
        1 => quote!(#(#types)*),
        _ => quote!((#(#types),*)),
    }
}

/// The Rust type of an element, whatever the names in scope mean.
fn primitive(dtype: DType) -> TokenStream {
    let name = format_ident!("{}", dtype.name());
    match dtype {
        DType::F16 | DType::BF16 => quote!(::fusion::#name),
        DType::Index => quote!(::core::primitive::usize),
        DType::F32 | DType::F64 | DType::I32 | DType::U32 | DType::I8 | DType::U8 | DType::Bool => {
            quote!(::core::primitive::#name)
        }
    }
}

/// The `#[cfg(…)]` among attributes: the module exists when the function does.
fn cfgs(attributes: &TokenStream) -> Vec<TokenStream> {
    let trees: Vec<TokenTree> = attributes.clone().into_iter().collect();
    let attributes = trees.chunks(2).filter(|attribute| match attribute {
        [_, TokenTree::Group(group)] => {
            let first = group.stream().into_iter().next();
            matches!(first, Some(TokenTree::Ident(name)) if name == "cfg")
        }
        _ => false,
    });
    attributes.map(|attribute| attribute.iter().cloned().collect()).collect()
}
