//! Compiled graphs and their calls.

use std::fmt;

use fusion_compiler::ir::plan::{Code, Param, ParamKind};

use super::{Graph, Verdict};
use crate::arg::Arg;
use crate::device::Device;
use crate::error::{Error, Result};
use crate::kernel::Plan;
use crate::report::Report;
use crate::run;
use crate::tensor::{Element, RawTensor, Tensor};

/// A graph that is compiled for a device.
///
/// `Display` prints the report.
#[derive(Clone)]
pub struct Fused {
    pub(super) plan: Plan,
    device: Device,
    /// Tensors of the graph's own parameters on the device, by parameter.
    own: Vec<Option<RawTensor>>,
    /// Names of the outputs, in order.
    pub(super) outputs: Vec<String>,
    /// Decision of the gate that chose the plan, if one did.
    pub(super) verdict: Option<Verdict>,
}

/// A value that a call passes for a parameter: a tensor, a number, or an extent.
pub trait Argument {
    #[doc(hidden)]
    fn arg(&self) -> Arg<'_>;
}

impl<T: Element> Argument for Tensor<T> {
    fn arg(&self) -> Arg<'_> {
        Arg::from(self)
    }
}

impl<T: Element> Argument for T {
    fn arg(&self) -> Arg<'_> {
        Arg::from(*self)
    }
}

impl Argument for usize {
    fn arg(&self) -> Arg<'_> {
        Arg::from(*self)
    }
}

/// The results of a call, by name.
#[derive(Debug)]
pub struct Outputs {
    graph: String,
    results: Vec<(String, Option<RawTensor>)>,
}

impl Fused {
    pub(super) fn new(graph: &Graph, device: &Device) -> Result<Fused> {
        let plan = graph.plan(device.0.target(), device)?;
        let own = graph.params.iter().map(|param| param.tensor.as_ref().map(|on| on(device)).transpose());
        Ok(Fused {
            own: own.collect::<Result<_>>()?,
            outputs: graph.output_names(),
            device: device.clone(),
            verdict: None,
            plan,
        })
    }

    /// Runs the graph. `inputs` are the arguments by name, in any order.
    ///
    /// # Errors
    /// `Error::MissingInput` and `Error::UnknownInput` for names; `Error::WrongInput` for a number in place of a
    /// tensor, and for a tensor on another device; the errors of a call of a function of `fuse!` for types, shapes and memory.
    pub fn run(&self, inputs: &[(&str, &dyn Argument)]) -> Result<Outputs> {
        let mut args = Vec::with_capacity(self.plan.params.len());
        for (param, own) in self.plan.params.iter().zip(&self.own) {
            args.push(match own {
                Some(tensor) => Arg::Tensor(tensor),
                None => self.input(inputs, param)?,
            });
        }
        let is_input = |name: &str| self.inputs().any(|param| param.name == name);
        for (i, (name, _)) in inputs.iter().enumerate() {
            if !is_input(name) || inputs[..i].iter().any(|(other, _)| other == name) {
                let known = self.signature();
                return Err(Error::UnknownInput { graph: self.name(), input: (*name).into(), known });
            }
        }
        let results = run::run_on(&self.plan, &mut args, &self.device)?;
        let results = self.outputs.iter().cloned().zip(results.into_iter().map(Some)).collect();
        Ok(Outputs { graph: self.name(), results })
    }

