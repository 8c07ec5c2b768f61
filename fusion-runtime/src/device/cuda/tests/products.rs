//! Products with tensors of more than 2³¹ and 2³² elements: the tiles of their last rows.

use fusion_compiler::ir::kernel::IndexWidth;
use fusion_compiler::ir::plan::Slot;
use half::f16;

use crate::device::Region;
use crate::device::ends::{End, gpu, launches, run_from};
use crate::error::Result;
use crate::fuse;
use crate::kernel::Plan;

fuse! {
    pub(crate) fn floats(x: f32[M, K], w: f32[K, N]) -> f32[M, N] { sum(x * w, K) }
    pub(crate) fn halves(x: f16[M, K], w: f16[N, K]) -> f32[M, N] { sum(x * w, K) }
}

/// Rows, steps and columns: a left factor, then a result, that ends before and after 2³¹ elements and after 2³².
const EXTENTS: [[usize; 3]; 6] = [
    [(1 << 20) - 64, 2048, 64],
    [(1 << 20) + 64, 2048, 64],
    [(1 << 21) + 72, 2048, 64],
    [(1 << 20) - 64, 40, 2048],
    [(1 << 20) + 64, 40, 2048],
    [(1 << 21) + 72, 40, 2048],
];

/// Returns a number of a left factor from -2 to 2.
fn left(row: usize, step: usize) -> f32 {
    ((row * 7 + step * 3) % 5) as f32 - 2.0
}

/// Returns a number of a right factor from -3 to 3.
fn right(step: usize, col: usize) -> f32 {
    ((step * 5 + col * 11) % 7) as f32 - 3.0
}

/// Runs the tiles of the last rows of a product, and checks these rows. `encode` gives the bits of an element, and `at`
/// the step and column of an element of the right factor.
fn check<T: bytemuck::Pod>(
    plan: &'static Plan,
    [m, k, n]: [usize; 3],
    encode: fn(f32) -> T,
    at: impl Fn(usize) -> (usize, usize),
) -> Result<()> {
    let Some(device) = gpu() else { return Ok(()) };
    let symbols = [m, k, n].map(|extent| extent as i64);
    let [launch] = launches(&device, plan, &symbols)[..] else { panic!("one launch") };
    let is_wide = launch.index == IndexWidth::Bits64;
    assert_eq!(is_wide, m * k.max(n) > 1 << 31, "{}", launch.kernel);
    let size = launch.kernel.split("_tiles").nth(1).and_then(|size| size.split('x').next());
    let side: usize = size.and_then(|size| size.parse().ok()).expect("the kernel is of tiles");
    let (down, across) = (m.div_ceil(side), n.div_ceil(side));
    assert_eq!(launch.space.elements(&symbols), Some((down * across) as i64));
    let first = (down - 1) * side;
    let rows: Vec<T> = (first..m).flat_map(|row| (0..k).map(move |step| encode(left(row, step)))).collect();
    let weights: Vec<T> = (0..k * n).map(at).map(|(step, col)| encode(right(step, col))).collect();
    let x = End::new(&device, m * k, &rows)?;
    let w = End::new(&device, k * n, &weights)?;
    let out = End::new(&device, m * n, &vec![f32::NAN; (m - first) * n])?;
    let slot = |slot: Slot| match slot {
        Slot::Param(0) => x.region(),
        Slot::Param(_) => w.region(),
        Slot::Output(_) | Slot::Temp(_) => out.region(),
    };
    let buffers: Vec<Region<'_>> = launch.buffers.iter().map(|buffer| slot(buffer.slot)).collect();
    run_from(&device, plan, launch, &symbols, (down - 1) * across, &[], &buffers)?;
    let made = out.read::<f32>(&device)?;
    for (i, made) in made.into_iter().enumerate() {
        let (row, col) = (first + i / n, i % n);
        let expected: f32 = (0..k).map(|step| left(row, step) * right(step, col)).sum();
        assert_eq!(made, expected, "{} {m} x {k} x {n}: {row}, {col}", launch.kernel);
    }
    Ok(())
}

#[test]
fn floats_reach_the_end_of_large_tensors() -> Result<()> {
    EXTENTS
        .into_iter()
        .try_for_each(|extents| check(&floats::PLAN, extents, |x| x, |i| (i / extents[2], i % extents[2])))
}

#[test]
fn halves_reach_the_end_of_large_tensors() -> Result<()> {
    EXTENTS.into_iter().try_for_each(|extents| {
        check(&halves::PLAN, extents, |x| f16::from_f32(x).to_bits(), |i| (i % extents[1], i / extents[1]))
    })
}
