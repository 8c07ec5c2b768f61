//! Launch limits that the directives of a kernel declare.

use super::ParseError;
use super::decode;
use super::lex::Tok;
use super::module::Parser;

/// Launch limits of a kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// Maximum number of threads of a block, from `.maxntid` or `.reqntid`.
    pub max_threads: Option<u32>,
    /// Required block, from `.reqntid`.
    pub required_block: Option<[u32; 3]>,
    /// Required blocks of a cluster, from `.reqnctapercluster`.
    pub required_cluster: Option<[u32; 3]>,
    /// Maximum number of blocks of a cluster, from `.maxclusterrank`.
    pub max_cluster: Option<u32>,
    /// True if `.explicitcluster` requires that the launch or the kernel gives the blocks of a cluster.
    pub explicit_cluster: bool,
}

impl Parser<'_> {
    /// Parses the directives between the parameters and the body.
    pub(super) fn limits(&mut self) -> Result<Limits, ParseError> {
        let product = |[x, y, z]: [u32; 3]| x.saturating_mul(y).saturating_mul(z);
        let mut limits = Limits::default();
        loop {
            match *self.peek() {
                Tok::Dot("maxntid") => {
                    let most = product(self.extents()?);
                    limits.max_threads = Some(most);
                }
                Tok::Dot("reqntid") => limits.required_block = Some(self.extents()?),
                Tok::Dot("minnctapersm" | "maxnctapersm" | "maxnreg") => {
                    self.next();
                    self.small("a number")?;
                }
                Tok::Dot("explicitcluster" | "reqnctapercluster" | "maxclusterrank") => {
                    self.cluster(&mut limits)?;
                }
                Tok::Dot("pragma") => self.debug()?,
                Tok::Dot(_)
                | Tok::Name(_)
                | Tok::Int(_)
                | Tok::Single(_)
                | Tok::Double(_)
                | Tok::Text(_)
                | Tok::Sign(_)
                | Tok::End => break,
            }
        }
        limits.max_threads = limits.required_block.map(product).or(limits.max_threads);
        Ok(limits)
    }

    /// Parses a directive about clusters.
    fn cluster(&mut self, limits: &mut Limits) -> Result<(), ParseError> {
        let at = self.at();
        let word = if let Tok::Dot(word) = *self.peek() { word } else { "" };
        let name = format!(".{word}");
        self.require(at, &name, decode::needs_of(&name, &[]))?;
        match word {
            "reqnctapercluster" => limits.required_cluster = Some(self.extents()?),
            "maxclusterrank" => {
                self.next();
                limits.max_cluster = Some(self.small("a number of blocks")? as u32);
            }
            _explicitcluster => {
                self.next();
                limits.explicit_cluster = true;
            }
        }
        if limits.required_cluster.is_some() && limits.max_cluster.is_some() {
            return self.error(at, "`.reqnctapercluster` and `.maxclusterrank` are not for one kernel");
        }
        Ok(())
    }

    fn extents(&mut self) -> Result<[u32; 3], ParseError> {
        self.next();
        let mut extents = [1; 3];
        for extent in &mut extents {
            *extent = self.small("an extent")? as u32;
            if !self.take(",") {
                break;
            }
        }
        Ok(extents)
    }
}
