//! The Rust around the kernels: one thin typed function for each fused one, and a module with what was made.
//!
//! Invariant: what is emitted holds no `unsafe`, names only the runtime, and does nothing that the runtime could
//! do: it states types and hands over.

use std::collections::BTreeSet;

use proc_macro2::{Ident, Span, TokenStream};
use quote::{ToTokens, format_ident, quote, quote_spanned};

use super::tokens::{placed, rustc_tokens, tokens};
use super::{cpu_entries, static_plan};
use crate::KernelCode;
use crate::check::{ElementType, Failure, Inline, ParamType, Returns, Signature};
use crate::ir::dtype::DType;
use crate::ir::graph::{Access, ParamKind};
use crate::ir::plan::{Code, Plan};
use crate::parse::{cfgs, is_keyword};

/// An exported function: the function itself, and its module. A generic one has a plan for each type that there is.
pub fn function(runtime: &Ident, signature: &Signature, plans: &[&Plan<KernelCode>]) -> TokenStream {
    let Signature { attributes, visibility, name, params, types, results, returns, .. } = signature;
    let (host, names) = (Host::of(runtime, signature), rust_names(params));
    let turbofish = host.turbofish();
    let plan = match host.generic {
        Some(_) => quote!(#name::plan #turbofish()),
        None => quote!(&#name::PLAN),
    };
    let call = host.call(&plan, (results, *returns), &host.arguments(&names, types));
    let (module, cfgs) = (host.module(signature, &names, plans), cfgs(attributes));
    let (params, typed) = (host.params(), host.typed_params(&names, types));
    let (result, unused) = (host.result(results, *returns), unused(&signature.unused));
    let about =
        format!("Companions of [`{name}()`]: its kernels, its report, and a call that allocates nothing.");
    quote! {
        #attributes
        #[allow(clippy::too_many_arguments, reason = "as many as the maths has")]
        #visibility fn #name #params(#typed) -> #runtime::Result<#result> {
            #unused
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

/// Every mistake, and stand-ins that keep the users of what is mistaken from failing too.
pub fn failure(runtime: &Ident, failure: &Failure, is_expression: bool) -> TokenStream {
    let errors = failure.errors.to_compile_errors();
    if is_expression {
        return quote!({ #errors #runtime::__private::mistaken() });
    }
    let stubs = failure.stubs.iter().map(|signature| Host::of(runtime, signature).stub(signature));
    quote!(#errors #(#stubs)*)
}

/// The inline form, as an expression of type `Result<Tensor<_>>`.
pub fn inline(runtime: &Ident, inline: &Inline, plan: &Plan<KernelCode>) -> TokenStream {
    let written = inline.captures.iter().flat_map(|capture| capture.clone()).next();
    let user = written.map_or_else(Span::call_site, |token| token.span());
    let host = Host { runtime, generic: None, user };
    let captures = inline.graph.params.iter().zip(&inline.captures).map(|(param, capture)| {
        let dtype = host.primitive(param.dtype);
        // What has the wrong type is underlined itself, not the whole `fuse!`.
        let first = capture.clone().into_iter().next().map_or(runtime.span(), |token| token.span());
        let place = first.resolved_at(runtime.span());
        let mut runtime = runtime.clone();
        runtime.set_span(place);
        match param.kind {
            ParamKind::Tensor { .. } => {
                quote_spanned!(place=> #runtime::__private::AsTensor::<#dtype>::as_tensor(&(#capture)))
            }
            ParamKind::Scalar => {
                quote_spanned!(place=> #runtime::__private::IntoScalar::<#dtype>::into_scalar(#capture))
            }
            ParamKind::Dim(_) | ParamKind::View { .. } => unreachable!("tensors and numbers are captured"),
        }
    });
    let name = Ident::new("__fused", Span::call_site());
    let captures: Vec<TokenStream> = captures.collect();
    let elements: Vec<ElementType> =
        plan.outputs.iter().map(|output| ElementType::Is(output.dtype)).collect();
    let call = host.call(&quote!(&#name::PLAN), (&elements, Returns::One), &host.converted(&captures));
    let contents = host.contents(plan);
    quote! {{
        #[allow(dead_code, reason = "an expression needs its plan only")]
        mod #name {
            #contents
        }
        #call
    }}
}

/// Names that nothing uses, as unused variables, of which rustc warns in its own way where they are written, as attributes around
/// them say. Statics of the same names are not in scope.
pub fn unused(names: &[Ident]) -> Option<TokenStream> {
    let names = (!names.is_empty()).then_some(names)?;
    Some(quote! {
        const _: fn() = {
            mod unused {
                #[allow(non_snake_case, reason = "it is told of unused names alone")]
                pub(super) fn names() {
                    #(let #names = 0_u8;)*
                }
            }
            unused::names
        };
    })
}

/// What the output of a function names.
#[derive(Clone, Copy)]
struct Host<'s> {
    /// The crate of the runtime, whatever that is called where the output goes.
    runtime: &'s Ident,
    /// The type that the function is generic over, if it is.
    generic: Option<&'s Ident>,
    /// A token of the user.
    user: Span,
}

impl<'s> Host<'s> {
    fn of(runtime: &'s Ident, signature: &'s Signature) -> Host<'s> {
        Host { runtime, generic: signature.generic.as_ref(), user: signature.name.span() }
    }

    /// `<T: Float>`.
    fn params(self) -> Option<TokenStream> {
        let runtime = self.runtime;
        self.generic.map(|name| quote!(<#name: #runtime::Float>))
    }

    /// `::<T>`.
    fn turbofish(self) -> Option<TokenStream> {
        self.generic.map(|name| quote!(::<#name>))
    }

    /// The Rust type of an element, whatever the names in scope mean.
    fn primitive(self, dtype: DType) -> TokenStream {
        let (runtime, name) = (self.runtime, format_ident!("{}", dtype.name()));
        match dtype {
            DType::F16 | DType::BF16 => quote!(#runtime::#name),
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

    fn element(self, element: ElementType) -> TokenStream {
        match (element, self.generic) {
            (ElementType::Is(dtype), _) => self.primitive(dtype),
            (ElementType::Generic, Some(name)) => quote!(#name),
            (ElementType::Generic, None) => unreachable!("only generic functions have generic elements"),
        }
    }

    fn elements(self, elements: &[ElementType]) -> Vec<TokenStream> {
        elements.iter().map(|&element| self.element(element)).collect()
    }

    fn param(self, param: ParamType) -> TokenStream {
        let runtime = self.runtime;
        match param {
            ParamType::Tensor(element, access) => {
                let element = self.element(element);
                match access {
                    Access::Read => quote!(&#runtime::Tensor<#element>),
                    Access::Write | Access::ReadWrite => quote!(&mut #runtime::Tensor<#element>),
                }
            }
            ParamType::Scalar(element) => self.element(element),
            ParamType::Dim => quote!(::core::primitive::usize),
            ParamType::Unknown => quote!(impl ::core::marker::Sized),
        }
    }

    fn typed_params(self, names: &[Ident], params: &[ParamType]) -> TokenStream {
        let types = params.iter().map(|&param| self.param(param));
        quote!(#(#names: #types),*)
    }

    fn result(self, results: &[ElementType], returns: Returns) -> TokenStream {
        let (runtime, types) = (self.runtime, self.elements(results));
        match returns {
            Returns::One => quote!(#(#runtime::Tensor<#types>)*),
            Returns::Tuple => quote!((#(#runtime::Tensor<#types>,)*)),
        }
    }

    /// What the module of a function holds.
    fn module(self, signature: &Signature, names: &[Ident], plans: &[&Plan<KernelCode>]) -> TokenStream {
        let (runtime, params, turbofish) = (self.runtime, self.params(), self.turbofish());
        let (contents, plan) = match self.generic {
            Some(_) => (self.instances(plans), quote!(plan #turbofish())),
            None => (self.contents(plans[0]), quote!(&PLAN)),
        };
        let into = self.into(signature, names, &plan);
        quote! {
            #contents
            #into

            /// The fused kernels, the reason of each boundary between them, and the bytes saved.
            pub fn report #params() -> #runtime::Report {
                #runtime::Report::new(#plan)
            }

            /// The text of every kernel, for GPUs.
            pub fn kernels #params() -> ::std::vec::Vec<#runtime::KernelText> {
                #runtime::__private::kernels(#plan)
            }
        }
    }

    /// The plans of a generic function, and which is that of a type.
    fn instances(self, plans: &[&Plan<KernelCode>]) -> TokenStream {
        let runtime = self.runtime;
        let modules: Vec<Ident> =
            DType::GENERIC.iter().map(|dtype| format_ident!("of_{}", dtype.name())).collect();
        let contents = plans.iter().map(|plan| self.contents(plan));
        let names =
            static_plan::first_texts(plans[0]).into_iter().map(|(language, _)| format_ident!("{language}"));
        let (first, texts): (_, Vec<Ident>) = (&modules[0], names.collect());
        let texts = (!texts.is_empty()).then(|| quote!(pub use #first::{#(#texts),*};));
        quote! {
            #(#[allow(unreachable_pub, reason = "one of several")] mod #modules {
                #contents
            })*

            #texts

            #[doc(hidden)]
            pub fn plan<T: #runtime::Float>() -> &'static #runtime::__private::Plan {
                #runtime::__private::instance::<T>([#(&#modules::PLAN),*])
            }
        }
    }

    /// What stands for a function with mistakes: it is there for its type alone.
    fn stub(self, signature: &Signature) -> TokenStream {
        let Signature { visibility, name, attributes, types, results, returns, .. } = signature;
        let (runtime, params, cfgs) = (self.runtime, self.params(), cfgs(attributes));
        let (outs, result) = (self.elements(results), self.result(results, *returns));
        let types: Vec<TokenStream> = types.iter().map(|&param| self.param(param)).collect();
        let never = quote!(::core::unreachable!("a program with a mistake does not compile"));
        quote! {
            #(#cfgs)*
            #[allow(missing_docs, reason = "a stand-in")]
            #visibility fn #name #params(#(_: #types),*) -> #runtime::Result<#result> {
                #never
            }

            #(#cfgs)*
            #[allow(missing_docs, unused, unreachable_pub, reason = "a stand-in")]
            #visibility mod #name {
                pub const PTX: &::core::primitive::str = "";
                pub const WGSL: &::core::primitive::str = "";
                pub fn into #params(#(_: &mut #runtime::Tensor<#outs>,)* #(_: #types),*) -> #runtime::Result<()> {
                    #never
                }
                pub fn report #params() -> #runtime::Report {
                    #never
                }
                pub fn kernels #params() -> ::std::vec::Vec<#runtime::KernelText> {
                    #never
                }
            }
        }
    }

    /// The plan, and the functions of the CPU.
    fn contents(self, plan: &Plan<KernelCode>) -> TokenStream {
        let (runtime, statics, functions) = (self.runtime, static_plan::plan(plan), self.cpu_functions(plan));
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
            use #runtime::__private as p;

            #dump
            #(#texts)*
            #[doc(hidden)]
            pub static PLAN: p::StaticPlan = #statics;

            #[allow(clippy::all, clippy::pedantic, clippy::nursery, clippy::restriction, reason = "generated loops")]
            // To lints the kernels are as the user's own (`cpu_functions`).
            #[allow(warnings, unused, nonstandard_style, unused_results, reason = "generated loops")]
            #[allow(trivial_casts, trivial_numeric_casts, reason = "generated loops")]
            mod cpu {
                // For modules without a prelude.
                use ::core::hint::{black_box, select_unpredictable};
                use ::core::prelude::rust_2024::*;
                #[cfg(target_arch = "x86_64")]
                use #runtime::__private::{Avx2, Avx512};
                use #runtime::__private::{
                    Base, CpuArgs, CpuFn, Instructions, Isa, Lines, Rows, Run, Total, around, doubles,
                    fold_lanes, tiles,
                };
                #functions
            }
        }
    }

    /// The statement that runs a plan and types its results.
    fn call(
        self,
        plan: &TokenStream,
        (results, returns): (&[ElementType], Returns),
        arguments: &TokenStream,
    ) -> TokenStream {
        let (runtime, types) = (self.runtime, self.elements(results));
        let names: Vec<Ident> = (0..results.len()).map(|i| format_ident!("result_{i}")).collect();
        match returns {
            Returns::One => quote!(#runtime::__private::run_one::<#(#types)*>(#plan, &mut #arguments)),
            Returns::Tuple => quote! {
                let [#(#names),*] = #runtime::__private::run(#plan, &mut #arguments)?;
                ::core::result::Result::Ok((#(#runtime::Tensor::<#types>::from_raw(#names)?,)*))
            },
        }
    }

    /// The form that writes into tensors of the caller.
    fn into(self, signature: &Signature, names: &[Ident], plan: &TokenStream) -> Option<TokenStream> {
        let Signature { types, results, .. } = signature;
        if results.is_empty() {
            return None;
        }
        let runtime = self.runtime;
        let out = |i| if results.len() == 1 { String::from("out") } else { format!("out_{i}") };
        let outs: Vec<Ident> = (0..results.len()).map(|i| free(out(i), names, Span::call_site())).collect();
        let (params, elements) = (self.params(), self.elements(results));
        let (typed, args, results) =
            (self.typed_params(names, types), self.arguments(names, types), self.converted(&outs));
        Some(quote! {
            /// Writes the results into tensors of their shapes, and allocates nothing.
            ///
            /// # Errors
            /// As the function; also where a tensor has not the shape of its result.
            #[allow(clippy::too_many_arguments, reason = "as many as the maths has")]
            pub fn into #params(#(#outs: &mut #runtime::Tensor<#elements>,)* #typed) -> #runtime::Result<()> {
                #runtime::__private::run_into(#plan, &mut #args, &mut #results)
            }
        })
    }

    /// What the runtime takes for the parameters of these types.
    fn arguments(self, names: &[Ident], types: &[ParamType]) -> TokenStream {
        let argument = |(name, ty): (&Ident, &ParamType)| match ty {
            ParamType::Scalar(ElementType::Generic) => quote!(::core::convert::Into::into(#name)),
            ParamType::Scalar(ElementType::Is(_))
            | ParamType::Tensor(..)
            | ParamType::Dim
            | ParamType::Unknown => self.argument(name),
        };
        let arguments = names.iter().zip(types).map(argument);
        quote!([#(#arguments),*])
    }

    /// What the runtime takes for tensors and numbers of known types.
    fn converted(self, values: &[impl ToTokens]) -> TokenStream {
        let arguments = values.iter().map(|value| self.argument(value));
        quote!([#(#arguments),*])
    }

    /// The kernels of the CPU, as if the user had written them in the file of the runtime.
    ///
    /// rustc asks where a macro was called for each place in its output that may panic, and for each line that a debugger is told,
    /// and the place of a call follows from the whole file around it. A kernel with such places would be compiled again after
    /// each change of that file. A name of the user has no such call, and the runtime's file does not change.
    fn cpu_functions(self, plan: &Plan<KernelCode>) -> TokenStream {
        let text = cpu_texts(plan).collect::<String>();
        if !proc_macro::is_available() {
            return tokens(&text);
        }
        let place = Span::call_site().resolved_at(self.user).unwrap();
        placed(rustc_tokens(&text), place).into()
    }

    fn argument(self, value: &impl ToTokens) -> TokenStream {
        let runtime = self.runtime;
        quote!(<#runtime::__private::Arg<'_> as ::core::convert::From<_>>::from(#value))
    }
}

/// Returns the text of each CPU kernel of a plan, with the function that gives what runs it. Variants share kernels,
/// which the names tell apart.
fn cpu_texts(plan: &Plan<KernelCode>) -> impl Iterator<Item = String> {
    let steps = plan.programs.iter().flat_map(|program| program.steps.iter());
    let launches = steps.flat_map(|step| step.variants.iter().flat_map(|variant| variant.launches.iter()));
    let mut known = BTreeSet::new();
    launches.filter_map(move |launch| match &launch.code {
        Code::Cpu(code) if known.insert(&launch.kernel) => {
            Some(format!("{}{}", code.rust, cpu_entries::text(&launch.kernel, code)))
        }
        Code::Cpu(_) | Code::Ptx(_) | Code::Wgsl(_) => None,
    })
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
    while taken.iter().any(|other| *other == name) || is_keyword(&name) {
        name.push('_');
    }
    Ident::new(&name, span)
}
