//! Tests of the executor and the CPU device, on handwritten plans.

mod plans;

use fusion_runtime::__private::{Arg, run, run_into, run_one};
use fusion_runtime::{Device, Error, Shape, Tensor};
use plans::{AXPY, BROADCAST, RELU};

/// Sizes around the vector, item, chunk and streaming limits.
const SIZES: [usize; 7] = [0, 1, 31, 33, 1025, 65_537, (16 << 20) + 3];

fn data(len: usize, seed: u32) -> Vec<f32> {
    (0..len as u32)
        .map(|i| (i.wrapping_mul(2_654_435_761).wrapping_add(seed) >> 8) as f32 / 8_388_608.0 - 1.0)
        .collect()
}

fn upload(values: &[f32], shape: impl Into<Shape>) -> Tensor<f32> {
    Tensor::from_slice(&Device::cpu(), values, shape).expect("there is memory")
}

fn relu(a: &Tensor<f32>, b: &Tensor<f32>, c: &Tensor<f32>) -> Result<Tensor<f32>, Error> {
    run_one(&RELU, &mut [Arg::from(a), Arg::from(b), Arg::from(c)])
}

fn axpy(y: &mut Tensor<f32>, x: &Tensor<f32>, alpha: f32) -> Result<(), Error> {
    let [] = run(&AXPY, &mut [Arg::from(y), Arg::from(x), Arg::from(alpha)])?;
    Ok(())
}

#[test]
fn relu_of_all_sizes_is_the_plain_loop() {
    for size in SIZES {
        let (a, b, c) = (data(size, 1), data(size, 2), data(size, 3));
        let got = relu(&upload(&a, size), &upload(&b, size), &upload(&c, size)).unwrap();
        assert_eq!(got.shape(), &[size]);
        let got = got.to_vec().unwrap();
        for i in 0..size {
            let expect = (a[i] + b[i]).max(0.0) * c[i];
            assert!(got[i] == expect, "element {i} of {size}: {} instead of {expect}", got[i]);
        }
    }
}

#[test]
fn any_shape_is_kept() {
    for shape in [Shape::from(()), Shape::from([2, 3, 1, 2, 1]), Shape::from([4, 0])] {
        let values = data(shape.count().unwrap(), 5);
        let x = upload(&values, &shape);
        assert_eq!(relu(&x, &x, &x).unwrap().shape(), &shape);
    }
}

#[test]
fn in_place_writes_the_tensor_and_no_clone_of_it() {
    for size in SIZES {
        let (x, y) = (data(size, 1), data(size, 2));
        let mut updated = upload(&y, size);
        let before = updated.clone();
        axpy(&mut updated, &upload(&x, size), 0.5).unwrap();
        assert_eq!(before.to_vec().unwrap(), y);
        let got = updated.to_vec().unwrap();
        // Halving is exact, so the sum is rounded once with and without fused multiply-add.
        assert!((0..size).all(|i| got[i] == 0.5 * x[i] + y[i]), "size {size}");
    }
}

#[test]
fn a_tensor_updated_from_its_own_clone() {
    let mut y = upload(&[1.0, 2.0, 3.0], 3);
    let x = y.clone();
    axpy(&mut y, &x, 2.0).unwrap();
    assert_eq!((y.to_vec().unwrap(), x.to_vec().unwrap()), (vec![3.0, 6.0, 9.0], vec![1.0, 2.0, 3.0]));
}

fn broadcast(x: &Tensor<f32>, bias: &mut Tensor<f32>, n: usize, fixed: usize) -> Result<Tensor<f32>, Error> {
    let fixed = upload(&vec![0.0; fixed], fixed);
    run_one(&BROADCAST, &mut [Arg::from(x), Arg::from(bias), Arg::from(n), Arg::from(&fixed)])
}

#[test]
fn steps_temporaries_and_replaced_parameters() {
    for (n, d) in [(0, 5), (5, 0), (1, 1), (3, 8), (7, 33), (1000, 100), (3, 65_537)] {
        let (x, b) = (data(n * d, 1), data(d, 2));
        let mut bias = upload(&b, d);
        let old = bias.clone();
        let z = broadcast(&upload(&x, [n, d]), &mut bias, n, 3).unwrap();
        assert_eq!(z.shape(), &[n, d]);
        let z = z.to_vec().unwrap();
        assert!((0..n * d).all(|i| z[i] == x[i] + 2.0 * b[i % d]), "{n} × {d}");
        assert_eq!(bias.to_vec().unwrap(), b.iter().map(|b| 2.0 * b).collect::<Vec<_>>());
        assert_eq!(old.to_vec().unwrap(), b);
    }
}

