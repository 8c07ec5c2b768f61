//! Split reductions move the expected bytes, in the expected number of launches.

use fusion::prelude::*;

use super::devices::Kind;
use super::{
    PART, batch, clipped, column_sums, everything, logs, number, peak, shares, standard, told, total,
    variance,
};

/// Number of elements of a long row.
const LONG: usize = 300_000;

/// Checks the launches, and the loaded and stored bytes, of a function of a long row.
fn check_long(test: &str, expected: [usize; 3], report: Report, call: fn(&Tensor<f32>) -> Result<()>) {
    let elements = || (0..LONG).map(|i| (i % 97) as f32 * 0.125 - 6.0).collect::<Vec<f32>>();
    let total = total(test, |device| call(&Tensor::from_slice(device, &elements(), [LONG])?));
    if let Some(total) = total {
        assert_eq!(["launches", "loaded", "stored"].map(|key| number(&total, key) as usize), expected);
        let [launches, loaded, stored] = expected.map(|number| number as u64);
        assert_eq!(told(report.clone(), &[("N", LONG)]), Ok([launches, loaded + stored]), "the report");
        // Temporaries are the stored bytes without the results, which are less than a number for each part.
        let device = Kind::Cuda.open().expect("it has run");
        let report = report.on(&device).and_then(|report| report.bind(&[("N", LONG)]));
        assert_eq!(
            report.map(|report| report.peak_temporary_bytes()),
            Ok(Some(stored / PARTS as u64 * PARTS as u64))
        );
    }
}

/// Bytes of a row, and of a number for each of its parts.
const ROW: usize = 4 * LONG;
const PARTS: usize = 4 * LONG.div_ceil(PART);

#[test]
fn a_long_row_is_reduced_in_two_launches() {
    let expected = [2, ROW + 2 * PARTS, 2 * PARTS + 8];
    check_long("long::a_long_row_is_reduced_in_two_launches", expected, everything::report(), |x| {
        everything(x).map(|_| ())
    });
}

/// A block stages its part, so each part is read once. The partials that a distance needs include those of
/// the mean.
#[test]
fn the_variance_of_a_long_row_takes_two_launches() {
    let expected = [2, ROW + 4 * PARTS, 3 * PARTS + 4];
    check_long("long::the_variance_of_a_long_row_takes_two_launches", expected, variance::report(), |x| {
        variance(x).map(|_| ())
    });
}

#[test]
fn the_exponentials_of_a_long_row_take_two_launches() {
    let expected = [2, ROW + 3 * PARTS, 2 * PARTS + 4];
    check_long("long::the_exponentials_of_a_long_row_take_two_launches", expected, logs::report(), |x| {
        logs(x).map(|_| ())
    });
}

/// A third launch reads the row again and writes the elements. Each of its threads reads the row's values.
#[test]
fn elements_of_a_long_row_take_a_third_launch() {
    let test = "long::elements_of_a_long_row_take_a_third_launch";
    let long = |device: &Device| Tensor::from_slice(device, &vec![0.5; LONG], [LONG]);
    let total = total(test, |device| {
        shares(&long(device)?)?;
        standard(&long(device)?).map(|_| ())
    });
    if let Some(total) = total {
        assert_eq!((number(&total, "launches"), number(&total, "stored") / 1000), (6, 2 * ROW as u64 / 1000));
        // Each thread, with four elements, reads the row's two values.
        assert!(number(&total, "loaded") < (4 * ROW + ROW + 8 * PARTS) as u64, "{total}");
        for report in [shares::report(), standard::report()] {
            // The cache serves the row's values to all threads.
            let [launches, moved] = told(report, &[("N", LONG)]).expect("the dim of the function");
            let few = 3 * ROW as u64..3 * ROW as u64 + 8 * PARTS as u64;
            assert!(launches == 3 && few.contains(&moved), "{moved}");
        }
    }
}

