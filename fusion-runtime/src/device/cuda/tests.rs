//! Tests of the device on a GPU, real or simulated. On a machine without a GPU, the device reports that.

#[cfg(feature = "cust")]
mod cust;
mod failures;
mod products;
mod rows;
mod soak;

use fusion_compiler::ir::dim::DimExpr;
use fusion_compiler::ir::kernel::IndexWidth;
use fusion_compiler::ir::plan::{Code, LaunchSpec, Space, UniformArg};

use crate::device::{Call, Device, Region};
use crate::error::Error;
use crate::kernel::{Launch, ScalarValue};

/// A kernel for `y[i] = a * x[i]` for `i` from `start` to `end`, with a grid-stride loop.
const SCALE: &str = "\
.version 6.3
.target sm_50
.address_size 64
.visible .entry scale(
    .param .u64 x, .param .u64 y, .param .f32 a, .param .u32 start, .param .u32 end)
{
    .reg .u64 %rd<6>;
    .reg .u32 %r<8>;
    .reg .f32 %f<3>;
    .reg .pred %p<1>;
    ld.param.u64 %rd0, [x];
    ld.param.u64 %rd1, [y];
    ld.param.f32 %f0, [a];
    ld.param.u32 %r0, [start];
    ld.param.u32 %r1, [end];
    mov.u32 %r2, %ctaid.x;
    mov.u32 %r3, %ntid.x;
    mov.u32 %r4, %tid.x;
    mov.u32 %r5, %nctaid.x;
    mad.lo.u32 %r6, %r2, %r3, %r4;
    add.u32 %r6, %r6, %r0;
    mul.lo.u32 %r7, %r3, %r5;
LOOP:
    setp.ge.u32 %p0, %r6, %r1;
    @%p0 bra DONE;
    mul.wide.u32 %rd2, %r6, 4;
    add.u64 %rd3, %rd0, %rd2;
    add.u64 %rd4, %rd1, %rd2;
    ld.global.f32 %f1, [%rd3];
    mul.rn.f32 %f2, %f1, %f0;
    st.global.f32 [%rd4], %f2;
    add.u32 %r6, %r6, %r7;
    bra LOOP;
DONE:
    ret;
}
";