#[test]
fn into_writes_the_given_tensor_and_no_clone_of_it() {
    let x = upload(&[-1.0, 1.0, 2.0], 3);
    let mut out = Tensor::full(&Device::cpu(), 7.0f32, 3).unwrap();
    let shared = out.clone();
    for _ in 0..2 {
        run_into(&RELU, &mut [Arg::from(&x), Arg::from(&x), Arg::from(&x)], &mut [Arg::from(&mut out)])
            .unwrap();
        assert_eq!(out.to_vec().unwrap(), [0.0, 2.0, 8.0]);
    }
    assert_eq!(shared.to_vec().unwrap(), [7.0; 3]);
    let mut wrong = Tensor::full(&Device::cpu(), 7.0f32, 4).unwrap();
    let got =
        run_into(&RELU, &mut [Arg::from(&x), Arg::from(&x), Arg::from(&x)], &mut [Arg::from(&mut wrong)]);
    assert!(matches!(got, Err(Error::OutShape { .. })), "{got:?}");
}

fn check_error<T: std::fmt::Debug>(got: Result<T, Error>, expect: &str) {
    assert_eq!(got.expect_err("the arguments are wrong").to_string(), expect);
}

#[test]
fn errors_name_what_disagrees() {
    let (three, four) = (upload(&[0.0; 3], 3), upload(&[0.0; 4], 4));
    check_error(
        axpy(&mut three.clone(), &four, 1.0),
        "`axpy`: dim `N` is 3 in `y` but 4 in `x`; a dim has one extent per call",
    );
    check_error(
        axpy(&mut four.reshape([2, 2]).unwrap(), &four, 1.0),
        "`axpy`: `y` has dims [N], but its argument has shape [2, 2]; reshape it, or change the signature",
    );
    check_error(
        relu(&three, &three, &four),
        "`relu_add_mul`: `a` has shape [3] but `c` has [4]; name the dims (`x[N, D] + b[D]`) to broadcast",
    );
    let x = four.reshape([2, 2]).unwrap();
    check_error(
        broadcast(&x, &mut upload(&[0.0; 2], 2), 5, 3),
        "`broadcast`: dim `N` is 2 in `x` but 5 in `N`; a dim has one extent per call",
    );
    check_error(
        broadcast(&x, &mut upload(&[0.0; 2], 2), 2, 4),
        "`broadcast`: dim `C` of `fixed` must be 3, but its argument has 4 there",
    );
    let ints = Tensor::from_slice(&Device::cpu(), &[1i32, 2, 3], 3).unwrap();
    check_error(
        run::<1>(&RELU, &mut [Arg::from(&ints), Arg::from(&three), Arg::from(&three)]),
        "`a` of `relu_add_mul` is of f32, but a tensor of i32 was given; cast it, as in \
         `pub fn cast(x: i32[N]) -> f32[N] { x as f32 }`",
    );
}

#[test]
fn misuse_of_the_untyped_interface_is_an_error() {
    let x = upload(&[0.0; 3], 3);
    let wrong = [
        run::<1>(&RELU, &mut [Arg::from(&x)]).map(|_| ()),
        run::<1>(&RELU, &mut [Arg::from(&x), Arg::from(&x), Arg::from(1.0)]).map(|_| ()),
        run::<2>(&RELU, &mut [Arg::from(&x), Arg::from(&x), Arg::from(&x)]).map(|_| ()),
        run::<0>(&AXPY, &mut [Arg::from(&x), Arg::from(&x), Arg::from(1.0)]).map(|_| ()),
        run::<0>(&AXPY, &mut [Arg::from(&mut x.clone()), Arg::from(&x), Arg::from(3usize)]).map(|_| ()),
    ];
    for got in wrong {
        assert!(matches!(got, Err(Error::Argument { .. })), "{got:?}");
    }
}

#[test]
fn many_threads_share_tensors() {
    let x = upload(&data(100_000, 9), 100_000);
    let expect = relu(&x, &x, &x).unwrap().to_vec().unwrap();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..20 {
                    assert!(relu(&x, &x, &x).unwrap().to_vec().unwrap() == expect);
                }
            });
        }
    });
}

#[test]
fn every_instruction_set_and_streaming_agree() {
    // A process chooses the instruction set and streaming once, so the other tests run again in processes of
    // their own.
    let isas = ["base", "avx2", "avx512"].into_iter();
    for (isa, bytes) in isas.flat_map(|isa| [(isa, "0"), (isa, "1000000000")]) {
        let tests = ["relu_of_all_sizes", "steps_temporaries", "in_place_writes"];
        let mut command = std::process::Command::new(std::env::current_exe().unwrap());
        let limits = [("FUSION_CPU_ISA", isa), ("FUSION_CPU_STREAM_BYTES", bytes)];
        let output = command.args(tests).envs(limits).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && text.contains("3 passed"), "{limits:?}: {text}");
    }
}
