//! Tests on a real adapter, or on a software Vulkan, with handwritten kernels of the ABI that `plan::Launch`
//! documents.
//!
//! Without an adapter the tests report it and pass, unless `FUSION_REQUIRE_WGPU=1`.

use std::borrow::Cow;

use fusion_compiler::ir::dim::DimExpr;
use fusion_compiler::ir::dtype::DType;
use fusion_compiler::ir::graph::Access;
use fusion_compiler::ir::kernel::IndexWidth;
use fusion_compiler::ir::plan::{BufferArg, Code, Footprint, LaunchSpec, Slot, Space, UniformArg};

use super::{Options, WgpuBackend, open_with};
use crate::device::{Backend, Call, Memory, Region};
use crate::error::{Error, Result};
use crate::kernel::{Launch, ScalarValue};

mod arenas;
mod errors;
mod launches;
mod products;
mod reuse;
mod rows;
mod subgroups;
mod uniforms;
mod windows;

/// A kernel for `out = relu(a + b) * c`, in vectors of four with a scalar tail.
const RELU: &str = "
struct Args { start: u32, end: u32, offset0: u32, offset1: u32, offset2: u32, offset3: u32 }
@group(0) @binding(0) var<storage, read> b0: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> b1: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read> b2: array<vec4<f32>>;
@group(0) @binding(3) var<storage, read_write> b3: array<vec4<f32>>;
@group(1) @binding(0) var<uniform> args: Args;
override block: u32 = 256u;
override rest: bool = true;
override shifted: bool = true;
fn at(first: u32) -> u32 { return select(0u, first, shifted); }
@compute @workgroup_size(block)
fn relu_0(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let thread = (group.y * groups.x + group.x) * block + local;
    let threads = groups.x * groups.y * block;
    let end4 = at(args.start) + ((args.end - at(args.start)) & 0xfffffffcu);
    for (var i = at(args.start) + thread * 4u; i < end4; i += threads * 4u) {
        let sum = b0[(i + at(args.offset0)) >> 2u] + b1[(i + at(args.offset1)) >> 2u];
        b3[(i + at(args.offset3)) >> 2u] = select(sum, vec4<f32>(), sum < vec4<f32>()) * b2[(i + at(args.offset2)) >> 2u];
    }
    for (var i = end4 + thread; i < args.end; i += threads) {
        let p0 = i + at(args.offset0);
        let p1 = i + at(args.offset1);
        let p2 = i + at(args.offset2);
        let p3 = i + at(args.offset3);
        let sum = b0[p0 >> 2u][p0 & 3u] + b1[p1 >> 2u][p1 & 3u];
        b3[p3 >> 2u][p3 & 3u] = select(sum, 0.0, sum < 0.0) * b2[p2 >> 2u][p2 & 3u];
    }
}
";

/// A kernel for `x = x * alpha + n` in place, one element at a time.
const STEP: &str = "
struct Args { start: u32, end: u32, offset0: u32, alpha: f32, n: u32 }
@group(0) @binding(0) var<storage, read_write> b0: array<f32>;
@group(1) @binding(0) var<uniform> args: Args;
override block: u32 = 256u;
override rest: bool = true;
override shifted: bool = true;
fn at(first: u32) -> u32 { return select(0u, first, shifted); }
@compute @workgroup_size(block)
fn step_0(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let thread = (group.y * groups.x + group.x) * block + local;
    let threads = groups.x * groups.y * block;
    for (var i = at(args.start) + thread; i < args.end; i += threads) {
        b0[i + at(args.offset0)] = b0[i + at(args.offset0)] * args.alpha + f32(args.n);
    }
}
";

/// A kernel for `out = x + bias`, which reads the bias along the columns at any position.
const BIAS: &str = "
struct Args { start: u32, end: u32, offset0: u32, offset1: u32, offset2: u32, cols: u32 }
@group(0) @binding(0) var<storage, read> b0: array<f32>;
@group(0) @binding(1) var<storage, read> b1: array<f32>;
@group(0) @binding(2) var<storage, read_write> b2: array<f32>;
@group(1) @binding(0) var<uniform> args: Args;
override block: u32 = 256u;
override rest: bool = true;
override shifted: bool = true;
fn at(first: u32) -> u32 { return select(0u, first, shifted); }
@compute @workgroup_size(block)
fn bias_0(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let thread = (group.y * groups.x + group.x) * block + local;
    let threads = groups.x * groups.y * block;
    for (var i = at(args.start) + thread; i < args.end; i += threads) {
        b2[i + at(args.offset2)] = b0[i + at(args.offset0)] + b1[i % args.cols + at(args.offset1)];
    }
}
";

const PLAIN: Options = Options {
    checks: super::Checks::Trusted,
    binding_bytes_max: u64::MAX,
    groups_max: super::GROUPS_MAX,
    immediate_bytes_max: u32::MAX,
    subgroups: super::Subgroups::Never,
};

/// Runs a test on a new device.
fn on_device(options: Options, test: impl FnOnce(&WgpuBackend) -> Result<()>) {
    let gpu = match open_with(options) {
        Ok(gpu) => gpu,
        Err(error @ Error::NoDevice { .. }) => {
            assert!(std::env::var("FUSION_REQUIRE_WGPU").as_deref() != Ok("1"), "{error}");
            eprintln!("SKIPPED: {error}");
            return;
        }
        Err(error) => panic!("{error}"),
    };
    if let Err(error) = test(&gpu) {
        panic!("{error}");
    }
}

