//! Kernels move as little memory as fusion promises, as the simulated GPU counts it.

mod banks;
#[path = "../devices/mod.rs"]
mod devices;
mod long;
mod once;
mod optimizers;
mod unstaged;
mod windows;

use std::process::Command;

use devices::Kind;
use fusion::prelude::*;

fuse! {
    /// Three reads, one write.
    pub fn gate(a: f32[N], b: f32[N], c: f32[N]) -> f32[N] { relu(a + b) * c }

    /// Five reads and three writes.
    #[fuse(off)]
    pub fn gate_unfused(a: f32[N], b: f32[N], c: f32[N]) -> f32[N] { relu(a + b) * c }

    /// A transpose: a read and a write.
    pub fn transposed(x: f32[N, D]) -> f32[D, N] { x }
    /// A transpose where few elements of the inner dim are contiguous.
    pub fn apart(x: f32[B, N, K]) -> f32[B, K, N] { x }
    /// Two reads, one of them transposed.
    pub fn keys(x: f16[B, T, H, D], y: f16[B, H, D, T]) -> f16[B, H, D, T] { x + y }

    /// Two reads of one-byte elements, one of them transposed.
    pub fn bytes(x: u8[N, D], y: u8[D, N]) -> u8[D, N] { x + y }

    /// A read.
    pub fn row_sums(x: f32[N, D]) -> f32[N] { sum(x, D) }

    /// Two reads, one of them shifted by an element.
    pub fn roughness(x: f32[N, T]) -> f32[N] { sum(square(slice(x, T -> S, 1..) - slice(x, T -> S, ..T - 1)), S) }

    /// A read in each pass, and a write.
    pub fn softmax_rows(x: f32[N, D]) -> f32[N, D] {
        let e = exp(x - max(x, D));
        e / sum(e, D)
    }

    /// A read in each pass, a write, and two reads of tensors that all rows share.
    pub fn layer_norm(x: f32[N, D], gamma: f32[D], beta: f32[D], eps: f32) -> f32[N, D] {
        let mu = mean(x, D);
        let var = mean(square(x - mu), D);
        (x - mu) * rsqrt(var + eps) * gamma + beta
    }

    /// Statistics over all but the innermost dim.
    pub fn batch(x: f32[N, H, W, C]) -> f32[N, H, W, C] { batch_norm(x, (N, H, W)) }

    /// A read and a write over rows of several dims, and two parameters of each channel.
    pub fn group_norm_of_channels(x: f32[N, C, H, W], gamma: f32[C], beta: f32[C]) -> f32[N, C, H, W] {
        group_norm(x, C, 8, (H, W)) * gamma + beta
    }

    /// Rows side by side, and a mask that all of them share.
    pub fn masked(x: f32[N, S, H], m: f32[N, S]) -> f32[N, S, H] { softmax(x + m, S) }
    /// Rows side by side with a shared mask, whose elements are not stored.
    pub fn largest(x: f32[N, S, H], m: f32[N, S]) -> f32[N, H] { max(x * m, S) }

    /// A read and a write over rows side by side.
    pub fn softmax_columns(x: f32[N, D]) -> f32[N, D] { softmax(x, N) }

    /// A read.
    pub fn logs_of_columns(x: f32[N, D]) -> f32[D] { logsumexp(x, N) }

    /// Three reads over columns, and two parameters of each row.
    pub fn layer_norm_columns(x: f32[N, D], gamma: f32[D], beta: f32[D]) -> f32[N, D] {
        let y = x - mean(x, N);
        y * rsqrt(mean(square(y), N) + 1e-5) * gamma + beta
    }
}