/// Returns the first GPU. Without one the error must say so, and `FUSION_REQUIRE_CUDA=1` turns it into a
/// failure.
fn gpu() -> Option<Device> {
    match Device::cuda(0) {
        Ok(device) => Some(device),
        Err(error @ (Error::NoDevice { kind: "CUDA", .. } | Error::NoDriver { .. })) => {
            let why = error.to_string();
            assert!(why.contains("no NVIDIA GPU") || why.contains("install the driver"), "{why}");
            assert_ne!(std::env::var("FUSION_REQUIRE_CUDA").as_deref(), Ok("1"), "{error}");
            println!("skipped: {error}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

fn launch(text: &'static str, elements: i64) -> Launch {
    let one = DimExpr::constant(1);
    let space =
        Space { rows: one.clone(), cols: DimExpr::constant(elements), grain: 1, grain_min: 1, each: one };
    let uniforms = vec![UniformArg::Scalar(1), UniformArg::Start, UniformArg::End].into();
    let spec = LaunchSpec { uniforms, ..LaunchSpec::new("scale", IndexWidth::Bits32, space) };
    Launch { code: Code::Ptx(text.into()), spec }
}

/// Runs `SCALE` on numbers that start 16 bytes into their memory.
fn scale(device: &Device, elements: usize) -> Vec<f32> {
    let (bytes, offset) = (4 * elements, 16);
    let input: Vec<f32> = (0..elements).map(|i| i as f32).collect();
    let x = device.0.allocate(offset + bytes).unwrap();
    let y = device.0.allocate(bytes).unwrap();
    let z = device.0.allocate(bytes).unwrap();
    device.0.write(&x, offset, bytemuck::cast_slice(&input)).unwrap();
    let buffers =
        [Region { memory: &x, offset, len: elements }, Region { memory: &y, offset: 0, len: elements }];
    let call = Call {
        symbols: &[],
        scalars: &[None, Some(ScalarValue::F32(0.5))],
        buffers: &buffers,
        producers: &[],
    };
    device.0.launch(&launch(SCALE, elements as i64), &call).unwrap();
    device.0.copy((&y, 0), (&z, 0), bytes).unwrap();
    let mut output = vec![0_f32; elements];
    device.0.read(&z, 0, bytemuck::cast_slice_mut(&mut output)).unwrap();
    output
}

#[test]
fn kernels_run() {
    let Some(device) = gpu() else { return };
    assert!(device.facts().multiprocessors > 0 && device.facts().buffer_bytes_max > 1 << 28);
    for elements in [1, 31, 256, 257, 3_000_001] {
        for (i, got) in scale(&device, elements).into_iter().enumerate() {
            assert_eq!(got, 0.5 * i as f32, "{i} of {elements}");
        }
    }
    device.synchronize().unwrap();
}

#[test]
fn times_are_the_work_s() {
    let Some(device) = gpu() else { return };
    let nothing = device.time(|| Ok(())).unwrap();
    let much = device
        .time(|| {
            (0..8).for_each(|_| drop(scale(&device, 3_000_001)));
            Ok(())
        })
        .unwrap();
    assert!(much > nothing, "{much:?} for much, {nothing:?} for nothing");
    let error = Error::Argument { function: String::from("f"), what: String::from("wrong") };
    assert_eq!(device.time(|| Err(error.clone())).unwrap_err().to_string(), error.to_string());
    assert_eq!(scale(&device, 3), [0.0, 0.5, 1.0], "the device goes on");
}

#[test]
fn threads_share_a_device() {
    let Some(device) = gpu() else { return };
    std::thread::scope(|scope| {
        for n in 1..5 {
            let device = &device;
            scope.spawn(move || {
                assert_eq!(scale(device, 1000 * n).last(), Some(&(0.5 * (1000 * n - 1) as f32)))
            });
        }
    });
}

#[test]
fn a_bad_kernel_gives_the_log_of_the_driver() {
    let Some(device) = gpu() else { return };
    let bad = ".version 6.3\n.target sm_50\n.address_size 64\n.visible .entry scale() { no.such.thing; }\n";
    let call =
        Call { symbols: &[], scalars: &[None, Some(ScalarValue::F32(0.5))], buffers: &[], producers: &[] };
    match device.0.launch(&launch(bad, 1), &call) {
        Err(Error::Jit { kernel, log }) => {
            assert_eq!(kernel, "scale");
            assert!(log.contains("no.such") || log.contains("ptxas") || log.contains("line 4"), "{log}");
        }
        result => panic!("{result:?}"),
    }
    assert_eq!(scale(&device, 3), [0.0, 0.5, 1.0], "the device goes on");
}

#[test]
fn too_much_memory_is_an_error() {
    let Some(device) = gpu() else { return };
    for bytes in [1 << 46, usize::MAX] {
        assert!(matches!(device.0.allocate(bytes), Err(Error::OutOfMemory { .. })));
    }
    assert_eq!(scale(&device, 3), [0.0, 0.5, 1.0], "the device goes on");
}

/// A fault destroys every context of the process on that GPU, so the fault happens in a process of its own.
#[test]
fn a_fault_is_told_by_every_later_call() {
    const CHILD: &str = "FUSION_CUDA_FAULT";
    let Some(device) = gpu() else { return };
    if std::env::var_os(CHILD).is_none() {
        let test = "device::cuda::tests::a_fault_is_told_by_every_later_call";
        let program = std::env::current_exe().unwrap();
        let child =
            std::process::Command::new(program).args(["--exact", test]).env(CHILD, "1").output().unwrap();
        let output = String::from_utf8_lossy(&child.stdout);
        assert!(child.status.success() && output.contains("1 passed"), "{output}");
        return;
    }
    let trap = ".version 6.3\n.target sm_50\n.address_size 64\n.visible .entry scale() { trap; }\n";
    let call =
        Call { symbols: &[], scalars: &[None, Some(ScalarValue::F32(0.5))], buffers: &[], producers: &[] };
    // The driver may report the fault at the launch or at the wait.
    let first = device.0.launch(&launch(trap, 1), &call).and_then(|()| device.synchronize()).unwrap_err();
    assert!(matches!(first, Error::KernelFault { .. }), "{first}");
    assert_eq!(device.0.allocate(16).unwrap_err(), first);
    assert_eq!(device.synchronize().unwrap_err(), first);
}

#[test]
fn the_best_device_is_there_without_a_gpu() {
    let best = Device::best();
    assert_eq!(gpu().is_some(), best.name().contains("CUDA"), "{best}");
}
