//! Optimizer steps over all parameters of a model move the expected bytes.

use fusion::optim::{Adam, AdamW, Arena, Lion, Optimizer, Precision};
use fusion::prelude::*;

use super::{number, total};

/// Creates an arena with GPT-2's proportions: 148 tensors, every third of them a matrix. Returns its elements
/// with padding.
fn model(device: &Device) -> Result<(Arena, u64)> {
    let shape = |i: usize| if i.is_multiple_of(3) { Shape::from([40 + i, 33]) } else { Shape::from([768]) };
    let tensors = (0..148).map(|i| Tensor::full(device, 0.5, shape(i))).collect::<Result<Vec<_>>>()?;
    let params = Arena::new(device, tensors.iter().enumerate().map(|(i, tensor)| (format!("p{i}"), tensor)))?;
    let elements = params.bytes() as u64 / 4;
    Ok((params, elements))
}

fn check(test: &str, launches: u64, bytes: [u64; 2], optimizer: fn(&Arena) -> Result<Optimizer>) {
    let elements = model(&Device::cpu()).expect("there is memory").1;
    let total = total(test, |device| {
        let (mut params, _) = model(device)?;
        let grads = params.zeros_like()?;
        optimizer(&params)?.step(&mut params, &grads)
    });
    if let Some(total) = total {
        let [found, loaded, stored] = ["launches", "loaded", "stored"].map(|key| number(&total, key));
        assert_eq!(found, launches, "{total}");
        // Each thread, with four elements, reads three numbers of the device, and the cache serves them: a
        // sector for each warp of 128 elements. The norm has partials.
        let numbers = 3 * elements;
        let few = if launches <= 2 { 0 } else { elements / 64 };
        let [least_loaded, least_stored] = bytes.map(|bytes| bytes * elements);
        assert!((least_loaded..=least_loaded + numbers + few).contains(&loaded), "{total}");
        assert!((least_stored..=least_stored + few).contains(&stored), "{total}");
        // Vectors of eight lanes, as with a narrow copy, take two accesses to half of each sector.
        if launches == 1 {
            let loaded = 32 * number(&total, "load_sectors");
            assert!((least_loaded..=least_loaded + 3 * elements / 4).contains(&loaded), "{total}");
        }
    }
}

#[test]
fn adamw_is_one_launch_of_twenty_eight_bytes() {
    let test = "optimizers::adamw_is_one_launch_of_twenty_eight_bytes";
    check(test, 1, [16, 12], |params| Optimizer::new(AdamW::default(), params));
}

#[test]
fn clipping_takes_two_launches_more() {
    let test = "optimizers::clipping_takes_two_launches_more";
    check(test, 3, [20, 12], |params| Ok(Optimizer::new(AdamW::default(), params)?.with_max_norm(1.0)));
}

#[test]
fn amsgrad_reads_one_more() {
    let test = "optimizers::amsgrad_reads_one_more";
    check(test, 1, [20, 16], |params| Optimizer::new(Adam { amsgrad: true, ..Adam::default() }, params));
}

/// One launch initialises the copy from the parameters, and one launch does the step, which reads the values
/// that it replaces.
#[test]
fn a_copy_is_written_by_the_launch_that_updates() {
    let test = "optimizers::a_copy_is_written_by_the_launch_that_updates";
    check(test, 2, [16 + 2 + 6, 12 + 2 + 2], |params| {
        Optimizer::new(AdamW::default(), params)?.with_copy::<bf16>(params)
    });
}

#[test]
fn clipping_takes_two_launches_more_with_a_copy() {
    let test = "optimizers::clipping_takes_two_launches_more_with_a_copy";
    check(test, 4, [20 + 2 + 6, 12 + 2 + 2], |params| {
        Optimizer::new(AdamW::default(), params)?.with_copy::<f16>(params).map(|one| one.with_max_norm(1.0))
    });
}

/// Copies are written by the step's launch for every rule and every precision of its state.
#[test]
fn copies_of_all_rules_are_written_by_the_launch_that_updates() {
    let test = "optimizers::copies_of_all_rules_are_written_by_the_launch_that_updates";
    check(test, 2, [12 + 2 + 6, 8 + 2 + 2], |params| {
        Optimizer::new(Lion::default(), params)?.with_copy::<bf16>(params)
    });
}

#[test]
fn averages_are_written_by_the_launch_that_updates() {
    let test = "optimizers::averages_are_written_by_the_launch_that_updates";
    // The launch that initialises the average reads two numbers for four elements.
    check(test, 4, [16 + 4 + 8 + 2, 8 + 4 + 4], |params| {
        let rule = AdamW { state: Precision::Bf16, ..AdamW::default() };
        Ok(Optimizer::new(rule, params)?.with_average(0.9, params)?.with_max_norm(1.0))
    });
}

