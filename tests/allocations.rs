//! Steady-state calls do not allocate once their results and the values between their kernels have memory.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::hint::black_box;

use fusion::optim::{AdamW, Arena, Optimizer};
use fusion::prelude::*;

fuse! {
    pub(crate) fn gate(a: f32[N], b: f32[N], c: f32[N]) -> f32[N] { relu(a + b) * c }
    pub(crate) fn scaled(x: f32[N, D], by: f32) -> (f32[N, D], f32[N]) { (softmax(x * by, D), max(x, D)) }
    pub(crate) fn decayed(p: &mut f32[N], g: f32[N], lr: f32) { p = p * (1.0 - lr) - lr * g; }
    pub(crate) fn total(x: f32[N]) -> f32[] { sum(square(x)) }
    // Dims that are slices, concatenations or parts of other dims.
    pub(crate) fn steps(x: f32[N, D]) -> f32[N, S] { slice(x, D -> S, 1..) - slice(x, D -> S, ..D - 1) }
    pub(crate) fn twice(x: f32[N, D]) -> f32[N, E] { concat((x, D), (flip(x, D), D) -> E) }
    pub(crate) fn pairs(x: f32[N, E]) -> f32[N, H] { max(split(x, E -> (H, P = 2)), P) }
    // Two steps, with one value for each column between them.
    pub(crate) fn centred(x: f32[N, D]) -> f32[N, D] { x - mean(x, N) }
}

/// Global allocator that counts the allocations of the calling thread.
struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<usize> = const { Cell::new(0) };
}

// SAFETY: the allocator of the system does all the work.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: the layout is the caller's.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: both are the caller's, and `alloc` got the memory from the same allocator.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// Returns the number of allocations of ten calls, after three warm-up calls.
fn steady(mut call: impl FnMut() -> Result<()>) -> Result<usize> {
    (0..3).try_for_each(|_| call())?;
    let before = ALLOCATIONS.get();
    (0..10).try_for_each(|_| call())?;
    Ok(ALLOCATIONS.get() - before)
}

#[test]
fn what_allocates_is_counted() -> Result<()> {
    let call = || {
        black_box(Box::new(1));
        Ok(())
    };
    assert_eq!(steady(call)?, 10);
    Ok(())
}

#[test]
fn calls_into_tensors_that_are_there_allocate_nothing() -> Result<()> {
    let device = Device::cpu();
    // These sizes are too small for more than one thread, and the counter sees only the calling thread.
    for (n, d) in [(1, 1), (3, 5), (16, 129)] {
        let x = Tensor::full(&device, 0.5, [n, d])?;
        let line = Tensor::full(&device, 0.5, [n * d])?;
        let mut row = Tensor::full(&device, 0.5, [n])?;
        let (mut out, mut flat, mut one) = (x.clone(), line.clone(), Tensor::full(&device, 0.5, ())?);
        let check = |name: &str, call: &mut dyn FnMut() -> Result<()>| -> Result<()> {
            let allocations = steady(call)?;
            assert_eq!(allocations, 0, "`{name}` of {n} rows of {d}");
            Ok(())
        };
        check("gate", &mut || gate::into(&mut flat, &line, &line, &line))?;
        check("scaled", &mut || scaled::into(&mut out, &mut row, &x, 2.0))?;
        check("decayed", &mut || decayed(&mut flat, &line, 0.1))?;
        check("total", &mut || total::into(&mut one, &line))?;
        let mut fewer = Tensor::full(&device, 0.5, [n, d - 1])?;
        check("steps", &mut || steps::into(&mut fewer, &x))?;
        let mut double = Tensor::full(&device, 0.5, [n, 2 * d])?;
        check("twice", &mut || twice::into(&mut double, &x))?;
        check("pairs", &mut || pairs::into(&mut out, &double))?;
        check("centred", &mut || centred::into(&mut out, &x))?;
    }
    Ok(())
}

#[test]
fn a_step_of_an_optimizer_allocates_nothing() -> Result<()> {
    let device = Device::cpu();
    let (weight, bias) = (Tensor::full(&device, 0.5, [30, 7])?, Tensor::full(&device, 0.5, [7])?);
    let mut params = Arena::new(&device, [("weight", &weight), ("bias", &bias)])?;
    let grads = Arena::new(&device, [("weight", &weight), ("bias", &bias)])?;
    let mut optimizer = Optimizer::new(AdamW::default(), &params)?;
    assert_eq!(steady(|| optimizer.step(&mut params, &grads))?, 0);
    Ok(())
}