fn arg(slot: u16, access: Access, footprint: Footprint) -> BufferArg {
    BufferArg { slot: Slot::Param(slot), access, dtype: DType::F32, footprint, uniform: false }
}

/// Returns a launch over `symbol 0` elements.
fn kernel(
    name: &'static str,
    text: &'static str,
    buffers: Vec<BufferArg>,
    uniforms: Vec<UniformArg>,
) -> Launch {
    let (one, grain) = (DimExpr::constant(1), if text == RELU { 4 } else { 1 });
    let space = Space { rows: one.clone(), cols: DimExpr::sym(0), grain, grain_min: grain, each: one };
    let spec = LaunchSpec::new(name, IndexWidth::Bits32, space);
    let spec = LaunchSpec { buffers: buffers.into(), uniforms: uniforms.into(), ..spec };
    Launch { code: Code::Wgsl(text.into()), spec }
}

fn relu() -> Launch {
    use UniformArg::{End, Offset, Start};
    let accesses = [Access::Read, Access::Read, Access::Read, Access::Write];
    let buffers = (0..)
        .zip(accesses)
        .map(|(i, access)| arg(i, access, Footprint::Linear(DimExpr::constant(1))))
        .collect();
    kernel("relu_0", RELU, buffers, vec![Start, End, Offset(0), Offset(1), Offset(2), Offset(3)])
}

/// Returns the launch of `STEP`. The scalars are `[None, alpha]`, the symbols the number of elements and `n`.
fn step() -> Launch {
    use UniformArg::{End, Extent, Offset, Scalar, Start};
    let buffers = vec![arg(0, Access::ReadWrite, Footprint::Linear(DimExpr::constant(1)))];
    kernel("step_0", STEP, buffers, vec![Start, End, Offset(0), Scalar(1), Extent(DimExpr::sym(1))])
}

/// Returns the launch of `BIAS`. The symbols are the number of elements and the number of columns.
fn bias() -> Launch {
    use UniformArg::{End, Extent, Offset, Start};
    let whole = arg(1, Access::Read, Footprint::Whole);
    let buffers = vec![
        arg(0, Access::Read, Footprint::Linear(DimExpr::constant(1))),
        whole,
        arg(2, Access::Write, Footprint::Linear(DimExpr::constant(1))),
    ];
    let uniforms = vec![Start, End, Offset(0), Offset(1), Offset(2), Extent(DimExpr::sym(1))];
    kernel("bias_0", BIAS, buffers, uniforms)
}

/// Returns a region of `len` floats from byte `offset` on.
fn view(memory: &Memory, offset: usize, len: usize) -> Region<'_> {
    Region { memory, offset, len }
}

fn upload(gpu: &WgpuBackend, values: &[f32]) -> Result<Memory> {
    let memory = gpu.allocate(values.len() * 4)?;
    gpu.write(&memory, 0, bytemuck::cast_slice(values))?;
    Ok(memory)
}

fn download(gpu: &WgpuBackend, memory: &Memory, offset: usize, len: usize) -> Result<Vec<f32>> {
    let mut values = vec![0.0f32; len];
    gpu.read(memory, offset, bytemuck::cast_slice_mut(&mut values))?;
    Ok(values)
}

fn run(gpu: &WgpuBackend, launch: &Launch, symbols: &[i64], buffers: &[Region<'_>]) -> Result<()> {
    gpu.launch(launch, &Call { symbols, scalars: &[], buffers, producers: &[] })
}

/// Runs `x = x * alpha + n`.
fn run_step(gpu: &WgpuBackend, launch: &Launch, x: Region<'_>, alpha: f32, n: i64) -> Result<()> {
    let scalars = [None, Some(ScalarValue::F32(alpha))];
    gpu.launch(
        launch,
        &Call { symbols: &[x.len as i64, n], scalars: &scalars, buffers: &[x], producers: &[] },
    )
}

/// Returns numbers of both signs that add and multiply without rounding.
fn ramp(len: usize, seed: usize) -> Vec<f32> {
    (0..len).map(|i| ((i * 7 + seed * 13) % 101) as f32 - 50.0).collect()
}

fn expected_relu(a: &[f32], b: &[f32], c: &[f32]) -> Vec<f32> {
    let element =
        |((a, b), c): ((&f32, &f32), &f32)| ((f64::from(*a) + f64::from(*b)).max(0.0) * f64::from(*c)) as f32;
    a.iter().zip(b).zip(c).map(element).collect()
}

#[track_caller]
fn assert_same(got: &[f32], expected: &[f32]) {
    assert_eq!(got.len(), expected.len());
    let wrong = got.iter().zip(expected).position(|(got, expected)| got != expected);
    if let Some(i) = wrong {
        panic!("element {i} of {} is {}, not {}", got.len(), got[i], expected[i]);
    }
}

/// Makes the text of a launch owned, as in plans compiled at run time.
fn owned(mut launch: Launch) -> Launch {
    if let Code::Wgsl(text) = &mut launch.code {
        *text = Cow::Owned(text.to_string());
    }
    launch
}
