//! Checkpoints: parameters and states in a safetensors file, by name: `weight`, `weight.exp_avg`,
//! `weight.exp_avg_sq`.
//!
//! Invariant: a file is complete or does not exist. A load checks everything before it changes anything.

use std::collections::{HashMap, HashSet};
use std::fs::{self, File};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::Write;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use half::{bf16, f16};
use safetensors::tensor::TensorView;
use safetensors::{Dtype, SafeTensors, serialize};

use super::arena::BLOCK;
use super::state_bf16::StateBf16;
use super::{Arena, Optimizer, Rule};
use crate::error::{Error, Result};
use crate::shape::Shape;
use crate::tensor::Tensor;

/// Version of the file format.
const VERSION: &str = "6";

/// Prefix of an option's name in the metadata.
const OPTION: &str = "option.";

/// Suffix of a parameter's name for its moving average.
const AVERAGE: &str = "average";

/// Maximum number of steps. A larger count in a file is an error.
const STEPS_MAX: u64 = 1 << 53;

/// An array: the elements of one kind for all tensors that have them, in memory order.
struct Array {
    /// Suffix of a tensor's name in the file; empty for a parameter.
    suffix: &'static str,
    of: Of,
    elements: Elements,
}

/// The tensors that have an array, and the granularity of its elements.
#[derive(Clone, Copy)]
enum Of {
    /// All tensors, per element.
    All,
    /// Large tensors, per element.
    Large,
    /// Small tensors, per element.
    Small,
    /// Large tensors, per block.
    Blocks,
}

enum Elements {
    F32(Vec<f32>),
    Bf16(Vec<bf16>),
    U8(Vec<u8>),
}

impl Elements {
    fn dtype(&self) -> Dtype {
        match self {
            Elements::F32(_) => Dtype::F32,
            Elements::Bf16(_) => Dtype::BF16,
            Elements::U8(_) => Dtype::U8,
        }
    }

    fn bytes(&mut self) -> &mut [u8] {
        match self {
            Elements::F32(elements) => bytemuck::cast_slice_mut(elements),
            Elements::Bf16(elements) => bytemuck::cast_slice_mut(elements),
            Elements::U8(elements) => elements,
        }
    }

    fn width(&self) -> usize {
        match self {
            Elements::F32(_) => size_of::<f32>(),
            Elements::Bf16(_) => size_of::<bf16>(),
            Elements::U8(_) => 1,
        }
    }
}

/// A tensor in a file.
struct Entry {
    key: String,
    shape: Vec<usize>,
    /// Byte range of the tensor in its array.
    bytes: std::ops::Range<usize>,
}

impl Array {
    fn entries(&self, params: &Arena) -> Vec<Entry> {
        let large = params.large();
        let entry = |(name, start, shape): (&str, usize, &Shape)| {
            let count = shape.count().unwrap_or_else(|| unreachable!("a tensor of the arena has this shape"));
            let (start, shape) = match self.of {
                Of::All => (start, shape.dims().to_vec()),
                Of::Large if start < large => (start, shape.dims().to_vec()),
                Of::Small if start >= large => (start - large, shape.dims().to_vec()),
                Of::Blocks if start < large => (start / BLOCK, vec![count.div_ceil(BLOCK)]),
                Of::Large | Of::Small | Of::Blocks => return None,
            };
            let (width, len) = (self.elements.width(), shape.iter().product::<usize>());
            let key = if self.suffix.is_empty() { name.into() } else { format!("{name}.{}", self.suffix) };
            Some(Entry { key, shape, bytes: start * width..(start + len) * width })
        };
        params.places().filter_map(entry).collect()
    }
}

impl Optimizer {
    /// Writes parameters and states to a file. The call waits for the device.
    ///
    /// The function writes a temporary file in the same folder and renames it. A crash leaves the previous
    /// file intact.
    ///
    /// # Errors
    /// `Error::File` if the file cannot be written, or two tensors would have one name; `Error::Parameter` if
    /// the learning rate on the device is invalid; the errors of `Tensor::to_vec`.
    pub fn save(&self, path: impl AsRef<Path>, params: &Arena) -> Result<()> {
        self.check_params(params)?;
        let arrays = self.arrays(params)?;
        let facts = [
            ("version", VERSION.to_string()),
            ("optimizer", self.rule.name().to_string()),
            ("calls", self.calls.to_string()),
            ("skipped", self.skipped.item()?.to_string()),
        ];
        let mut rule = self.rule;
        let lr = self.lr.item()?;
        if lr != rule.lr() as f32 {
            // The learning rate was written on the device.
            *rule.lr_mut() = f64::from(lr);
            rule.check()?;
        }
        let options = rule.options().into_iter().map(|(name, value)| (format!("{OPTION}{name}"), value));
        let facts = facts.map(|(name, value)| (name.to_string(), value));
        let facts: HashMap<String, String> = facts.into_iter().chain(options).collect();
        write(path.as_ref(), params, arrays, facts)
    }

