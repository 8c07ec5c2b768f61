//! The procedural macro `fuse!`: a door to `fusion-compiler`, and the only part of it that touches files.

use std::path::PathBuf;
use std::{env, fs, io};

use proc_macro::TokenStream;

/// With `FUSION_DUMP=dir` in the environment of the build, the graph and all kernels of every function are
/// written to `dir`, a folder for each crate.
#[proc_macro]
pub fn fuse(tokens: TokenStream) -> TokenStream {
    let place = tokens.clone().into_iter().next().map(|token| token.span());
    let expansion = fusion_compiler::expand(tokens.into());
    let written = dump(&expansion.dumps, place.map_or(0, |span| span.line()));
    let mut tokens = TokenStream::from(expansion.tokens);
    if let Err(error) = written {
        let message = format!("FUSION_DUMP: {error}");
        tokens.extend(format!("::core::compile_error!({message:?});").parse::<TokenStream>());
    }
    tokens
}

/// Writes the dumps of one `fuse!`. Inline forms have no name; their line tells them apart.
fn dump(files: &[(String, String)], line: usize) -> io::Result<()> {
    let Some(dir) = env::var_os("FUSION_DUMP").filter(|dir| !dir.is_empty()) else { return Ok(()) };
    let dir = PathBuf::from(dir).join(env::var_os("CARGO_CRATE_NAME").unwrap_or_default());
    fs::create_dir_all(&dir)?;
    files.iter().try_for_each(|(name, text)| {
        let name = if name.contains("inline") { format!("line_{line}_{name}") } else { name.clone() };
        fs::write(dir.join(name), text)
    })
}