fuse! {
    /// Two results of one row.
    pub fn everything(x: f32[N]) -> (f32[], f32[]) { (sum(x), max(x)) }

    /// A sum of each of a few columns.
    pub fn column_sums(x: f32[N, C]) -> f32[C] { sum(x * 0.5, N) }

    /// A reduction that needs the mean.
    pub fn variance(x: f32[N]) -> f32[] { var(x) }

    /// A reduction that needs the maximum.
    pub fn logs(x: f32[N]) -> f32[] { logsumexp(x) }

    /// Elements that need the maximum and the sum.
    pub fn shares(x: f32[N]) -> f32[N] { softmax(x, N) }

    /// Elements that need the mean.
    pub fn standard(x: f32[N]) -> f32[N] { layer_norm(x, N) }

    /// A reduction over the sum of two inputs, which is a result, too.
    pub fn residual(x: f32[N, D], r: f32[N, D], gamma: f32[D]) -> (f32[N, D], f32[N, D]) {
        let h = x + r;
        (h, rms_norm(h, D) * gamma)
    }

    /// Elements updated in place.
    pub fn clipped(p: &mut f32[N], most: f32) { p *= min(1.0, most / norm(p)); }

    /// A logit of each row, and a reduction over all logits.
    pub fn losses(x: f32[N, D], class: i32[N]) -> f32[N] { cross_entropy(x, D, class) }

    /// A read and a write, and three reads of tensors that all rows share.
    pub fn biased(x: f32[N, D], bias: f32[D], gamma: f32[D], beta: f32[D]) -> f32[N, D] {
        layer_norm(gelu(x + bias), D) * gamma + beta
    }

    /// A read and a write, and one read of a tensor that all rows share.
    pub fn scaled(x: f32[N, D], gamma: f32[D]) -> f32[N, D] { rms_norm(x, D) * gamma }

    /// Two reads and a write.
    pub fn product(x: f16[M, K], w: f16[N, K]) -> f32[M, N] { matmul(x, w, K) }

    /// Three reads and a write.
    pub fn layer(x: f32[M, K], w: f32[K, N], b: f32[M, N]) -> f32[M, N] { relu(matmul(x, w, K) + b) }

    /// A place, which follows from another reduction.
    pub fn peak(x: f32[N]) -> i32[] { argmax(x, N) }
}

/// Environment variable that marks the process that runs the kernels.
const CHILD: &str = "FUSION_TRAFFIC";

/// Parses a number from a line of the report.
fn number(line: &str, key: &str) -> u64 {
    let value = line.split(' ').find_map(|word| word.strip_prefix(key)?.strip_prefix('='));
    value.and_then(|value| value.parse().ok()).unwrap_or_else(|| panic!("no {key} in {line}"))
}

/// Returns the bytes loaded and stored and the sectors of 32 bytes touched by all launches of `test`, in a
/// process of its own. Returns none in that process itself, or without a simulated GPU.
fn measured(test: &str, body: impl FnOnce(&Device) -> Result<()>) -> Option<[u64; 4]> {
    let total = total(test, body)?;
    Some(["loaded", "stored", "load_sectors", "store_sectors"].map(|key| number(&total, key)))
}

/// Returns the reported totals of all launches of `test`.
fn total(test: &str, body: impl FnOnce(&Device) -> Result<()>) -> Option<String> {
    let text = reported(test, body)?;
    Some(text.lines().find(|line| line.starts_with("total ")).expect("the process ended").into())
}

/// Returns the report on each launch of `test`, and on all of them.
fn reported(test: &str, body: impl FnOnce(&Device) -> Result<()>) -> Option<String> {
    let device = Kind::Cuda.open()?;
    if std::env::var_os(CHILD).is_some() {
        body(&device).and_then(|()| device.synchronize()).unwrap_or_else(|error| panic!("{error}"));
        return None;
    }
    if !device.name().starts_with("CUDA simulator") {
        eprintln!("SKIPPED: only the simulated GPU counts what it moves");
        return None;
    }
    let report = std::env::temp_dir().join(format!("fusion-traffic-{test}-{}.txt", std::process::id()));
    let mut command = Command::new(std::env::current_exe().expect("it runs"));
    command.args(["--exact", test]).env(CHILD, "1").env("CUDA_SIM_REPORT", &report);
    let child = command.output().expect("it starts");
    assert!(child.status.success(), "{}", String::from_utf8_lossy(&child.stdout));
    let text = std::fs::read_to_string(&report).expect("it was written");
    std::fs::remove_file(&report).expect("it was written");
    Some(text)
}

