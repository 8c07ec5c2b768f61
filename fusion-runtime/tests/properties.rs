//! Properties of shapes, tensors and the executor, for random sizes and values.

#[path = "../../tests/devices/mod.rs"]
mod devices;
mod plans;

use fusion_runtime::__private::{Arg, run, run_one};
use fusion_runtime::{Device, Error, Shape, Tensor};
use plans::{AXPY, BROADCAST};
use proptest::prelude::*;
use proptest::test_runner::RngSeed;

fn upload(values: &[f32], shape: impl Into<Shape>) -> Tensor<f32> {
    Tensor::from_slice(&Device::cpu(), values, shape).expect("there is memory")
}

proptest! {
    // A fixed seed gives the same cases in every run.
    #![proptest_config(ProptestConfig {
        cases: 200,
        rng_seed: RngSeed::Fixed(1),
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn count_is_the_product_where_that_fits(extents in prop::collection::vec(0usize..1 << 22, 0..7)) {
        let wide = extents.iter().fold(1u128, |count, &extent| count.saturating_mul(extent as u128));
        let expect = if extents.contains(&0) { Some(0) } else { usize::try_from(wide).ok() };
        prop_assert_eq!(Shape::from(extents).count(), expect);
    }

    #[test]
    fn every_bit_survives_the_device(bits in prop::collection::vec(any::<u32>(), 0..500)) {
        let values: Vec<f32> = bits.iter().map(|&bits| f32::from_bits(bits)).collect();
        for (kind, device) in devices::devices() {
            let tensor = Tensor::from_slice(&device, &values, values.len()).expect("there is memory");
            let back = tensor.reshape([values.len(), 1]).unwrap().to_vec().unwrap();
            prop_assert_eq!(back.iter().map(|x| x.to_bits()).collect::<Vec<_>>(), &bits[..], "{:?}", kind);
        }
    }

    #[test]
    fn broadcasting_is_the_double_loop(n in 0usize..40, d in 0usize..40, x in -1e3f32..1e3, b in -1e3f32..1e3) {
        let xs: Vec<f32> = (0..n * d).map(|i| x * i as f32).collect();
        let bs: Vec<f32> = (0..d).map(|i| b - i as f32).collect();
        let (tensor, mut bias, fixed) = (upload(&xs, [n, d]), upload(&bs, d), upload(&[0.0; 3], 3));
        let args = &mut [Arg::from(&tensor), Arg::from(&mut bias), Arg::from(n), Arg::from(&fixed)];
        let z = run_one::<f32>(&BROADCAST, args).unwrap().to_vec().unwrap();
        for row in 0..n {
            for col in 0..d {
                prop_assert_eq!(z[row * d + col], xs[row * d + col] + 2.0 * bs[col]);
            }
        }
    }

    #[test]
    fn arguments_of_any_extents_run_or_are_refused(n in 0usize..5, m in 0usize..5, rank in 0usize..3) {
        let mut y = upload(&vec![1.0; n], n);
        let x = upload(&vec![2.0; m], m);
        let x = match rank { 0 => x, 1 => x.reshape([1, m]).unwrap(), _ => x.reshape([m, 1]).unwrap() };
        let got = run::<0>(&AXPY, &mut [Arg::from(&mut y), Arg::from(&x), Arg::from(3.0f32)]);
        match got {
            Ok([]) => prop_assert!(rank == 0 && n == m),
            Err(Error::Rank { .. }) => prop_assert!(rank > 0),
            Err(Error::Extent { .. }) => prop_assert!(rank == 0 && n != m),
            Err(other) => prop_assert!(false, "{other}"),
        }
        let expect = if rank == 0 && n == m { 7.0 } else { 1.0 };
        prop_assert_eq!(y.to_vec().unwrap(), vec![expect; n]);
    }
}
