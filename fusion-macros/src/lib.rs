//! The procedural macro behind `fuse!`: a door to `fusion-compiler`, and the only part of it that touches files.

use std::path::PathBuf;
use std::{env, fs, io};

use fusion_compiler::Expansion;
use fusion_compiler::ir::plan::Target;
use proc_macro::{Span, TokenStream};
use proc_macro2::TokenTree;

/// What kernels are made for: texts that the runtime has no device for would be most of what rustc reads.
const TARGETS: &[Target] = &[
    #[cfg(feature = "ptx")]
    Target::Ptx,
    #[cfg(feature = "wgsl")]
    Target::Wgsl,
    Target::Cpu,
];

/// What `fuse!` hands over to: first `$crate`, so that the output finds the runtime under any name, then what the user
/// wrote.
///
/// With `FUSION_DUMP=dir` in the environment of the build, the graph, the report (as text, for Graphviz and as a
/// picture) and all kernels of every function are written to `dir`: a folder for each crate, and in it one for each
/// `fuse!`, by the file, and the line and column of the first token in it and of the last.
#[proc_macro]
pub fn fuse_for(tokens: TokenStream) -> TokenStream {
    let mut written = tokens.clone().into_iter().skip(1).map(|token| token.span());
    let first = written.next().unwrap_or_else(Span::call_site);
    let last = written.last().unwrap_or(first);
    let mut tokens = proc_macro2::TokenStream::from(tokens).into_iter();
    let Some(TokenTree::Ident(runtime)) = tokens.next() else {
        unreachable!("`fuse!` begins with its crate")
    };
    let expansion = fusion_compiler::expand(&runtime, tokens.collect(), TARGETS);
    let written = dump(&expansion, (first, last));
    let mut tokens = TokenStream::from(expansion.tokens);
    if let Err(error) = written {
        let message = format!("FUSION_DUMP: {error}");
        tokens.extend(format!("::core::compile_error!({message:?});").parse::<TokenStream>());
    }
    tokens
}

/// Writes what was made of one `fuse!`, from its first token to its last.
fn dump(expansion: &Expansion, (first, last): (Span, Span)) -> io::Result<()> {
    let Some(dir) = env::var_os("FUSION_DUMP").filter(|dir| !dir.is_empty()) else { return Ok(()) };
    let file = first.file().replace(['/', '\\', ':'], "-");
    let [first, last] = [first, last].map(|token| format!("{}-{}", token.line(), token.column()));
    let place = format!("{file}-{first}-{last}");
    let dir = PathBuf::from(dir).join(env::var_os("CARGO_CRATE_NAME").unwrap_or_default()).join(place);
    fs::create_dir_all(&dir)?;
    expansion.dumps().iter().try_for_each(|(name, text)| fs::write(dir.join(name), text))
}