/// Bytes of a 16-bit state: 4 of the parameter and 2 of each mean, read and written, and 4 of the gradient.
#[test]
fn states_of_16_bits_are_one_launch_of_twenty_bytes() {
    let test = "optimizers::states_of_16_bits_are_one_launch_of_twenty_bytes";
    check(test, 1, [12, 8], |params| {
        Optimizer::new(AdamW { state: Precision::Bf16, ..AdamW::default() }, params)
    });
}

#[test]
fn clipping_takes_two_launches_more_with_states_of_16_bits() {
    let test = "optimizers::clipping_takes_two_launches_more_with_states_of_16_bits";
    check(test, 3, [16, 8], |params| {
        let rule = AdamW { state: Precision::Bf16, ..AdamW::default() };
        Ok(Optimizer::new(rule, params)?.with_max_norm(1.0))
    });
}

/// Numbers of elements of tensors in blocks, and of one outside of blocks.
const IN_BLOCKS: u64 = 1 << 16;
const IN_NONE: u64 = 3 << 10;

/// Checks the traffic of a step with 8-bit states, and of launches that read all gradients once. A step is two
/// launches: blocks and small tensors have states of different types, so each has a kernel.
fn check_8_bits(test: &str, launches: u64, copied: u64, with: fn(Optimizer, &Arena) -> Result<Optimizer>) {
    let total = total(test, |device| {
        let [large, small] = [IN_BLOCKS, IN_NONE].map(|len| Tensor::full(device, 0.5, [len as usize]));
        let mut params = Arena::new(device, [("bias", &small?), ("weight", &large?)])?;
        let grads = params.zeros_like()?;
        let rule = AdamW { state: Precision::Bits8, ..AdamW::default() };
        with(Optimizer::new(rule, &params)?, &params)?.step(&mut params, &grads)
    });
    if let Some(total) = total {
        let [found, loaded, stored] = ["launches", "loaded", "stored"].map(|key| number(&total, key));
        assert_eq!(found, launches, "{total}");
        // Each element has 4 bytes of the parameter, 4 of its gradient, and 1 or 4 of each mean. Each block
        // has its units.
        let units = IN_BLOCKS / 64;
        let others = if launches == 2 { 0 } else { 4 * (IN_BLOCKS + IN_NONE) + 4096 };
        let least = 10 * IN_BLOCKS + 16 * IN_NONE + units + copied;
        // Each thread reads the units of its block and three global numbers, for four elements or more. The
        // launch that initialises a copy reads two, and a thread that writes a copy has fewer elements.
        let numbers = if copied == 0 { 5 } else { 9 } * (IN_BLOCKS + IN_NONE);
        assert!((least..=least + numbers + others).contains(&loaded), "{total}");
        let least = 6 * IN_BLOCKS + 12 * IN_NONE + units + copied;
        assert!((least..=least + others / 64).contains(&stored), "{total}");
    }
}

#[test]
fn states_of_8_bits_are_two_launches() {
    check_8_bits("optimizers::states_of_8_bits_are_two_launches", 2, 0, |optimizer, _| Ok(optimizer));
}

/// The third launch initialises the copy.
#[test]
fn a_copy_is_written_by_the_launches_that_update_8_bits() {
    let test = "optimizers::a_copy_is_written_by_the_launches_that_update_8_bits";
    check_8_bits(test, 3, 2 * 2 * (IN_BLOCKS + IN_NONE), |optimizer, params| {
        optimizer.with_copy::<bf16>(params)
    });
}

#[test]
fn clipping_takes_two_launches_more_with_8_bits() {
    let test = "optimizers::clipping_takes_two_launches_more_with_8_bits";
    check_8_bits(test, 4, 0, |optimizer, _| Ok(optimizer.with_max_norm(1.0)));
}

/// A skipped step reads the gradients for their norm, and nothing else of each element.
#[test]
fn skipped_steps_move_nothing() {
    let elements = model(&Device::cpu()).expect("there is memory").1;
    let total = total("optimizers::skipped_steps_move_nothing", |device| {
        let (mut params, _) = model(device)?;
        let mut grads = params.zeros_like()?;
        let shape = grads["p1"].shape().clone();
        grads.set("p1", &Tensor::full(device, f32::NAN, shape)?)?;
        Optimizer::new(AdamW::default(), &params)?.with_max_norm(1.0).step(&mut params, &grads)
    });
    if let Some(total) = total {
        let [loaded, stored] = ["loaded", "stored"].map(|key| number(&total, key));
        assert!((4 * elements..=7 * elements + 4096).contains(&loaded) && stored <= 4096, "{total}");
    }
}