    /// Loads parameters, states and options from a file that `save` wrote, for the same rule and parameters.
    ///
    /// Options are overwritten too, as in PyTorch's `load_state_dict`: set a different learning rate
    /// afterwards.
    /// Clipping, copies and the decay of an average stay unchanged.
    ///
    /// # Errors
    /// `Error::File` if the file cannot be read, or differs in names, shapes or types. Options that determine
    /// the set of states must agree too: `momentum` being 0 or not, `centered`, `amsgrad` and `state`. An
    /// error leaves everything unchanged.
    pub fn load(&mut self, path: impl AsRef<Path>, params: &mut Arena) -> Result<()> {
        self.check_params(params)?;
        let mut arrays = self.arrays(params)?;
        let facts = read_file(path.as_ref(), |file, metadata| {
            let facts = Facts::of(metadata, &self.rule)?;
            let differences = read(file, params, &mut arrays);
            if differences.is_empty() { Ok(facts) } else { Err(differences.join("; ")) }
        })?;
        self.restore(params, arrays)?;
        self.skipped = Tensor::full(params.device(), facts.skipped as f32, [])?;
        (self.before, self.noted) = (self.skipped.clone(), self.skipped.clone());
        self.lr = Tensor::full(params.device(), facts.rule.lr() as f32, [])?;
        (self.rule, self.calls) = (facts.rule, facts.calls);
        Ok(())
    }

    /// Returns all arrays to save, with their current values.
    fn arrays(&self, params: &Arena) -> Result<Vec<Array>> {
        let floats = |suffix, of, tensor: &Tensor<f32>| {
            Ok(Array { suffix, of, elements: Elements::F32(tensor.to_vec()?) })
        };
        let mut arrays = vec![floats("", Of::All, params.flat())?];
        let of = if self.state_8bit.is_some() { Of::Small } else { Of::All };
        for ((state, _), tensor) in self.rule.states().into_iter().zip(&self.states) {
            arrays.push(floats(state, of, tensor)?);
        }
        if let Some(state_bf16) = &self.state_bf16 {
            for ((suffix, _), mean) in self.rule.states().into_iter().zip(state_bf16.means()?) {
                arrays.push(Array { suffix, of, elements: Elements::Bf16(mean) });
            }
        }
        if let Some(state_8bit) = &self.state_8bit {
            let [mean, squares] = state_8bit.units()?.map(Elements::F32);
            let codes = state_8bit.codes()?.map(Elements::U8);
            for (suffix, elements) in ["exp_avg", "exp_avg_sq"].into_iter().zip(codes) {
                arrays.push(Array { suffix, of: Of::Large, elements });
            }
            arrays.push(Array { suffix: "exp_avg.unit", of: Of::Blocks, elements: mean });
            arrays.push(Array { suffix: "exp_avg_sq.unit", of: Of::Blocks, elements: squares });
        }
        if let Some(average) = self.average() {
            arrays.push(floats(AVERAGE, Of::All, average.flat())?);
        }
        Ok(arrays)
    }

    /// Sets all values from arrays in the order of `arrays`, and updates copies.
    fn restore(&mut self, params: &mut Arena, arrays: Vec<Array>) -> Result<()> {
        let device = params.device().clone();
        let (mut floats, mut means, mut codes) = (vec![], vec![], vec![]);
        for Array { elements, .. } in arrays {
            match elements {
                Elements::F32(elements) => floats.push(elements),
                Elements::Bf16(elements) => means.push(elements),
                Elements::U8(elements) => codes.push(elements),
            }
        }
        let mut floats = floats.into_iter();
        let mut next =
            || floats.next().unwrap_or_else(|| unreachable!("there are as many as were asked for"));
        let put = |tensor: &mut Tensor<f32>, elements: Vec<f32>| -> Result<()> {
            *tensor = Tensor::from_vec(&device, elements, tensor.shape())?;
            Ok(())
        };
        params.update(|flat| put(flat, next()))?;
        self.states.iter_mut().try_for_each(|state| put(state, next()))?;
        if let (Some(state_bf16), [mean, squares]) = (&mut self.state_bf16, &means[..]) {
            *state_bf16 = StateBf16::from_means(&device, [mean, squares])?;
        }
        if let Some(state_8bit) = &mut self.state_8bit {
            if let [mean, squares] = &codes[..] {
                state_8bit.set_codes([mean, squares])?;
            }
            let (mean, squares) = (next(), next());
            state_8bit.set_units([&mean, &squares])?;
        }
        let zero = Tensor::zeros(&device, [])?;
        for shadow_copy in &mut self.shadow_copies {
            match shadow_copy.average() {
                Some(average) => average.update(|flat| put(flat, next()))?,
                None => shadow_copy.follow(params.flat(), &zero, &zero)?,
            }
        }
        Ok(())
    }
}

