//! Checks of derived dims: products of dims, and dims with coordinate arithmetic.
//!
//! Invariant: an error shows the source text of the user and the extents that would pass. The search for
//! these extents runs only after a check has failed.

use fusion_compiler::ir::dim::DimExpr;
use fusion_compiler::ir::plan::{ConcatDim, Dim, SplitDim, Use};
use smallvec::SmallVec;

use crate::error::{Error, Result};
use crate::kernel::Plan;

/// Returns the value of an extent, which is ≥ 0.
pub(crate) fn extent_of(plan: &Plan, dim: &Dim, symbols: &[i64]) -> Result<usize> {
    let invalid = || Error::InvalidExtent { function: plan.name.to_string(), dim: dim.name.to_string() };
    dim.extent.eval(symbols).and_then(|extent| usize::try_from(extent).ok()).ok_or_else(invalid)
}

/// Checks all derived dims for these extents.
pub(crate) fn check(plan: &Plan, symbols: &[i64]) -> Result<()> {
    for split in plan.splits.iter() {
        check_split(plan, split, symbols)?;
    }
    plan.concats.iter().try_for_each(|concat| check_concat(plan, concat, symbols))
}

/// Checks a dim that is the product of others.
fn check_split(plan: &Plan, split: &SplitDim, symbols: &[i64]) -> Result<()> {
    let SplitDim { whole, parts, library } = split;
    let extent = extent_of(plan, whole, symbols)?;
    if is_product(split, symbols) {
        return Ok(());
    }
    let (function, dim) = (plan.name.to_string(), whole.name.to_string());
    let value = |part: &Dim| part_of(part, symbols).map_or(String::from("?"), |extent| extent.to_string());
    let fits = fits(plan, symbols, whole, parts);
    let Some(library) = library else {
        let names: Vec<&str> = parts.iter().map(|part| &*part.name).collect();
        let extents: Vec<String> = parts.iter().map(value).collect();
        let (parts, extents) = (names.join(", "), extents.join(" × ").into());
        return Err(Error::Split { function, dim, extent, parts, extents, fits });
    };
    let named: Vec<&Dim> = parts.iter().filter(|part| !part.name.is_empty()).collect();
    let groups = named.iter().map(|part| with_value(&part.name, part_of(part, symbols)));
    let groups = groups.collect::<Vec<_>>().join(" × ");
    let symbol = match named[..] {
        [one] => one.extent.as_sym().map(usize::from),
        _ => None,
    };
    let counts = group_counts(plan, symbols, extent, symbol);
    // A caller who passes the number of groups changes that number, not the tensor.
    let fits = if symbol.is_some() { counts } else { counts + &fits };
    let (by, extent) = (Box::from(&**library), extent as i64);
    Err(Error::Groups { function, by, dim, extent, groups, fits: fits.into() })
}

/// Maximum number of group counts in a message.
const COUNTS: usize = 12;

/// Returns the numbers of groups that divide an extent, as the end of a sentence. A number that calls pass, which
/// is `symbol`, passes all checks too. The text is empty if there is no such number.
fn group_counts(plan: &Plan, symbols: &[i64], extent: usize, symbol: Option<usize>) -> String {
    if extent == 0 {
        return String::from(", and of no elements there is any number of them from 1");
    }
    let mut other = symbols.to_vec();
    let is_fit = |count: &usize| {
        let Some(symbol) = symbol else { return true };
        other[symbol] = *count as i64;
        passes(plan, &other)
    };
    let counts = (1..=extent.min(1 << 16)).filter(|count| extent.is_multiple_of(*count)).filter(is_fit);
    let mut counts = counts.map(|count| count.to_string());
    let mut shown: Vec<String> = counts.by_ref().take(COUNTS).collect();
    let more = counts.next().is_some() || extent > 1 << 16;
    let list = match shown.pop() {
        None => return String::new(),
        Some(last) if more => format!("{}, …", [shown, vec![last]].concat().join(", ")),
        Some(last) if shown.is_empty() => last,
        Some(last) => format!("{} or {last}", shown.join(", ")),
    };
    format!(", so take {list} of them")
}