/// The second launch combines the partials again, and each of its teams reads them.
#[test]
fn a_norm_and_the_update_that_needs_it_are_two_launches() {
    let test = "long::a_norm_and_the_update_that_needs_it_are_two_launches";
    let total =
        total(test, |device| clipped(&mut Tensor::from_slice(device, &vec![0.5; LONG], [LONG])?, 1.0));
    if let Some(total) = total {
        let [launches, loaded, stored] =
            ["launches", "loaded", "stored"].map(|key| number(&total, key) as usize);
        assert_eq!((launches, stored), (2, ROW + PARTS));
        // The number of teams is at most that of the parts. A team may have several parts.
        let again = loaded - 2 * ROW;
        assert!(
            again.is_multiple_of(PARTS) && (1..=LONG.div_ceil(PART)).contains(&(again / PARTS)),
            "{again}"
        );
        // The cache serves the values that all teams read.
        let told = told(clipped::report(), &[("N", LONG)]);
        assert_eq!(told, Ok([2, (3 * ROW + 2 * PARTS) as u64]));
    }
}

/// Each part stores its own largest element with its place. The second launch first finds the part, then
/// reads its place.
#[test]
fn the_place_in_a_long_row_takes_two_launches() {
    let expected = [2, ROW + 3 * PARTS, 2 * PARTS + 4];
    check_long("long::the_place_in_a_long_row_takes_two_launches", expected, peak::report(), |x| {
        peak(x).map(|_| ())
    });
}

/// 88 parts interleave along runs of 5632 numbers, which makes a run wide although there are only three
/// columns.
#[test]
fn a_sum_of_few_columns_reads_each_element_once_and_side_by_side() {
    let test = "long::a_sum_of_few_columns_reads_each_element_once_and_side_by_side";
    let (n, c, runs) = (20_000, 3, 4);
    let total = total(test, |device| column_sums(&Tensor::full(device, 1.0, [n, c])?).map(|_| ()));
    if let Some(total) = total {
        let (bytes, partials) = ((4 * n * c) as u64, (4 * runs * 88 * c) as u64);
        let [launches, loaded, stored] = ["launches", "loaded", "stored"].map(|key| number(&total, key));
        assert_eq!([launches, loaded, stored], [2, bytes + partials, partials + 4 * c as u64]);
        // The elements take full sectors. Each column reads the sectors of the partials.
        assert_eq!(number(&total, "load_sectors"), bytes / 32 + c as u64 * partials / 32);
        let told = told(column_sums::report(), &[("N", n), ("C", c)]);
        assert_eq!(told, Ok([2, bytes + 2 * partials + 4 * c as u64]));
    }
}

/// Twelve parts of each column, four of which share a run of 372 elements. One block combines the parts of
/// eight neighbouring columns.
#[test]
fn a_sum_of_many_columns_reads_side_by_side() {
    let test = "long::a_sum_of_many_columns_reads_side_by_side";
    let (n, c, parts) = (1100, 2048, 12);
    let total = total(test, |device| column_sums(&Tensor::full(device, 1.0, [n, c])?).map(|_| ()));
    if let Some(total) = total {
        let [launches, loaded, sectors] =
            ["launches", "loaded", "load_sectors"].map(|key| number(&total, key));
        let bytes = (4 * (n + parts) * c) as u64;
        assert_eq!([launches, loaded, sectors], [2, bytes, bytes / 32]);
    }
}

/// Batch statistics and the normalised elements take a second read, and a few numbers for each column.
#[test]
fn batch_statistics_take_a_reduction_and_a_pointwise_launch() {
    let test = "long::batch_statistics_take_a_reduction_and_a_pointwise_launch";
    let shape = [4, 64, 64, 4];
    let bytes = 4 * shape.iter().product::<usize>() as u64;
    let total = total(test, |device| batch(&Tensor::full(device, 1.0, shape)?).map(|_| ()));
    if let Some(total) = total {
        let [launches, sectors, stored] =
            ["launches", "load_sectors", "stored"].map(|key| number(&total, key));
        assert_eq!(launches, 3);
        // The mean and the squares of a part are two reads. The cache serves the second.
        assert!((3 * bytes..7 * bytes / 2).contains(&(32 * sectors)), "{total}");
        assert!((bytes..21 * bytes / 20).contains(&stored), "{total}");
        let [n, h, w, c] = shape;
        let told = told(batch::report(), &[("N", n), ("H", h), ("W", w), ("C", c)]);
        let [launches, moved] = told.expect("the dims are those of the function");
        // The report counts reads that the cache serves.
        assert!(launches == 3 && (4 * bytes..9 * bytes / 2).contains(&moved), "{moved}: {total}");
    }
}
