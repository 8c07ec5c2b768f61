//! Plan → the Rust expression of a `static`: its bytes, and a table of what targets run.
//!
//! Bytes, because rustc reads, resolves and checks whatever else a plan could be written as, at each build of each crate
//! that uses it. Invariant: the tokens name only `__private` of the runtime, as `p`, and no text stands in them twice.

use proc_macro2::{Literal, TokenStream};
use quote::{format_ident, quote};

use super::cpu_entries;
use crate::KernelCode;
use crate::ir::plan::{Code, Plan, Target};

/// The languages whose text of the first kernel is a constant, and its name.
const TEXTS: [(Target, &str); 2] = [(Target::Ptx, "PTX"), (Target::Wgsl, "WGSL")];

/// The plan as an expression, in a scope where `p` is `__private` of the runtime, `cpu` holds the functions, and
/// `first_texts` are constants.
pub(super) fn plan(plan: &Plan<KernelCode>) -> TokenStream {
    let first = first_texts(plan);
    let (mut known, mut table): (Vec<KernelCode>, Vec<TokenStream>) = (vec![], vec![]);
    let numbered = plan.clone().map_code(|kernel, code| {
        let number = known.iter().position(|other| *other == code).unwrap_or_else(|| {
            table.push(self::code(kernel, &code, &first));
            known.push(code);
            known.len() - 1
        });
        number as u16
    });
    let bytes = Literal::byte_string(&numbered.to_bytes());
    quote!(p::StaticPlan::new(#bytes, &[#(#table),*]))
}

/// Texts that are constants, each with its language.
pub(super) fn first_texts(plan: &Plan<KernelCode>) -> Vec<(&'static str, &str)> {
    let first = |&(target, language): &(Target, &'static str)| {
        // What every device of the target runs.
        let program = plan.programs.iter().rfind(|program| program.target == target)?;
        let variants = &program.steps.first()?.variants;
        // A part of the work is of no use to programs that launch kernels by themselves.
        let alone = variants.iter().find(|variant| variant.launch_count() == 1).or(variants.first())?;
        match &alone.launches.first()?.code {
            Code::Ptx(text) | Code::Wgsl(text) => Some((language, &**text)),
            Code::Cpu(_) => None,
        }
    };
    TEXTS.iter().filter_map(first).collect()
}

fn code(kernel: &str, code: &KernelCode, first: &[(&str, &str)]) -> TokenStream {
    let inline_values = |text: &str| match first.iter().find(|(_, first)| *first == text) {
        Some((language, _)) => {
            let name = format_ident!("{language}");
            quote!(p::Cow::Borrowed(#name))
        }
        None => {
            let text = literal(text);
            quote!(p::Cow::Borrowed(#text))
        }
    };
    match code {
        Code::Ptx(ptx) => {
            let text = inline_values(ptx);
            quote!(p::Code::Ptx(#text))
        }
        Code::Wgsl(wgsl) => {
            let text = inline_values(wgsl);
            quote!(p::Code::Wgsl(#text))
        }
        Code::Cpu(_) => {
            let functions = format_ident!("{}", cpu_entries::name(kernel));
            quote!(p::Code::Cpu(p::CpuCode::Compiled(cpu::#functions)))
        }
    }
}

/// A text of a kernel with the lines that it has, for whoever reads what the macro made.
pub(super) fn literal(text: &str) -> TokenStream {
    super::tokens::tokens(&format!("r#\"{text}\"#"))
}
