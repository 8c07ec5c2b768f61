//! Parameters and states in a file of safetensors, by name: `weight`, `weight.exp_avg`, `weight.exp_avg_sq`.
//!
//! Invariant: a file is there whole or not at all, and what is loaded fits before anything is changed.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::Write;
use std::path::Path;

use safetensors::tensor::TensorView;
use safetensors::{Dtype, SafeTensors, serialize};

use super::{Arena, Optimizer};
use crate::error::{Error, Result};
use crate::shape::Shape;
use crate::tensor::Tensor;

/// Of the layout that this crate writes.
const VERSION: &str = "1";

impl Optimizer {
    /// Writes parameters and states to a file, by way of one beside it, so that a crash leaves the file that was there. Waits for the
    /// device.
    ///
    /// # Errors
    /// `Error::File` where it cannot be written; as `Tensor::to_vec`.
    pub fn save(&self, path: impl AsRef<Path>, params: &Arena) -> Result<()> {
        let path = path.as_ref();
        let error = |what: String| Error::File { path: path.display().to_string(), what };
        let mut memory = vec![("", params.flat().to_vec()?)];
        for ((state, _), tensor) in self.rule.states().into_iter().zip(&self.states) {
            memory.push((state, tensor.to_vec()?));
        }
        let mut views = vec![];
        for (state, elements) in &memory {
            for (name, start, shape) in params.places() {
                let bytes = bytemuck::cast_slice(&elements[start..][..count(shape)]);
                let view = TensorView::new(Dtype::F32, shape.dims().to_vec(), bytes);
                views.push((key(name, state), view.map_err(|refused| error(refused.to_string()))?));
            }
        }
        let facts = [
            ("version", VERSION.to_string()),
            ("optimizer", self.rule.name().to_string()),
            ("calls", self.calls.to_string()),
            ("skipped", self.skipped.item()?.to_string()),
        ];
        let facts: HashMap<String, String> = facts.map(|(name, value)| (name.to_string(), value)).into();
        let bytes = serialize(views, Some(facts)).map_err(|refused| error(refused.to_string()))?;
        replace(path, &bytes).map_err(|refused| error(refused.to_string()))
    }

    /// Takes parameters and states from a file that `save` wrote, for the same rule and parameters; options stay as they are.
    ///
    /// # Errors
    /// `Error::File` where it cannot be read, or for all that differs in names, shapes and types; nothing has changed then.
    pub fn load(&mut self, path: impl AsRef<Path>, params: &mut Arena) -> Result<()> {
        let path = path.as_ref();
        let error = |what: String| Error::File { path: path.display().to_string(), what };
        let bytes = fs::read(path).map_err(|refused| error(refused.to_string()))?;
        let refused = |why| error(format!("is no whole file of safetensors: {why}"));
        let (_, header) = SafeTensors::read_metadata(&bytes).map_err(refused)?;
        let file = SafeTensors::deserialize(&bytes).map_err(refused)?;
        let facts = header.metadata().clone().unwrap_or_default();
        let fact = |name: &str| facts.get(name).map_or("", String::as_str);
        if fact("version") != VERSION || fact("optimizer") != self.rule.name() {
            return Err(error(format!(
                "holds `{}` in version `{}`, not `{}` in version `{VERSION}`",
                fact("optimizer"),
                fact("version"),
                self.rule.name(),
            )));
        }
        let number = |name: &str| fact(name).parse::<f64>().map_err(|why| error(format!("`{name}`: {why}")));
        let (calls, skipped) = (number("calls")?, number("skipped")?);
        let states: Vec<&str> = self.rule.states().into_iter().map(|(state, _)| state).collect();
        let memory = read(&file, params, &states).map_err(|differences| error(differences.join("; ")))?;
        let device = params.device().clone();
        let tensor = |elements: Vec<f32>| {
            let len = elements.len();
            Tensor::from_vec(&device, elements, [len])
        };
        let mut tensors = memory.into_iter().map(tensor).collect::<Result<Vec<_>>>()?.into_iter();
        let skipped_now = Tensor::full(&device, skipped as f32, [])?;
        if let Some(flat) = tensors.next() {
            params.update(|old| *old = flat);
        }
        self.states = tensors.collect();
        (self.calls, self.skipped, self.skips) = (calls as u64, skipped_now, self.skips || skipped > 0.0);
        Ok(())
    }
}

/// The name in a file.
fn key(name: &str, state: &str) -> String {
    if state.is_empty() { name.into() } else { format!("{name}.{state}") }
}

fn count(shape: &Shape) -> usize {
    shape.count().unwrap_or_else(|| unreachable!("a tensor of the arena has this shape"))
}

/// Parameters, then states, as they lie in an arena; or all that differs.
fn read(file: &SafeTensors<'_>, params: &Arena, states: &[&str]) -> Result<Vec<Vec<f32>>, Vec<String>> {
    let (mut memory, mut differences, mut known) = (vec![], vec![], vec![]);
    for state in [""].iter().chain(states) {
        let mut all = vec![0.0; params.flat().len()];
        for (name, start, shape) in params.places() {
            let name = key(name, state);
            match file.tensor(&name) {
                Ok(tensor) if tensor.dtype() != Dtype::F32 => {
                    differences.push(format!("`{name}` is {:?}, not F32", tensor.dtype()));
                }
                Ok(tensor) if tensor.shape() != shape.dims() => {
                    differences.push(format!("`{name}` has shape {:?}, not {shape}", tensor.shape()));
                }
                Ok(tensor) => {
                    bytemuck::cast_slice_mut(&mut all[start..][..count(shape)]).copy_from_slice(tensor.data())
                }
                Err(_) => differences.push(format!("`{name}` is missing")),
            }
            known.push(name);
        }
        memory.push(all);
    }
    let others = file.names().into_iter().filter(|name| !known.iter().any(|known| known == name));
    differences.extend(others.map(|name| format!("`{name}` is none of the parameters")));
    if differences.is_empty() { Ok(memory) } else { Err(differences) }
}

/// Puts a file in the place of another, which stays until the new one is whole.
fn replace(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let mut name = path.file_name().unwrap_or_default().to_os_string();
    name.push(format!(".{}.part", std::process::id()));
    let part = path.with_file_name(name);
    let written = File::create(&part).and_then(|mut file| {
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&part, path)
    });
    if written.is_err() {
        // What is left of it is of no use, and the error that is told is the first.
        let _ = fs::remove_file(&part);
    }
    written
}