impl Arena {
    /// Writes the tensors by name to a safetensors file. The call waits for the device.
    ///
    /// The function writes a temporary file in the same folder and renames it. A crash leaves the previous
    /// file intact.
    ///
    /// # Errors
    /// `Error::File` if the file cannot be written; the errors of `Tensor::to_vec`.
    pub fn save(&self, path: impl AsRef<Path>) -> Result<()> {
        let elements = Elements::F32(self.flat().to_vec()?);
        write(path.as_ref(), self, vec![Array { suffix: "", of: Of::All, elements }], HashMap::new())
    }

    /// Loads all tensors by name from a safetensors file, in `F32`, `F16` or `BF16`.
    ///
    /// PyTorch, `save` and `Optimizer::save` write such files. Other tensors in the file are ignored.
    ///
    /// # Errors
    /// `Error::File` if the file cannot be read, lacks a tensor, or has a tensor in another shape or type. An
    /// error leaves everything unchanged.
    pub fn load(&mut self, path: impl AsRef<Path>) -> Result<()> {
        let mut all = vec![0.0; self.flat().len()];
        read_file(path.as_ref(), |file, _| {
            let mut differences = vec![];
            for (name, start, shape) in self.places() {
                match file.tensor(name) {
                    Err(_) => differences.push(format!("`{name}` is missing")),
                    Ok(tensor) if tensor.shape() != shape.dims() => {
                        differences.push(format!("`{name}` has shape {:?}, not {shape}", tensor.shape()));
                    }
                    Ok(tensor) => match widened(&tensor) {
                        Some(elements) => all[start..][..elements.len()].copy_from_slice(&elements),
                        None => differences.push(format!("`{name}` is {:?}, not F32", tensor.dtype())),
                    },
                }
            }
            if differences.is_empty() { Ok(()) } else { Err(differences.join("; ")) }
        })?;
        let device = self.device().clone();
        self.update(|flat| {
            *flat = Tensor::from_vec(&device, all, flat.shape())?;
            Ok(())
        })
    }
}

/// Converts elements of a file to `f32`, which is exact for all three types.
fn widened(tensor: &TensorView<'_>) -> Option<Vec<f32>> {
    let halves =
        |of: fn([u8; 2]) -> f32| tensor.data().chunks_exact(2).map(move |x| of([x[0], x[1]])).collect();
    match tensor.dtype() {
        Dtype::F32 => {
            let bytes = tensor.data().chunks_exact(4);
            Some(bytes.map(|x| f32::from_le_bytes([x[0], x[1], x[2], x[3]])).collect())
        }
        Dtype::F16 => Some(halves(|bytes| f16::from_le_bytes(bytes).to_f32())),
        Dtype::BF16 => Some(halves(|bytes| bf16::from_le_bytes(bytes).to_f32())),
        _ => None,
    }
}

/// Metadata of a file.
struct Facts {
    rule: Rule,
    calls: u64,
    skipped: u64,
}

impl Facts {
    /// Reads the metadata of a file for this rule, or returns its problem.
    fn of(metadata: Option<&HashMap<String, String>>, rule: &Rule) -> std::result::Result<Facts, String> {
        let known = |name: &str| metadata.and_then(|metadata| metadata.get(name)).map(String::as_str);
        let fact = |name: &str| known(name).unwrap_or("");
        let (version, optimizer) = (fact("version"), fact("optimizer"));
        if version != VERSION {
            return Err(format!("is of version `{version}`, and this reads version `{VERSION}`"));
        }
        if optimizer != rule.name() {
            return Err(format!("holds the state of `{optimizer}`, not of `{}`", rule.name()));
        }
        let number = |name: &str| fact(name).parse::<u64>().map_err(|why| format!("`{name}`: {why}"));
        let (calls, skipped) = (number("calls")?, number("skipped")?);
        if calls > STEPS_MAX || skipped > calls {
            return Err(format!("tells of {calls} steps, of which {skipped} were skipped, which cannot be"));
        }
        let saved = rule.with_options(|name| known(&format!("{OPTION}{name}")))?;
        saved.check().map_err(|why| why.to_string())?;
        rule.check_states(&saved)?;
        Ok(Facts { rule: saved, calls, skipped })
    }
}