fn inputs(device: &Device, n: usize) -> Result<[Tensor<f32>; 3]> {
    let elements: Vec<f32> = (0..n).map(|i| i as f32 * 1e-3 - 400.0).collect();
    let tensor = || Tensor::from_slice(device, &elements, n);
    Ok([tensor()?, tensor()?, tensor()?])
}

/// Number of elements of a part of a long row.
const PART: usize = 8192;
const MILLION: usize = 1_000_000;

#[test]
fn a_fused_gate_moves_sixteen_bytes_for_each_element() {
    let moved = measured("a_fused_gate_moves_sixteen_bytes_for_each_element", |device| {
        let [a, b, c] = inputs(device, MILLION)?;
        let result = gate(&a, &b, &c)?.to_vec()?;
        assert_eq!(result[MILLION - 1], 2.0 * (999_999_f32 * 1e-3 - 400.0) * (999_999_f32 * 1e-3 - 400.0));
        Ok(())
    });
    if let Some(moved) = moved {
        let n = MILLION as u64;
        assert_eq!(moved, [12 * n, 4 * n, 12 * n / 32, 4 * n / 32], "full sectors, each once");
    }
}

#[test]
fn an_unfused_gate_moves_twice_as_much() {
    let moved = measured("an_unfused_gate_moves_twice_as_much", |device| {
        let [a, b, c] = inputs(device, 32_000)?;
        gate_unfused(&a, &b, &c).map(|_| ())
    });
    if let Some([loaded, stored, load_sectors, store_sectors]) = moved {
        // Three launches: two reads and a write, one and one, two and one.
        assert_eq!((loaded, stored), (5 * 4 * 32_000, 3 * 4 * 32_000));
        assert_eq!((load_sectors, store_sectors), (loaded / 32, stored / 32));
    }
}

/// A view that begins within a sector costs further sectors, not correctness. The sector count makes this
/// visible.
#[test]
fn sectors_are_those_touched() {
    let moved = measured("sectors_are_those_touched", |device| {
        let [a, b, c] = inputs(device, 3)?;
        gate(&a, &b, &c).map(|_| ())
    });
    if let Some(moved) = moved {
        let [loaded, stored, load_sectors, store_sectors] = moved;
        assert_eq!((loaded, stored), (36, 12));
        assert!((3..=9).contains(&load_sectors) && (1..=3).contains(&store_sectors), "{moved:?}");
    }
}

const ROWS: usize = 64;
const COLS: usize = 1024;

/// Returns the launches and the bytes that a report states for a call on the simulated GPU.
fn told(report: Report, extents: &[(&str, usize)]) -> Result<[u64; 2]> {
    let Some(device) = Kind::Cuda.open() else { return Ok([0; 2]) };
    let report = report.on(&device)?.bind(extents)?;
    Ok([report.launches().map(|count| count as u64), report.bytes()]
        .map(|number| number.expect("all are given")))
}

/// Checks that a function of rows reads and writes as many bytes as given, in full sectors.
fn check_rows(test: &str, bytes: [u64; 2], call: fn(&Tensor<f32>, &[Tensor<f32>; 2]) -> Result<()>) {
    let moved = measured(test, |device| {
        let elements: Vec<f32> = (0..ROWS * COLS).map(|i| (i % 97) as f32 * 0.125 - 6.0).collect();
        let x = Tensor::from_slice(device, &elements, [ROWS, COLS])?;
        call(&x, &[Tensor::full(device, 2.0, [COLS])?, Tensor::full(device, 0.5, [COLS])?])
    });
    if let Some(moved) = moved {
        let [loaded, stored] = bytes;
        assert_eq!(moved, [loaded, stored, loaded / 32, stored / 32]);
    }
}

const X: u64 = 4 * (ROWS * COLS) as u64;

