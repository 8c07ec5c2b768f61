//! The procedural macro `fuse!`: a door to `fusion-compiler`, and the only part of it that touches files.

use std::path::PathBuf;
use std::{env, fs, io};

use fusion_compiler::Expansion;
use proc_macro::{Span, TokenStream};

/// With `FUSION_DUMP=dir` in the environment of the build, the graph, the report (as text, for Graphviz and as a
/// picture) and all kernels of every function are written to `dir`: a folder for each crate, and in it one for each
/// `fuse!`, by its file, line and column.
#[proc_macro]
pub fn fuse(tokens: TokenStream) -> TokenStream {
    let expansion = fusion_compiler::expand(tokens.into());
    let written = dump(&expansion);
    let mut tokens = TokenStream::from(expansion.tokens);
    if let Err(error) = written {
        let message = format!("FUSION_DUMP: {error}");
        tokens.extend(format!("::core::compile_error!({message:?});").parse::<TokenStream>());
    }
    tokens
}

/// Writes what was made of one `fuse!`.
fn dump(expansion: &Expansion) -> io::Result<()> {
    let Some(dir) = env::var_os("FUSION_DUMP").filter(|dir| !dir.is_empty()) else { return Ok(()) };
    let place = Span::call_site();
    let file = place.file().replace(['/', '\\', ':'], "-");
    let place = format!("{file}-{}-{}", place.line(), place.column());
    let dir = PathBuf::from(dir).join(env::var_os("CARGO_CRATE_NAME").unwrap_or_default()).join(place);
    fs::create_dir_all(&dir)?;
    expansion.dumps().iter().try_for_each(|(name, text)| fs::write(dir.join(name), text))
}
