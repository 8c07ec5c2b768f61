//! The Rust around the kernels: one thin typed function for each fused one, and a module with what was made.
//!
//! Invariant: what is emitted holds no `unsafe`, names only `::fusion`, and does nothing that the runtime could
//! do: it states types and hands over.

use proc_macro2::{Ident, Span, TokenStream, TokenTree};
use quote::{ToTokens, format_ident, quote, quote_spanned};

use super::{rust, static_plan};
use crate::check::{ElementType, Failure, Inline, ParamType, Returns, Signature};
use crate::ir::dtype::DType;
use crate::ir::graph::{Access, ParamKind};
use crate::ir::plan::{Code, Plan};
use crate::target::Dialect;
use crate::{CpuKernels, KernelCode};

/// An exported function: the function itself, and its module. A generic one has a plan for each type that there is.
pub fn function(signature: &Signature, plans: &[&Plan<KernelCode>]) -> TokenStream {
    let Signature { attributes, visibility, name, params, types, results, returns, .. } = signature;
    let (generic, names) = (Generic::of(signature), rust_names(params));
    let turbofish = generic.turbofish();
    let plan = match generic.0 {
        Some(_) => quote!(#name::plan #turbofish()),
        None => quote!(&#name::PLAN),
    };
    let call = call(&plan, &generic, (results, *returns), &arguments(&names, types));
    let (module, cfgs) = (module(signature, &names, plans), cfgs(attributes));
    let (params, typed) = (generic.params(), generic.typed_params(&names, types));
    let result = generic.result(results, *returns);
    let about =
        format!("What was made of [`{name}()`]: its kernels, its report, and a call that allocates nothing.");
    quote! {
        #attributes
        #[allow(clippy::too_many_arguments, reason = "as many as the maths has")]
        #visibility fn #name #params(#typed) -> ::fusion::Result<#result> {
            #call
        }

        #(#cfgs)*
        #[doc = #about]
        #[allow(unreachable_pub, reason = "reachable as far as the function is")]
        #visibility mod #name {
            #module
        }
    }
}