/// A product whose result is one tile moves the bytes that its report states, in full sectors.
#[test]
fn a_tile_of_a_product_reads_its_factors_once() {
    let moved = measured("a_tile_of_a_product_reads_its_factors_once", |device| {
        let half = |shape| Tensor::full(device, f16::from_f32(1.0), shape);
        product(&half([64, 128])?, &half([64, 128])?).map(|_| ())
    });
    if let Some(moved) = moved {
        let [launches, bytes] =
            told(product::report(), &[("M", 64), ("N", 64), ("K", 128)]).expect("a report");
        assert_eq!((launches, bytes), (1, moved[0] + moved[1]));
        assert_eq!([moved[2], moved[3]], [moved[0] / 32, moved[1] / 32]);
    }
}

/// The same for elements of each thread and an epilogue that reads.
#[test]
fn a_tile_of_a_layer_reads_its_tensors_once() {
    let moved = measured("a_tile_of_a_layer_reads_its_tensors_once", |device| {
        let tensor = |shape| Tensor::full(device, 1.0, shape);
        layer(&tensor([64, 128])?, &tensor([128, 64])?, &tensor([64, 64])?).map(|_| ())
    });
    if let Some(moved) = moved {
        let [launches, bytes] = told(layer::report(), &[("M", 64), ("N", 64), ("K", 128)]).expect("a report");
        assert_eq!((launches, bytes), (1, moved[0] + moved[1]));
        assert_eq!([moved[2], moved[3]], [moved[0] / 32, moved[1] / 32]);
    }
}

#[test]
fn a_row_sum_reads_each_element_once() {
    let moved = measured("a_row_sum_reads_each_element_once", |device| {
        row_sums(&Tensor::full(device, 1.0, [ROWS, COLS])?).map(|_| ())
    });
    if let Some(moved) = moved {
        // A warp has two rows and writes their results together: a sector for each eight bytes.
        assert_eq!(moved, [X, 4 * ROWS as u64, X / 32, ROWS as u64 / 2]);
    }
}

/// Transposed operands are read by whole sectors, too. Each element of the small tensor may take a sector of
/// its own.
#[test]
fn transposed_elements_are_read_side_by_side() {
    let moved = measured("transposed_elements_are_read_side_by_side", |device| {
        transposed(&Tensor::full(device, 1.0, [ROWS, COLS])?)?;
        let (heads, rows) = ([2, 64, 4, 32], [2, 4, 32, 64]);
        keys(
            &Tensor::full(device, f16::from_f32(1.0), heads)?,
            &Tensor::full(device, f16::from_f32(2.0), rows)?,
        )?;
        transposed(&Tensor::full(device, 1.0, [4, 13])?)?;
        // Rows of one element have the same order in both tensors.
        transposed(&Tensor::full(device, 1.0, [ROWS * COLS, 1])?).map(|_| ())
    });
    if let Some([loaded, stored, load_sectors, store_sectors]) = moved {
        let (half, few) = (2 * 2 * 64 * 4 * 32, 4 * 4 * 13);
        assert_eq!((loaded, stored), (2 * X + 2 * half + few, 2 * X + half + few));
        // In the last tensor, each of a thread's four loads requests the sectors of the whole warp.
        let at_least = (X + 4 * X + 2 * half) / 32;
        assert!((at_least..=at_least + 4 * 13).contains(&load_sectors), "{load_sectors} sectors");
        let at_least = (2 * X + half) / 32;
        assert!((at_least..=at_least + 13).contains(&store_sectors), "{store_sectors} sectors");
    }
}

/// Few unaligned narrow elements share a sector in either direction. A warp that reads both ways takes 20
/// sectors, one that reads 32 elements of one way 65, and one that reads none across 34.
#[test]
fn bytes_that_are_no_vectors_are_read_both_ways() {
    let moved = measured("bytes_that_are_no_vectors_are_read_both_ways", |device| {
        bytes(&Tensor::full(device, 1_u8, [255, 256])?, &Tensor::full(device, 2_u8, [256, 255])?).map(|_| ())
    });
    if let Some([_, _, load_sectors, store_sectors]) = moved {
        let warps = 255 * 256 / 32;
        let sectors = load_sectors + store_sectors;
        assert!((16 * warps..=24 * warps).contains(&sectors), "{sectors} sectors of {warps} warps");
    }
}

