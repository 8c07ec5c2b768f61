//! Steps over all parameters of a model.

use fusion::optim::{Adam, AdamW, Arena, Lion, Optimizer, Precision};
use fusion::prelude::*;

use super::{number, total};

/// GPT-2's proportions: 148 tensors, of which every third is a matrix; elements with the room between them.
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
        // Of numbers on the device each thread reads some, which it shares with all of a warp, and blocks the parts of the norm.
        let few = if launches == 1 { 0 } else { elements / 8 };
        let [least_loaded, least_stored] = bytes.map(|bytes| bytes * elements);
        assert!((least_loaded..=least_loaded + elements + few).contains(&loaded), "{total}");
        assert!((least_stored..=least_stored + few).contains(&stored), "{total}");
        // Eight lanes, as beside a narrow copy, are two accesses to half of each sector.
        if launches == 1 {
            let loaded = 32 * number(&total, "load_sectors");
            assert!((least_loaded..=least_loaded + elements / 16).contains(&loaded), "{total}");
        }
    }
}

#[test]
fn adamw_is_one_launch_of_twenty_eight_bytes() {
    let test = "optimizers::adamw_is_one_launch_of_twenty_eight_bytes";
    check(test, 1, [16, 12], |params| Optimizer::new(AdamW::default(), params));
}

#[test]
fn a_clipped_step_is_two_launches() {
    let test = "optimizers::a_clipped_step_is_two_launches";
    check(test, 2, [20, 12], |params| Ok(Optimizer::new(AdamW::default(), params)?.with_max_norm(1.0)));
}

#[test]
fn amsgrad_reads_one_more() {
    let test = "optimizers::amsgrad_reads_one_more";
    check(test, 1, [20, 16], |params| Optimizer::new(Adam { amsgrad: true, ..Adam::default() }, params));
}

/// One launch to begin with the parameters and one for the step, which reads what it replaces; no other pass.
#[test]
fn a_copy_is_written_by_the_launch_that_updates() {
    let test = "optimizers::a_copy_is_written_by_the_launch_that_updates";
    check(test, 2, [16 + 2 + 6, 12 + 2 + 2], |params| {
        Optimizer::new(AdamW::default(), params)?.with_copy::<bf16>(params)
    });
}

#[test]
fn clipping_takes_one_launch_more_with_a_copy() {
    let test = "optimizers::clipping_takes_one_launch_more_with_a_copy";
    check(test, 3, [20 + 2 + 6, 12 + 2 + 2], |params| {
        Optimizer::new(AdamW::default(), params)?.with_copy::<f16>(params).map(|one| one.with_max_norm(1.0))
    });
}

/// Whatever the rule, and the precision of its state.
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
    check(test, 3, [16 + 4 + 8, 8 + 4 + 4], |params| {
        let rule = AdamW { state: Precision::Bf16, ..AdamW::default() };
        Ok(Optimizer::new(rule, params)?.with_average(0.9, params)?.with_max_norm(1.0))
    });
}

/// 4 of the parameter and 2 of each mean, read and written, and 4 of the gradient.
#[test]
fn states_of_16_bits_are_one_launch_of_twenty_bytes() {
    let test = "optimizers::states_of_16_bits_are_one_launch_of_twenty_bytes";
    check(test, 1, [12, 8], |params| {
        Optimizer::new(AdamW { state: Precision::Bf16, ..AdamW::default() }, params)
    });
}

#[test]
fn clipping_takes_one_launch_more_with_states_of_16_bits() {
    let test = "optimizers::clipping_takes_one_launch_more_with_states_of_16_bits";
    check(test, 2, [16, 8], |params| {
        let rule = AdamW { state: Precision::Bf16, ..AdamW::default() };
        Ok(Optimizer::new(rule, params)?.with_max_norm(1.0))
    });
}

/// 4 of the parameter, 4 of its gradient and 1 of each mean, and units of blocks.
#[test]
fn states_of_8_bits_are_one_launch_of_sixteen_bytes() {
    const LEN: u64 = 1 << 16;
    let total = total("optimizers::states_of_8_bits_are_one_launch_of_sixteen_bytes", |device| {
        let mut params = Arena::new(device, [("p", &Tensor::full(device, 0.5, [LEN as usize])?)])?;
        let grads = params.zeros_like()?;
        let rule = AdamW { state: Precision::Bits8, ..AdamW::default() };
        Optimizer::new(rule, &params)?.step(&mut params, &grads)
    });
    if let Some(total) = total {
        let [launches, loaded, stored] = ["launches", "loaded", "stored"].map(|key| number(&total, key));
        assert_eq!(launches, 1, "{total}");
        let units = 8 * LEN / 256;
        // Each thread reads the units of its block and the three numbers of all, for four elements or more.
        assert!((10 * LEN + units..=10 * LEN + 5 * LEN).contains(&loaded), "{total}");
        assert_eq!(stored, 6 * LEN + units, "{total}");
    }
}
