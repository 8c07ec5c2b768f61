//! The procedural macro behind `fuse!`: the entry to `fusion-compiler`, and the only part of the compiler
//! that writes files.

use std::path::PathBuf;
use std::{env, fs, io};

use fusion_compiler::Expansion;
use fusion_compiler::ir::plan::Target;
use proc_macro::{Span, TokenStream};
use proc_macro2::TokenTree;

/// Targets of this build. Text for a target without a device would be most of the code that rustc reads.
const TARGETS: &[Target] = &[
    #[cfg(feature = "ptx")]
    Target::Ptx,
    #[cfg(feature = "wgsl")]
    Target::Wgsl,
    Target::Cpu,
];

/// Expands `fuse!`. The first token is `$crate`, by which the output names the runtime, and the user's tokens
/// follow.
///
/// `FUSION_DUMP=dir` in the environment of the build writes the graph, the report (as text, for Graphviz and
/// as a picture) and all kernels of every function to `dir`. The directory has a folder per crate, with a
/// folder per `fuse!`. The name of a `fuse!` folder is the file, and the line and column of the first and the
/// last token.
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

/// Writes the dump of one `fuse!`, whose tokens range from `first` to `last`.
fn dump(expansion: &Expansion, (first, last): (Span, Span)) -> io::Result<()> {
    let Some(dir) = env::var_os("FUSION_DUMP").filter(|dir| !dir.is_empty()) else { return Ok(()) };
    let file = first.file().replace(['/', '\\', ':'], "-");
    let [first, last] = [first, last].map(|token| format!("{}-{}", token.line(), token.column()));
    let place = format!("{file}-{first}-{last}");
    let dir = PathBuf::from(dir).join(env::var_os("CARGO_CRATE_NAME").unwrap_or_default()).join(place);
    fs::create_dir_all(&dir)?;
    expansion.dumps().iter().try_for_each(|(name, text)| fs::write(dir.join(name), text))
}