/// Returns the extent of a part, if it has one. A derived part has none if another part is 0.
fn part_of(part: &Dim, symbols: &[i64]) -> Option<usize> {
    part.extent.eval(symbols).and_then(|extent| usize::try_from(extent).ok())
}

fn is_product(SplitDim { whole, parts, .. }: &SplitDim, symbols: &[i64]) -> bool {
    let mut parts = parts.iter().map(|part| part_of(part, symbols));
    let product = parts.try_fold(1, |product: usize, part| product.checked_mul(part?));
    product.is_some() && product == part_of(whole, symbols)
}

/// Checks a dim with coordinate arithmetic.
fn check_concat(plan: &Plan, concat: &ConcatDim, symbols: &[i64]) -> Result<()> {
    let Some((extent, parts)) = extents(concat, symbols) else {
        let invalid = [&concat.whole].into_iter().chain(concat.parts.iter());
        let invalid = invalid.map(|dim| (dim, dim.extent.eval(symbols))).find(|(_, extent)| extent.is_none());
        let dim = invalid.map_or(&concat.whole, |(dim, _)| dim).name.to_string();
        return Err(Error::InvalidExtent { function: plan.name.to_string(), dim });
    };
    match (is_sum(extent, &parts), usize::try_from(extent)) {
        (true, Ok(_)) if i32::try_from(extent).is_ok() => Ok(()),
        (true, Ok(extent)) => {
            let (function, dim) = (plan.name.to_string(), concat.whole.name.to_string());
            Err(Error::TooLong { function, by: name(&concat.of), dim, extent })
        }
        (false, _) | (_, Err(_)) => Err(misplaced(plan, concat, symbols, (extent, &parts))),
    }
}

/// Returns the extent of the whole and of each part, if all have one.
fn extents(concat: &ConcatDim, symbols: &[i64]) -> Option<(i64, SmallVec<[i64; 8]>)> {
    let parts = concat.parts.iter().map(|part| part.extent.eval(symbols));
    Some((concat.whole.extent.eval(symbols)?, parts.collect::<Option<_>>()?))
}

fn is_sum(extent: i64, parts: &[i64]) -> bool {
    let sum = parts.iter().try_fold(0, |sum: i64, &part| sum.checked_add(part).filter(|_| part >= 0));
    sum == Some(extent)
}

/// Returns the name of the operation that uses a dim in this way.
fn name(of: &Use) -> Box<str> {
    let function = match of {
        Use::Position(_) => "at",
        Use::Range(..) => "slice",
        Use::Padding(..) => "pad",
        Use::Concat => "concat",
        Use::Rename => "rename",
        Use::Window(function) | Use::Option(function) => function,
        Use::Coordinates(function) => function,
    };
    format!("`{function}`").into()
}