/// The next elements in memory are the next ones to be written if the innermost dim has one element.
#[test]
fn elements_that_lie_alone_are_read_in_order() {
    let moved = measured("elements_that_lie_alone_are_read_in_order", |device| {
        apart(&Tensor::full(device, 1.0, [64, 63, 1])?).map(|_| ())
    });
    if let Some([loaded, _, load_sectors, _]) = moved {
        assert_eq!(loaded, 4 * 64 * 63);
        assert!((loaded / 32..=loaded / 32 * 5 / 4).contains(&load_sectors), "{load_sectors} sectors");
    }
}

/// The threads of a row read neighbouring elements, with at most one further sector for each warp and read.
#[test]
fn a_sum_along_slices_reads_rows_side_by_side() {
    let moved = measured("a_sum_along_slices_reads_rows_side_by_side", |device| {
        roughness(&Tensor::full(device, 1.0, [ROWS, COLS])?).map(|_| ())
    });
    if let Some([loaded, _, sectors, _]) = moved {
        assert_eq!(loaded, 2 * (X - 4 * ROWS as u64));
        assert!(
            (loaded / 32..=loaded / 32 * 5 / 4 + 2 * ROWS as u64).contains(&sectors),
            "{sectors} sectors"
        );
    }
}

#[test]
fn a_softmax_reads_each_element_once() {
    let bytes = [X, X];
    check_rows("a_softmax_reads_each_element_once", bytes, |x, _| softmax_rows(x).map(|_| ()));
}

#[test]
fn a_layer_norm_reads_each_element_once_and_its_parameters_for_each_row() {
    check_rows(
        "a_layer_norm_reads_each_element_once_and_its_parameters_for_each_row",
        [3 * X, X],
        |x, [gamma, beta]| layer_norm(x, gamma, beta, 1e-5).map(|_| ()),
    );
}

#[test]
fn a_group_norm_reads_each_element_once() {
    let [n, c, h, w] = [4, 64, 16, 16];
    let moved = measured("a_group_norm_reads_each_element_once", |device| {
        let [gamma, beta] = [2.0, 0.5].map(|value| Tensor::full(device, value, [c]));
        group_norm_of_channels(&Tensor::full(device, 1.0, [n, c, h, w])?, &gamma?, &beta?).map(|_| ())
    });
    if let Some([loaded, stored, load_sectors, store_sectors]) = moved {
        let x = 4 * (n * c * h * w) as u64;
        // Each group of four elements has two parameters. A warp's parameters take one sector or two.
        assert_eq!([loaded, stored, store_sectors], [x + x / 2, x, x / 32]);
        assert!(load_sectors <= x / 32 + 4 * x / 512, "{load_sectors} sectors");
    }
}

#[test]
fn a_softmax_over_columns_reads_each_element_once() {
    check_columns("a_softmax_over_columns_reads_each_element_once", [ROWS, COLS], 1);
}

/// Each thread traverses a short column by itself.
#[test]
fn a_softmax_over_short_columns_reads_each_element_twice() {
    check_columns("a_softmax_over_short_columns_reads_each_element_twice", [16, COLS], 2);
}

/// Each thread of a column reads its parameters, for eight columns at once.
#[test]
fn a_layer_norm_over_columns_reads_each_element_once() {
    let moved = measured("a_layer_norm_over_columns_reads_each_element_once", |device| {
        let [gamma, beta] = [2.0, 0.5].map(|value| Tensor::full(device, value, [COLS]));
        layer_norm_columns(&Tensor::full(device, 1.0, [ROWS, COLS])?, &gamma?, &beta?).map(|_| ())
    });
    if let Some(moved) = moved {
        let parameters = 2 * 4 * 32 * COLS as u64;
        // Each warp has four threads of a column.
        assert_eq!(moved, [X + parameters, X, X / 32 + parameters / 32 / 4, X / 32]);
    }
}

