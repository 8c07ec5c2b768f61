//! The Rust around the kernels: one thin typed function for each fused one, and a module with what was made.
//!
//! Invariant: what is emitted holds no `unsafe`, names only `::fusion`, and does nothing that the runtime could
//! do: it states types and hands over.

use proc_macro2::{Ident, Span, TokenStream, TokenTree};
use quote::{ToTokens, format_ident, quote, quote_spanned};

use super::{rust, static_plan};
use crate::CpuKernels;
use crate::check::{Failure, Function, Inline, ParamType, Returns, Signature, Stub};
use crate::ir::dtype::DType;
use crate::ir::graph::{Dest, Graph, ParamKind};
use crate::ir::plan::{Code, Plan, Target};
use crate::target::Dialect;

/// An exported function: the function itself, and its module.
pub fn function(function: &Function, plan: &Plan<CpuKernels>) -> TokenStream {
    let Function { signature, graph, .. } = function;
    let params: Vec<ParamType> =
        graph.params.iter().filter_map(|param| param_type(param.dtype, &param.kind)).collect();
    let (results, names) = (results(graph), rust_names(&signature.params));
    let call = call(&signature.name, (&results, signature.returns), &arguments(&names));
    let into = into(&names, &params, &results);
    let (contents, cfgs) = (contents(plan), cfgs(&signature.attributes));
    let Signature { attributes, visibility, name, .. } = signature;
    let (typed, result) = (typed_params(&names, &params), result_type(&results, signature.returns));
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
    let captures = inline.graph.params.iter().zip(&inline.captures).map(|(param, capture)| {
        let dtype = primitive(param.dtype);
        // What has the wrong type is underlined itself, not the whole `fuse!`.
        let first = capture.clone().into_iter().next().map_or(Span::call_site(), |token| token.span());
        let place = first.resolved_at(Span::call_site());
        match param.kind {
            ParamKind::Tensor { .. } => {
                quote_spanned!(place=> ::fusion::__private::AsTensor::<#dtype>::as_tensor(&(#capture)))
            }
            ParamKind::Scalar => {
                quote_spanned!(place=> ::fusion::__private::IntoScalar::<#dtype>::into_scalar(#capture))
            }
            ParamKind::Dim(_) | ParamKind::View { .. } => unreachable!("tensors and numbers are captured"),
        }
    });
    let name = Ident::new("__fused", Span::call_site());
    let captures: Vec<TokenStream> = captures.collect();
    let call = call(&name, (&results(&inline.graph), Returns::One), &arguments(&captures));
    let contents = contents(plan);
    quote! {{
        #[allow(dead_code, reason = "an expression needs its plan only")]
        mod #name {
            #contents
        }
        #call
    }}
}

/// Every mistake, and stand-ins that keep the users of what is mistaken from failing too.
pub fn failure(failure: &Failure, is_expression: bool) -> TokenStream {
    let errors = failure.errors.to_compile_errors();
    if is_expression {
        return quote!({ #errors ::fusion::__private::mistaken() });
    }
    let stubs = failure.stubs.iter().map(stub);
    quote!(#errors #(#stubs)*)
}

fn stub(stub: &Stub) -> TokenStream {
    let Stub { signature: Signature { visibility, name, attributes, returns, .. }, params, results } = stub;
    let (types, result, cfgs) =
        (params.iter().map(|&param| rust_type(param)), result_type(results, *returns), cfgs(attributes));
    let types: Vec<TokenStream> = types.collect();
    let outs = results.iter().map(|&dtype| primitive(dtype));
    // It is there for its type alone.
    let never = quote!(::core::unreachable!("a program with a mistake does not compile"));
    quote! {
        #(#cfgs)*
        #[allow(missing_docs, reason = "a stand-in")]
        #visibility fn #name(#(_: #types),*) -> ::fusion::Result<#result> {
            #never
        }

        #(#cfgs)*
        #[allow(missing_docs, unused, unreachable_pub, reason = "a stand-in")]
        #visibility mod #name {
            pub const PTX: &::core::primitive::str = "";
            pub const WGSL: &::core::primitive::str = "";
            pub fn into(#(_: &mut ::fusion::Tensor<#outs>,)* #(_: #types),*) -> ::fusion::Result<()> {
                #never
            }
            pub fn report() -> ::fusion::Report {
                #never
            }
            pub fn kernels() -> ::std::vec::Vec<::fusion::KernelText> {
                #never
            }
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
    // Cargo expands the macro again when a variable changes that the output asks for.
    let dump = quote!(
        const _: ::core::option::Option<&::core::primitive::str> = ::core::option_env!("FUSION_DUMP");
    );
    quote! {
        #dump
        use ::fusion::__private as p;

        #ptx
        #wgsl
        #[doc(hidden)]
        pub static PLAN: p::Plan = #statics;

        #[allow(clippy::all, clippy::pedantic, clippy::restriction, unused, reason = "generated loops")]
        mod cpu {
            // For modules without a prelude.
            use ::core::prelude::rust_2024::*;
            use ::fusion::__private::{CpuArgs, fold_lanes};
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
fn call(module: &Ident, (results, returns): (&[DType], Returns), arguments: &TokenStream) -> TokenStream {
    let types: Vec<TokenStream> = results.iter().map(|&dtype| primitive(dtype)).collect();
    let names: Vec<Ident> = (0..results.len()).map(|i| format_ident!("result_{i}")).collect();
    match returns {
        Returns::One => {
            quote!(::fusion::__private::run_one::<#(#types)*>(&#module::PLAN, &mut #arguments))
        }
        Returns::Tuple => quote! {
            let [#(#names),*] = ::fusion::__private::run(&#module::PLAN, &mut #arguments)?;
            ::core::result::Result::Ok((#(::fusion::Tensor::<#types>::from_raw(#names)?,)*))
        },
    }
}

/// The form that writes into tensors of the caller.
fn into(names: &[Ident], params: &[ParamType], results: &[DType]) -> Option<TokenStream> {
    if results.is_empty() {
        return None;
    }
    let out = |i| if results.len() == 1 { String::from("out") } else { format!("out_{i}") };
    let outs: Vec<Ident> = (0..results.len()).map(|i| free(out(i), names, Span::call_site())).collect();
    let types = results.iter().map(|&dtype| primitive(dtype));
    let (typed, args, results) = (typed_params(names, params), arguments(names), arguments(&outs));
    Some(quote! {
        /// Writes the results into tensors of their shapes, and allocates nothing.
        ///
        /// # Errors
        /// As the function; also where a tensor has not the shape of its result.
        #[allow(clippy::too_many_arguments, reason = "as many as the maths has")]
        pub fn into(#(#outs: &mut ::fusion::Tensor<#types>,)* #typed) -> ::fusion::Result<()> {
            p::run_into(&PLAN, &mut #args, &mut #results)
        }
    })
}

/// What the runtime takes.
fn arguments(values: &[impl ToTokens]) -> TokenStream {
    quote!([#(<::fusion::__private::Arg<'_> as ::core::convert::From<_>>::from(#values)),*])
}

fn typed_params(names: &[Ident], params: &[ParamType]) -> TokenStream {
    let types = params.iter().map(|&param| rust_type(param));
    quote!(#(#names: #types),*)
}

/// What parameters are called in Rust: as the user says, but in lowercase where it is uppercase, as dims are. There
/// an uppercase name may be a constant of the user, and then is no name for a parameter.
fn rust_names(params: &[Ident]) -> Vec<Ident> {
    let mut names = params.to_vec();
    for i in 0..names.len() {
        let name = names[i].to_string();
        if name.starts_with(char::is_uppercase) {
            names[i] = free(name.to_lowercase(), &names, names[i].span());
        }
    }
    names
}

/// The name, or a longer one if that is taken or a keyword.
fn free(mut name: String, taken: &[Ident], span: Span) -> Ident {
    while taken.iter().any(|other| *other == name) || syn::parse_str::<Ident>(&name).is_err() {
        name.push('_');
    }
    Ident::new(&name, span)
}

/// What the caller passes, if anything.
fn param_type(dtype: DType, kind: &ParamKind) -> Option<ParamType> {
    match kind {
        ParamKind::Tensor { access, .. } => Some(ParamType::Tensor(dtype, *access)),
        ParamKind::Scalar => Some(ParamType::Scalar(dtype)),
        ParamKind::Dim(_) => Some(ParamType::Dim),
        ParamKind::View { .. } => None,
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
        ParamType::Unknown => quote!(impl ::core::marker::Sized),
    }
}

fn results(graph: &Graph) -> Vec<DType> {
    let returned = graph.outputs.iter().filter(|output| output.dest == Dest::Fresh);
    returned.map(|output| graph.node(output.node).dtype).collect()
}

fn result_type(results: &[DType], returns: Returns) -> TokenStream {
    let types = results.iter().map(|&dtype| {
        let dtype = primitive(dtype);
        quote!(::fusion::Tensor<#dtype>)
    });
    match returns {
        Returns::One => quote!(#(#types)*),
        Returns::Tuple => quote!((#(#types,)*)),
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