/// Returns the error for parts that do not add up to their dim, in terms of the call.
fn misplaced(plan: &Plan, concat: &ConcatDim, symbols: &[i64], (extent, parts): (i64, &[i64])) -> Error {
    let ConcatDim { whole, parts: dims, of } = concat;
    let (function, dim) = (plan.name.to_string(), whole.name.to_string());
    // A window along a dim and its padding leaves the padding as it is.
    let own = match of {
        Use::Window(_) => whole.extent.symbols().next().map(DimExpr::sym),
        _ => None,
    };
    let own = own.map(|extent| Dim { extent, ..whole.clone() });
    let fits = fits(plan, symbols, own.as_ref().unwrap_or(whole), dims);
    let made = |dim: &Dim, wants: String, extent: i64| {
        let (function, fits) = (plan.name.to_string(), fits.clone());
        Error::Made { function, by: name(of), dim: dim.name.to_string(), wants, extent, fits }
    };
    let total = |parts: &[i64]| {
        if let [part] = parts {
            return part.to_string();
        }
        let texts: Vec<String> = parts.iter().map(i64::to_string).collect();
        format!("{} = {}", texts.join(" + "), parts.iter().fold(0_i64, |sum, &part| sum.saturating_add(part)))
    };
    match (of, parts) {
        (Use::Position(text), &[before, ..]) => {
            let position = with_value(text, Some(before));
            Error::Position { function, dim, extent, position, fits }
        }
        (Use::Range(start, end), &[before, part, after]) => {
            let (first, last) = (before, extent.saturating_sub(after));
            let range = range((start, first), (end, last));
            if first < 0 || first > last || last > extent {
                return Error::Range { function, dim, extent, range, fits };
            }
            let wants = format!("{}, which is {range} of `{dim}`", last - first);
            made(&dims[1], wants, part)
        }
        (Use::Padding(first, last), &[before, _, after]) if before < 0 || after < 0 => {
            let (text, amount) = if before < 0 { (first, before) } else { (last, after) };
            let dim = dims[1].name.to_string();
            Error::Padding { function, dim, amount: with_value(text, Some(amount)), fits }
        }
        (Use::Window(_), &[window, rest]) if rest < 0 => {
            let by = name(of);
            let what = format!(
                "the window of {by} covers {window} elements of `{dim}`, which has {extent} with its padding"
            );
            Error::Window { function, what, fits }
        }
        (Use::Option(_), &[least, _]) => {
            let what = format!("the `{dim}` of {} is {extent}, and is at least {least}", name(of));
            Error::Window { function, what, fits: Box::default() }
        }
        (Use::Coordinates(_), _) => Error::InvalidExtent { function, dim },
        // The dim already has another extent than the operation computes.
        _ => made(whole, total(parts), extent),
    }
}

/// Formats an extent as written, with its value if that differs.
fn with_value(text: &str, value: Option<impl ToString>) -> String {
    let value = value.map_or(String::from("?"), |value| value.to_string());
    if text == value { value } else { format!("`{text}` = {value}") }
}

/// Formats a range as written, with its values if they differ.
fn range((start, first): (&str, i64), (end, last): (&str, i64)) -> String {
    let values = format!("{first}..{last}");
    let text = format!("{start}..{end}");
    if text == values { format!("`{values}`") } else { format!("`{text}` = {values}") }
}

/// Maximum distance of the search for a fitting extent.
const FAR: i64 = 1 << 12;

/// Returns the nearest extents that pass all checks, as the end of a sentence. The text is empty if no single
/// extent would pass.
fn fits(plan: &Plan, symbols: &[i64], whole: &Dim, parts: &[Dim]) -> Box<str> {
    let extents = || [whole].into_iter().chain(parts).map(|dim| &dim.extent);
    let Some(symbol) = whole.extent.as_sym().map(usize::from).or_else(|| only_symbol(extents())) else {
        return Box::default();
    };
    let (Some(name), Some(&is)) = (plan.symbols.get(symbol), symbols.get(symbol)) else {
        return Box::default();
    };
    let mut other = symbols.to_vec();
    let mut passes = |extent: &i64| {
        other[symbol] = *extent;
        passes(plan, &other)
    };
    let below = (is.saturating_sub(FAR).max(1)..is).rev().find(&mut passes);
    let above = (is + 1..is.saturating_add(FAR)).find(&mut passes);
    match (below, above) {
        (Some(below), Some(above)) => format!("; `{name}` of {below} or {above} would fit").into(),
        (Some(one), None) | (None, Some(one)) => format!("; `{name}` of {one} would fit").into(),
        (None, None) => Box::default(),
    }
}

/// Returns true if all checks pass for these extents.
fn passes(plan: &Plan, symbols: &[i64]) -> bool {
    plan.splits.iter().all(|split| is_product(split, symbols))
        && plan.concats.iter().all(|concat| extents_pass(concat, symbols))
}

fn extents_pass(concat: &ConcatDim, symbols: &[i64]) -> bool {
    let found = extents(concat, symbols);
    found.is_some_and(|(extent, parts)| i32::try_from(extent).is_ok() && is_sum(extent, &parts))
}

/// Returns the symbol of these extents, if they have exactly one.
fn only_symbol<'e>(extents: impl Iterator<Item = &'e DimExpr>) -> Option<usize> {
    let mut symbols = extents.flat_map(DimExpr::symbols);
    let first = symbols.next()?;
    symbols.all(|symbol| symbol == first).then_some(usize::from(first))
}