/// The four elements of eight columns that a warp reads at once share one sector of the mask.
#[test]
fn a_masked_softmax_over_columns_reads_side_by_side() {
    let [n, s, h] = [4, 128, 256];
    let test = "a_masked_softmax_over_columns_reads_side_by_side";
    let moved = measured(test, |device| {
        masked(&Tensor::full(device, 1.0, [n, s, h])?, &Tensor::full(device, 0.5, [n, s])?).map(|_| ())
    });
    if let Some([_, stored, load_sectors, store_sectors]) = moved {
        let x = 4 * (n * s * h) as u64;
        assert_eq!([stored, store_sectors], [x, x / 32]);
        assert_eq!(load_sectors, x / 32 * 5 / 4);
        assert_eq!(
            told(masked::report(), &[("N", n), ("S", s), ("H", h)]).map(|[launches, _]| launches),
            Ok(1)
        );
    }
}

#[test]
fn a_masked_maximum_of_columns_reads_side_by_side() {
    let [n, s, h] = [4, 128, 256];
    let moved = measured("a_masked_maximum_of_columns_reads_side_by_side", |device| {
        largest(&Tensor::full(device, 1.0, [n, s, h])?, &Tensor::full(device, 0.5, [n, s])?).map(|_| ())
    });
    if let Some([.., load_sectors, _]) = moved {
        assert_eq!(load_sectors, (n * s * h) as u64 / 8 * 5 / 4);
    }
}

/// A block stages the sum of both inputs, which is as long as a row of 96 KiB.
#[test]
fn a_residual_and_its_norm_read_each_element_once() {
    let (n, d) = (2, STAGED);
    let moved = measured("a_residual_and_its_norm_read_each_element_once", |device| {
        let [x, r] = [1.0, 0.5].map(|value| Tensor::full(device, value, [n, d]));
        residual(&x?, &r?, &Tensor::full(device, 2.0, [d])?).map(|_| ())
    });
    if let Some(moved) = moved {
        let row = 4 * d as u64;
        assert_eq!(moved, [6 * row, 4 * row, 6 * row / 32, 4 * row / 32]);
    }
}

/// Asserts the number of reads of each element in a softmax of columns, in full sectors, and that the report
/// states it.
fn check_columns(test: &str, [n, d]: [usize; 2], times: u64) {
    let moved = measured(test, |device| softmax_columns(&Tensor::full(device, 1.0, [n, d])?).map(|_| ()));
    if let Some(moved) = moved {
        let bytes = 4 * (n * d) as u64;
        assert_eq!(moved, [times * bytes, bytes, times * bytes / 32, bytes / 32]);
        assert_eq!(told(softmax_columns::report(), &[("N", n), ("D", d)]), Ok([1, (times + 1) * bytes]));
    }
}

/// Teams stage few long columns, eight neighbouring columns together, which is one sector of memory.
#[test]
fn long_columns_are_read_once_and_side_by_side() {
    check_columns("long_columns_are_read_once_and_side_by_side", [1024, 256], 1);
}

/// Columns without stored elements have teams, too. One thread for each column would leave most of a GPU
/// idle.
#[test]
fn few_columns_have_many_threads() {
    let (n, d) = (1024, 256);
    let text = reported("few_columns_have_many_threads", |device| {
        logs_of_columns(&Tensor::full(device, 1.0, [n, d])?).map(|_| ())
    });
    if let Some(text) = text {
        let (launch, bytes) = (text.lines().next().expect("it was launched"), (4 * n * d) as u64);
        assert!(launch.contains(" grid=32x1x1 block=256x1x1 "), "{launch}");
        let moved = ["loaded", "load_sectors"].map(|key| number(launch, key));
        assert_eq!(moved, [bytes, bytes / 32]);
    }
}

/// Columns too long to stage are read twice.
#[test]
fn longer_columns_are_read_twice_and_side_by_side() {
    check_columns("longer_columns_are_read_twice_and_side_by_side", [8000, 24], 2);
}

/// A team stages each column if there are fewer than eight. Its threads' accesses are then strided.
#[test]
fn few_long_columns_are_read_once() {
    let (n, d) = (5000, 3);
    let moved = measured("few_long_columns_are_read_once", |device| {
        softmax_columns(&Tensor::full(device, 1.0, [n, d])?).map(|_| ())
    });
    if let Some([loaded, stored, ..]) = moved {
        assert_eq!([loaded, stored], [4 * (n * d) as u64; 2]);
    }
}