/// What the module of a function holds.
fn module(signature: &Signature, names: &[Ident], plans: &[&Plan<KernelCode>]) -> TokenStream {
    let generic = Generic::of(signature);
    let (params, turbofish) = (generic.params(), generic.turbofish());
    let (contents, plan) = match generic.0 {
        Some(_) => (instances(plans), quote!(plan #turbofish())),
        None => (contents(plans[0]), quote!(&PLAN)),
    };
    let into = into(signature, names, &plan);
    quote! {
        use ::fusion::__private as p;
        #contents
        #into

        /// What was fused, what was not and why, and the bytes saved.
        pub fn report #params() -> ::fusion::Report {
            ::fusion::Report::new(#plan)
        }

        /// The text of every kernel, for GPUs.
        pub fn kernels #params() -> ::std::vec::Vec<::fusion::KernelText> {
            p::kernels(#plan)
        }
    }
}

/// The plans of a generic function, and which is that of a type.
fn instances(plans: &[&Plan<KernelCode>]) -> TokenStream {
    let modules: Vec<Ident> =
        DType::GENERIC.iter().map(|dtype| format_ident!("of_{}", dtype.name())).collect();
    let contents = plans.iter().map(|plan| contents(plan));
    let names =
        static_plan::first_texts(plans[0]).into_iter().map(|(language, _)| format_ident!("{language}"));
    let (first, texts): (_, Vec<Ident>) = (&modules[0], names.collect());
    let texts = (!texts.is_empty()).then(|| quote!(pub use #first::{#(#texts),*};));
    quote! {
        #(#[allow(unreachable_pub, reason = "one of several")] mod #modules {
            use ::fusion::__private as p;
            #contents
        })*

        #texts

        #[doc(hidden)]
        pub fn plan<T: ::fusion::Float>() -> &'static p::Plan {
            p::instance::<T>([#(&#modules::PLAN),*])
        }
    }
}

/// The type that a function is generic over, if it is.
struct Generic<'s>(Option<&'s Ident>);

impl<'s> Generic<'s> {
    fn of(signature: &'s Signature) -> Generic<'s> {
        Generic(signature.generic.as_ref())
    }

    /// `<T: Float>`.
    fn params(&self) -> Option<TokenStream> {
        self.0.map(|name| quote!(<#name: ::fusion::Float>))
    }

    /// `::<T>`.
    fn turbofish(&self) -> Option<TokenStream> {
        self.0.map(|name| quote!(::<#name>))
    }

    fn element(&self, element: ElementType) -> TokenStream {
        match (element, self.0) {
            (ElementType::Is(dtype), _) => primitive(dtype),
            (ElementType::Generic, Some(name)) => quote!(#name),
            (ElementType::Generic, None) => unreachable!("only generic functions have generic elements"),
        }
    }

    fn elements(&self, elements: &[ElementType]) -> Vec<TokenStream> {
        elements.iter().map(|&element| self.element(element)).collect()
    }

    fn param(&self, param: ParamType) -> TokenStream {
        match param {
            ParamType::Tensor(element, access) => {
                let element = self.element(element);
                match access {
                    Access::Read => quote!(&::fusion::Tensor<#element>),
                    Access::Write | Access::ReadWrite => quote!(&mut ::fusion::Tensor<#element>),
                }
            }
            ParamType::Scalar(element) => self.element(element),
            ParamType::Dim => quote!(::core::primitive::usize),
            ParamType::Unknown => quote!(impl ::core::marker::Sized),
        }
    }

    fn typed_params(&self, names: &[Ident], params: &[ParamType]) -> TokenStream {
        let types = params.iter().map(|&param| self.param(param));
        quote!(#(#names: #types),*)
    }

    fn result(&self, results: &[ElementType], returns: Returns) -> TokenStream {
        let types = self.elements(results);
        match returns {
            Returns::One => quote!(#(::fusion::Tensor<#types>)*),
            Returns::Tuple => quote!((#(::fusion::Tensor<#types>,)*)),
        }
    }
}

/// The inline form, as an expression of type `Result<Tensor<_>>`.
pub fn inline(inline: &Inline, plan: &Plan<KernelCode>) -> TokenStream {
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
    let elements: Vec<ElementType> =
        plan.outputs.iter().map(|output| ElementType::Is(output.dtype)).collect();
    let call = call(&quote!(&#name::PLAN), &Generic(None), (&elements, Returns::One), &converted(&captures));
    let contents = contents(plan);
    quote! {{
        #[allow(dead_code, reason = "an expression needs its plan only")]
        mod #name {
            use ::fusion::__private as p;
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

fn stub(signature: &Signature) -> TokenStream {
    let Signature { visibility, name, attributes, types, results, returns, .. } = signature;
    let generic = Generic::of(signature);
    let (params, result, cfgs) = (generic.params(), generic.result(results, *returns), cfgs(attributes));
    let types: Vec<TokenStream> = types.iter().map(|&param| generic.param(param)).collect();
    let outs = generic.elements(results);
    // It is there for its type alone.
    let never = quote!(::core::unreachable!("a program with a mistake does not compile"));
    quote! {
        #(#cfgs)*
        #[allow(missing_docs, reason = "a stand-in")]
        #visibility fn #name #params(#(_: #types),*) -> ::fusion::Result<#result> {
            #never
        }

        #(#cfgs)*
        #[allow(missing_docs, unused, unreachable_pub, reason = "a stand-in")]
        #visibility mod #name {
            pub const PTX: &::core::primitive::str = "";
            pub const WGSL: &::core::primitive::str = "";
            pub fn into #params(#(_: &mut ::fusion::Tensor<#outs>,)* #(_: #types),*) -> ::fusion::Result<()> {
                #never
            }
            pub fn report #params() -> ::fusion::Report {
                #never
            }
            pub fn kernels #params() -> ::std::vec::Vec<::fusion::KernelText> {
                #never
            }
        }
    }
}

/// The plan, where `p` is the runtime's private module.
fn contents(plan: &Plan<KernelCode>) -> TokenStream {
    let (statics, functions) = (static_plan::plan(plan), cpu_functions(plan));
    let texts = static_plan::first_texts(plan).into_iter().map(|(language, text)| {
        let (text, name) = (static_plan::literal(text), format_ident!("{language}"));
        let about = format!("{language} of the first kernel.");
        quote!(#[doc = #about] pub const #name: &::core::primitive::str = #text;)
    });
    // Cargo expands the macro again when a variable changes that the output asks for.
    let dump = quote!(
        const _: ::core::option::Option<&::core::primitive::str> = ::core::option_env!("FUSION_DUMP");
    );
    quote! {
        #dump
        #(#texts)*
        #[doc(hidden)]
        pub static PLAN: p::StaticPlan = #statics;

        #[allow(clippy::all, clippy::pedantic, clippy::nursery, clippy::restriction, unused, reason = "generated loops")]
        mod cpu {
            // For modules without a prelude.
            use ::core::hint::{black_box, select_unpredictable};
            use ::core::prelude::rust_2024::*;
            use ::fusion::__private::{CpuArgs, Window, doubles, fetch, fold_lanes, stream};
            #functions
        }
    }
}

fn cpu_functions(plan: &Plan<KernelCode>) -> TokenStream {
    let mut text = String::new();
    for (name, kernels) in cpu_kernels(plan) {
        let (fma, base) = static_plan::cpu_names(name, kernels);
        text += &rust::rust(&kernels.fma, &fma.to_string(), Dialect::Cpu);
        if base != fma {
            text += &rust::rust(&kernels.base, &base.to_string(), Dialect::CpuBase);
        }
    }
    tokens(&text)
}

/// Rust that this crate emitted.
fn tokens(text: &str) -> TokenStream {
    // rustc's own lexer where there is one: the portable one goes through a text twice.
    if proc_macro::is_available() {
        let tokens = text.parse::<proc_macro::TokenStream>();
        return tokens.unwrap_or_else(|error| unreachable!("emitted Rust is tokens: {error}")).into();
    }
    text.parse().unwrap_or_else(|error| unreachable!("emitted Rust is tokens: {error}"))
}

/// The CPU kernels of a plan with their names.
fn cpu_kernels(plan: &Plan<KernelCode>) -> impl Iterator<Item = (&str, &CpuKernels)> {
    let steps = plan.programs.iter().flat_map(|program| program.steps.iter());
    let launches = steps.flat_map(|step| step.variants.iter().flat_map(|variant| variant.launches.iter()));
    launches.filter_map(|launch| match &launch.code {
        Code::Cpu(kernels) => Some((&*launch.kernel, kernels)),
        Code::Ptx(_) | Code::Wgsl(_) => None,
    })
}

/// The statement that runs a plan and types its results.
fn call(
    plan: &TokenStream,
    generic: &Generic<'_>,
    (results, returns): (&[ElementType], Returns),
    arguments: &TokenStream,
) -> TokenStream {
    let types = generic.elements(results);
    let names: Vec<Ident> = (0..results.len()).map(|i| format_ident!("result_{i}")).collect();
    match returns {
        Returns::One => quote!(::fusion::__private::run_one::<#(#types)*>(#plan, &mut #arguments)),
        Returns::Tuple => quote! {
            let [#(#names),*] = ::fusion::__private::run(#plan, &mut #arguments)?;
            ::core::result::Result::Ok((#(::fusion::Tensor::<#types>::from_raw(#names)?,)*))
        },
    }
}

/// The form that writes into tensors of the caller.
fn into(signature: &Signature, names: &[Ident], plan: &TokenStream) -> Option<TokenStream> {
    let Signature { types, results, .. } = signature;
    if results.is_empty() {
        return None;
    }
    let generic = Generic::of(signature);
    let out = |i| if results.len() == 1 { String::from("out") } else { format!("out_{i}") };
    let outs: Vec<Ident> = (0..results.len()).map(|i| free(out(i), names, Span::call_site())).collect();
    let (params, elements) = (generic.params(), generic.elements(results));
    let (typed, args, results) =
        (generic.typed_params(names, types), arguments(names, types), converted(&outs));
    Some(quote! {
        /// Writes the results into tensors of their shapes, and allocates nothing.
        ///
        /// # Errors
        /// As the function; also where a tensor has not the shape of its result.
        #[allow(clippy::too_many_arguments, reason = "as many as the maths has")]
        pub fn into #params(#(#outs: &mut ::fusion::Tensor<#elements>,)* #typed) -> ::fusion::Result<()> {
            p::run_into(#plan, &mut #args, &mut #results)
        }
    })
}

/// What the runtime takes for the parameters of these types.
fn arguments(names: &[Ident], types: &[ParamType]) -> TokenStream {
    let argument = |(name, ty): (&Ident, &ParamType)| match ty {
        ParamType::Scalar(ElementType::Generic) => quote!(::core::convert::Into::into(#name)),
        ParamType::Scalar(ElementType::Is(_))
        | ParamType::Tensor(..)
        | ParamType::Dim
        | ParamType::Unknown => {
            quote!(<::fusion::__private::Arg<'_> as ::core::convert::From<_>>::from(#name))
        }
    };
    let arguments = names.iter().zip(types).map(argument);
    quote!([#(#arguments),*])
}

/// What the runtime takes for tensors and numbers of known types.
fn converted(values: &[impl ToTokens]) -> TokenStream {
    quote!([#(<::fusion::__private::Arg<'_> as ::core::convert::From<_>>::from(#values)),*])
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

/// The Rust type of an element, whatever the names in scope mean.
fn primitive(dtype: DType) -> TokenStream {
    let name = format_ident!("{}", dtype.name());
    match dtype {
        DType::F16 | DType::BF16 => quote!(::fusion::#name),
        DType::Index => quote!(::core::primitive::usize),
        DType::F32
        | DType::F64
        | DType::I32
        | DType::U32
        | DType::I16
        | DType::U16
        | DType::I8
        | DType::U8
        | DType::Bool => quote!(::core::primitive::#name),
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