    /// Returns the argument of a parameter.
    fn input<'a>(&self, inputs: &[(&str, &'a dyn Argument)], param: &Param) -> Result<Arg<'a>> {
        let Some((_, input)) = inputs.iter().find(|(name, _)| *name == param.name) else {
            let (input, known) = (param.name.to_string(), self.signature());
            return Err(Error::MissingInput { graph: self.name(), input, known });
        };
        let arg = input.arg();
        let (expected, got) = match (&param.kind, &arg) {
            (ParamKind::Tensor { .. }, Arg::Tensor(tensor)) if tensor.dtype() != param.dtype => {
                (format!("a tensor of {}", param.dtype), kind(&arg))
            }
            (ParamKind::Tensor { .. }, Arg::Tensor(tensor)) if *tensor.device() == self.device => {
                return Ok(arg);
            }
            (ParamKind::Scalar, Arg::Scalar(dtype, _)) if *dtype == param.dtype => return Ok(arg),
            (ParamKind::Dim(_), Arg::Dim(_)) => return Ok(arg),
            (ParamKind::Tensor { .. }, Arg::Tensor(tensor)) => {
                let remedy = "move it with `.to(&device)`, or compile the graph for that device";
                (format!("a tensor on {}", self.device), format!("on {}: {remedy}", tensor.device()))
            }
            (ParamKind::Tensor { .. } | ParamKind::AnyShape { .. }, other) => {
                (format!("a tensor of {}", param.dtype), kind(other))
            }
            (ParamKind::Scalar, other) => (format!("a number of {}", param.dtype), kind(other)),
            (ParamKind::Dim(_), other) => (String::from("an extent, a `usize`"), kind(other)),
        };
        Err(Error::WrongInput { graph: self.name(), input: param.name.to_string(), expected, got })
    }

    /// Returns the parameters that calls pass.
    fn inputs(&self) -> impl Iterator<Item = &Param> {
        self.plan.params.iter().zip(&self.own).filter(|(_, own)| own.is_none()).map(|(param, _)| param)
    }

    /// Returns the inputs with their types: `x: f32[N, D], lr: f32`.
    pub(super) fn signature(&self) -> String {
        let of = |param: &Param| match &param.kind {
            ParamKind::Tensor { dims, .. } => {
                let dims: Vec<&str> = dims.iter().map(|dim| &*dim.name).collect();
                format!("{}: {}[{}]", param.name, param.dtype, dims.join(", "))
            }
            ParamKind::Scalar | ParamKind::AnyShape { .. } => format!("{}: {}", param.name, param.dtype),
            ParamKind::Dim(_) => format!("{}: dim", param.name),
        };
        self.inputs().map(of).collect::<Vec<_>>().join(", ")
    }

    fn name(&self) -> String {
        self.plan.name.to_string()
    }

    /// Returns the device that the graph is compiled for.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Returns the decision of the gate, if `Graph::fuse_gated` compiled the graph.
    pub fn verdict(&self) -> Option<&Verdict> {
        self.verdict.as_ref()
    }

    /// Returns the report of the kernels. Lines and columns are the numbers of parts in the graph's listing and
    /// the columns in their texts. The last line of the text, and of a picture's caption, is the verdict of the
    /// gate, if one decided.
    pub fn report(&self) -> Report {
        Report::new(&self.plan).with_note(self.verdict.as_ref().map(Verdict::to_string))
    }

    /// Returns the names and texts of all kernels, for GPUs: each launch of each variant once.
    pub fn kernels(&self) -> Vec<(&str, &str)> {
        let steps = self.plan.programs.iter().flat_map(|program| program.steps.iter());
        let launches =
            steps.flat_map(|step| step.variants.iter().flat_map(|variant| variant.launches.iter()));
        let mut kernels: Vec<(&str, &str)> = Vec::new();
        for launch in launches {
            if let Code::Ptx(text) | Code::Wgsl(text) = &launch.code
                && kernels.iter().all(|(name, _)| *name != launch.kernel)
            {
                kernels.push((&launch.kernel, text));
            }
        }
        kernels
    }
}

/// Describes an argument.
fn kind(arg: &Arg<'_>) -> String {
    match arg {
        Arg::Tensor(tensor) => format!("a tensor of {}", tensor.dtype()),
        Arg::TensorMut(tensor) => format!("a tensor of {}", tensor.dtype()),
        Arg::Scalar(dtype, _) => format!("a number of {dtype}"),
        Arg::Dim(_) => String::from("an extent"),
    }
}

impl fmt::Display for Fused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.report().fmt(f)
    }
}

impl fmt::Debug for Fused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Fused({}, {})", self.plan.name, self.device)
    }
}

impl Outputs {
    /// Takes an output.
    ///
    /// # Errors
    /// `Error::UnknownOutput` for a name that the graph does not have, and for an output taken before;
    /// `Error::OutputType` for another type, which leaves the output where it is.
    pub fn take<T: Element>(&mut self, name: &str) -> Result<Tensor<T>> {
        let known = self.results.iter_mut().find(|(output, result)| output == name && result.is_some());
        let is_other = |tensor: &RawTensor| tensor.dtype() != T::DTYPE;
        match known {
            Some((_, Some(tensor))) if is_other(tensor) => Err(Error::OutputType {
                graph: self.graph.clone(),
                output: name.into(),
                expected: tensor.dtype(),
                got: T::DTYPE,
            }),
            Some((_, result)) => {
                Tensor::from_raw(result.take().unwrap_or_else(|| unreachable!("the output was not taken")))
            }
            None => {
                let left = self.results.iter().filter(|(_, result)| result.is_some());
                let known = left.map(|(output, _)| output.as_str()).collect::<Vec<_>>().join(", ");
                Err(Error::UnknownOutput { graph: self.graph.clone(), output: name.into(), known })
            }
        }
    }

    /// Returns the names of the outputs that were not taken.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.results.iter().filter(|(_, result)| result.is_some()).map(|(output, _)| output.as_str())
    }
}