/// Number of elements of the longest row that must be read once, because a block stages it.
const STAGED: usize = 24 << 10;

/// Asserts that a function of rows is one kernel that reads and writes each element once, and moves at most
/// `beside` other bytes.
fn check_staged(
    test: &str,
    report: Report,
    (stored, beside): (u64, u64),
    call: fn(&Tensor<f32>) -> Result<()>,
) {
    let (n, row) = (2, 4 * STAGED as u64);
    let total = total(test, |device| call(&Tensor::full(device, 1.0, [n, STAGED])?));
    if let Some(total) = total {
        let [launches, loaded, written] = ["launches", "loaded", "stored"].map(|key| number(&total, key));
        assert_eq!([launches, written], [1, stored], "{test}");
        assert!((2 * row..=2 * row + beside).contains(&loaded), "{test}: {loaded} bytes of {}", 2 * row);
        let told = told(report, &[("N", n), ("D", STAGED)]);
        assert!(
            told.is_ok_and(|[launches, bytes]| launches == 1 && bytes <= 2 * row + beside + stored),
            "{test}"
        );
    }
}

const ALL: u64 = 8 * STAGED as u64;

#[test]
fn long_rows_are_read_once_by_a_softmax() {
    let name = "long_rows_are_read_once_by_a_softmax";
    check_staged(name, softmax_rows::report(), (ALL, 0), |x| softmax_rows(x).map(|_| ()));
}

/// The cache serves the bias and the weight, which are read for each row.
#[test]
fn long_rows_are_read_once_by_a_layer_norm_of_gelu() {
    let name = "long_rows_are_read_once_by_a_layer_norm_of_gelu";
    check_staged(name, biased::report(), (ALL, 3 * ALL), |x| {
        let of_columns = |value| Tensor::full(x.device(), value, [STAGED]);
        biased(x, &of_columns(0.5)?, &of_columns(2.0)?, &of_columns(0.25)?).map(|_| ())
    });
}

#[test]
fn long_rows_are_read_once_by_an_rms_norm() {
    let name = "long_rows_are_read_once_by_an_rms_norm";
    check_staged(name, scaled::report(), (ALL, ALL), |x| {
        scaled(x, &Tensor::full(x.device(), 2.0, [STAGED])?).map(|_| ())
    });
}

/// Each thread reads the class of its row.
#[test]
fn long_rows_are_read_once_by_a_cross_entropy() {
    let name = "long_rows_are_read_once_by_a_cross_entropy";
    check_staged(name, losses::report(), (8, 2 * 1024 * 4 * 2), |x| {
        losses(x, &Tensor::from_slice(x.device(), &[7, 0], [2])?).map(|_| ())
    });
}

/// Number of elements of a row too long for a block to stage, and too short for three kernels.
const UNSTAGED: usize = (1 << 16) - 8;

/// The class's logit, the maximum and the sum of exponentials are computed in one pass, for each part and
/// then for each row.
#[test]
fn a_cross_entropy_of_long_rows_reads_each_logit_once() {
    let total = total("a_cross_entropy_of_long_rows_reads_each_logit_once", |device| {
        let class = Tensor::from_slice(device, &[7, 0], [2])?;
        losses(&Tensor::full(device, 1.0, [2, UNSTAGED])?, &class).map(|_| ())
    });
    if let Some(total) = total {
        let (bytes, parts) = (8 * UNSTAGED as u64, UNSTAGED.div_ceil(PART) as u64);
        let found = ["launches", "loaded", "stored"].map(|key| number(&total, key));
        // Each part of the two rows stores three numbers, one of which is read again. Each thread also reads
        // the class and its logit.
        let again = 2 * (4 * 4 * parts + 256 * 4 * (parts + 2));
        assert_eq!(found, [2, bytes + again, 2 * (12 * parts + 4)]);
        let told = told(losses::report(), &[("N", 2), ("D", UNSTAGED)]);
        assert_eq!(told, Ok([2, bytes + 2 * (28 * parts + 12)]));
    }
}