/// Fills arrays from a file, and returns all differences.
fn read(file: &SafeTensors<'_>, params: &Arena, arrays: &mut [Array]) -> Vec<String> {
    let (mut differences, mut known) = (vec![], HashSet::new());
    for array in arrays {
        let (entries, dtype) = (array.entries(params), array.elements.dtype());
        let bytes = array.elements.bytes();
        for Entry { key, shape, bytes: range } in entries {
            match file.tensor(&key) {
                Ok(tensor) if tensor.dtype() != dtype => {
                    differences.push(format!("`{key}` is {:?}, not {dtype:?}", tensor.dtype()));
                }
                Ok(tensor) if tensor.shape() != shape => {
                    differences.push(format!("`{key}` has shape {:?}, not {shape:?}", tensor.shape()));
                }
                Ok(tensor) => bytes[range].copy_from_slice(tensor.data()),
                Err(_) if array.suffix == AVERAGE => {
                    differences
                        .push(format!("`{key}` is missing: the optimizer that was saved kept no average"));
                }
                Err(_) => differences.push(format!("`{key}` is missing")),
            }
            known.insert(key);
        }
    }
    let mut others: Vec<&str> = file.names().into_iter().filter(|name| !known.contains(*name)).collect();
    others.sort_unstable();
    let is_average = |name: &str| name.strip_suffix(AVERAGE).is_some_and(|name| name.ends_with('.'));
    differences.extend(others.into_iter().map(|name| match is_average(name) {
        true => {
            format!("`{name}` is of an average, which this optimizer does not keep: make it `with_average`")
        }
        false => format!("`{name}` is none of the parameters"),
    }));
    differences
}

/// Writes a file with the arrays of all tensors of an arena.
fn write(path: &Path, params: &Arena, mut arrays: Vec<Array>, facts: HashMap<String, String>) -> Result<()> {
    let error = |what: String| Error::File { path: path.display().to_string(), what };
    let (mut views, mut keys) = (vec![], HashSet::new());
    // The metadata of a file is stored under this name, next to the tensors.
    if params.get("__metadata__").is_some() {
        return Err(error("a parameter cannot be `__metadata__` in a file: rename it".into()));
    }
    for array in &mut arrays {
        let (entries, dtype) = (array.entries(params), array.elements.dtype());
        let bytes = &*array.elements.bytes();
        for Entry { key, shape, bytes: range } in entries {
            if !keys.insert(key.clone()) {
                return Err(error(format!(
                    "`{key}` is both a parameter and the state of one: rename the parameter"
                )));
            }
            let view = TensorView::new(dtype, shape, &bytes[range]);
            views.push((key, view.map_err(|refused| error(refused.to_string()))?));
        }
    }
    write_file(path, views, facts)
}

/// Writes a file of tensors and metadata, through a temporary file in the same folder.
pub(super) fn write_file<'v>(
    path: &Path,
    tensors: Vec<(impl AsRef<str> + Ord + std::fmt::Display, TensorView<'v>)>,
    facts: HashMap<String, String>,
) -> Result<()> {
    let error = |what: String| Error::File { path: path.display().to_string(), what };
    let bytes = serialize(tensors, Some(facts)).map_err(|refused| error(refused.to_string()))?;
    replace(path, &bytes).map_err(|refused| error(refused.to_string()))
}

/// Reads a file and returns the result of `take` for its tensors and metadata, or the problem that `take`
/// reports.
pub(super) fn read_file<R>(
    path: &Path,
    take: impl FnOnce(&SafeTensors<'_>, Option<&HashMap<String, String>>) -> std::result::Result<R, String>,
) -> Result<R> {
    let error = |what: String| Error::File { path: path.display().to_string(), what };
    let bytes = fs::read(path).map_err(|refused| error(refused.to_string()))?;
    let refused = |why| error(format!("is no whole file of safetensors: {why}"));
    let (_, header) = SafeTensors::read_metadata(&bytes).map_err(refused)?;
    let file = SafeTensors::deserialize(&bytes).map_err(refused)?;
    take(&file, header.metadata().as_ref()).map_err(error)
}

/// Replaces a file atomically. The old file stays until the new one is complete.
fn replace(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    // Other threads and processes may save to the same path. The name may have the maximum length, so the
    // temporary file's name has only its start, with a hash of the whole name.
    static SAVED: AtomicU64 = AtomicU64::new(0);
    let name = path.file_name().unwrap_or_default();
    let mut hasher = DefaultHasher::new();
    name.hash(&mut hasher);
    let start: String = name.to_string_lossy().chars().take(32).collect();
    let (process, number) = (std::process::id(), SAVED.fetch_add(1, Relaxed));
    let part = path.with_file_name(format!("{start}.{:016x}.{process}.{number}.part", hasher.finish()));
    let written = File::create(&part).and_then(|mut file| {
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&part, path)
    });
    if written.is_err() {
        // The incomplete file is useless, and the first error is the one to report.
        let _ = fs::remove_file(&part);
    }
    written
}
