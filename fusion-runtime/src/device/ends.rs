//! Tests of tensors beyond 32-bit counts, of which only the ends are in memory.
//!
//! A kernel runs near the end of a tensor, with as many blocks as the device keeps resident. A position that
//! loses its upper bits, or a thread that runs past the end, reads unmapped memory, which the device reports.
//! A full grid would take the simulator minutes.

use fusion_compiler::ir::dim::DimExpr;
use fusion_compiler::ir::dtype::DType;
use fusion_compiler::ir::plan::{Param, ParamKind, Target, UniformArg};

use super::{Call, Device, Memory, Region};
use crate::error::Result;
use crate::kernel::{Launch, Plan, ScalarValue};

/// A tensor with only its end in memory.
pub(crate) struct End {
    memory: Memory,
    /// Number of elements.
    len: usize,
    /// Number of bytes before the end, which are not in memory.
    before: usize,
}

impl End {
    pub(crate) fn new<T: bytemuck::Pod>(device: &Device, len: usize, end: &[T]) -> Result<End> {
        let bytes = bytemuck::cast_slice(end);
        let memory = device.0.allocate(bytes.len())?;
        device.0.write(&memory, 0, bytes)?;
        let mut end = End { memory, len, before: (len - end.len()) * size_of::<T>() };
        end.extend_back(end.before as isize);
        Ok(end)
    }

    fn extend_back(&mut self, bytes: isize) {
        let Memory::Cuda(memory) = &mut self.memory else { unreachable!("the device is CUDA") };
        memory.extend_back(bytes);
    }

    pub(crate) fn region(&self) -> Region<'_> {
        Region { memory: &self.memory, offset: 0, len: self.len }
    }

    pub(crate) fn read<T: bytemuck::Pod>(&self, device: &Device) -> Result<Vec<T>> {
        let mut elements = vec![T::zeroed(); self.len - self.before / size_of::<T>()];
        device.0.read(&self.memory, self.before, bytemuck::cast_slice_mut(&mut elements))?;
        Ok(elements)
    }
}

impl Drop for End {
    fn drop(&mut self) {
        self.extend_back(-(self.before as isize));
    }
}

/// Returns the launches of a call with these extents.
pub(crate) fn launches(device: &Device, plan: &'static Plan, symbols: &[i64]) -> Vec<&'static Launch> {
    let program = plan.programs.iter().find(|program| program.target == Target::Ptx);
    let steps = program.unwrap_or_else(|| unreachable!("it is for all targets")).steps.iter();
    let chosen = steps.map(|step| step.chosen(symbols, &device.limits()));
    chosen
        .flat_map(|variant| &*variant.unwrap_or_else(|| unreachable!("one fits all extents")).launches)
        .collect()
}

/// Runs a launch from item `start` on, with these buffers.
pub(crate) fn run_from(
    device: &Device,
    plan: &Plan,
    launch: &Launch,
    symbols: &[i64],
    start: usize,
    scalars: &[f32],
    buffers: &[Region<'_>],
) -> Result<()> {
    let mut launch = launch.clone();
    launch.prologue = true;
    for uniform in launch.uniforms.to_mut() {
        if *uniform == UniformArg::Start {
            *uniform = UniformArg::Extent(DimExpr::constant(start as i64));
        }
    }
    let mut numbers = scalars.iter();
    let scalar = |param: &Param| match (&param.kind, param.dtype) {
        (ParamKind::Scalar, DType::U32) => Some(ScalarValue::U32(1)),
        (ParamKind::Scalar, _) => numbers.next().map(|&number| ScalarValue::F32(number)),
        (ParamKind::Tensor { .. } | ParamKind::AnyShape { .. } | ParamKind::Dim(_), _) => None,
    };
    let scalars: Vec<Option<ScalarValue>> = plan.params.iter().map(scalar).collect();
    device.0.launch(&launch, &Call { symbols, scalars: &scalars, buffers, producers: &[] })
}

/// Returns the GPU, real or simulated, if there is one. Other tests report a failure to open it.
pub(crate) fn gpu() -> Option<Device> {
    Device::cuda(0).ok()
}
