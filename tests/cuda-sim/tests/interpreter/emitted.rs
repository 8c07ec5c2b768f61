//! Every kernel of the compiler's snapshots parses, and one of them computes the right result.

use crate::cases;
use crate::harness::{Arg, LaunchConfig, floats, launch};
use cuda_sim::ptx;

/// Returns the PTX texts in the compiler's snapshots.
fn snapshots() -> Vec<(String, String)> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../kernels");
    let files = std::fs::read_dir(folder).expect("the snapshots are beside this crate");
    let mut texts = Vec::new();
    for file in files
        .map(|file| file.expect("readable").path())
        .filter(|path| path.extension().is_some_and(|e| e == "snap"))
    {
        let text = std::fs::read_to_string(&file).expect("readable");
        for part in text.split("\n.version ").skip(1) {
            let end = part.find("\n}").expect("a kernel ends");
            texts.push((file.display().to_string(), format!(".version {}", &part[..end + 3])));
        }
    }
    texts
}

#[test]
fn all_kernels_are_understood() {
    let texts = snapshots();
    assert!(texts.len() > 30, "{}", texts.len());
    for (file, text) in texts {
        let module = ptx::parse(&text).unwrap_or_else(|error| panic!("{file}: {error}\n{text}"));
        let kernel = &module.kernels[0];
        assert_eq!(module.kernels.len(), 1, "{file}");
        assert!(
            (1..=255).contains(&kernel.registers) && kernel.params_bytes > 0,
            "{file}: {}",
            kernel.registers
        );
    }
}

/// `relu(a + b) * c` as emitted, for any number of elements.
const GATE: &str = include_str!("../../examples/relu.ptx");

#[test]
fn relu_moves_what_it_must_and_no_more() {
    const N: usize = 1 << 16;
    let [a, b, c] =
        [1, 2, 3].map(|seed| (0..N).map(|i| ((i * 7 + seed * 13) % 101) as f32 - 50.0).collect::<Vec<f32>>());
    let args = [floats(&a), floats(&b), floats(&c), floats(&vec![0.0; N]), Arg::Word(N as u32)];
    let config = LaunchConfig { grid: [16, 1, 1], block: [256, 1, 1], dynamic: 0 };
    let (counters, buffers) = launch(GATE, config, &args).unwrap_or_else(|fault| panic!("{fault}"));
    for (i, bytes) in buffers[3].as_chunks().0.iter().enumerate() {
        assert_eq!(f32::from_le_bytes(*bytes), (a[i] + b[i]).max(0.0) * c[i], "element {i}");
    }
    assert_eq!((counters.loaded, counters.stored), (12 * N as u64, 4 * N as u64));
    assert_eq!((counters.load_sectors, counters.store_sectors), (12 * N as u64 / 32, 4 * N as u64 / 32));
}

/// A tile reads its rows and columns of the factors once.
///
/// So a product of one tile moves the bytes that reports state: these of its tensors.
#[test]
fn products_read_the_factors_of_a_tile_once() {
    for [rows, depth, cols] in [[64, 96, 64], [128, 96, 192], [56, 40, 72]] {
        for (size, is_of_matrices, case) in [
            (2, true, cases::product_of_halves as Product),
            (4, true, cases::product_of_rounded),
            (4, false, cases::product_of_floats),
            (4, false, cases::product_of_copied),
        ] {
            let case = case(rows, depth, cols);
            case.passes();
            let counters = case.counters();
            let (down, across) = (rows.div_ceil(64), cols.div_ceil(64));
            let loaded = size * (across * rows * depth + down * depth * cols);
            let found = (counters.loaded, counters.stored);
            assert_eq!(found, (loaded as u64, 4 * (rows * cols) as u64), "{size}: {rows} x {depth} x {cols}");
            let at = format!("{size}, {is_of_matrices}: {rows} x {depth} x {cols}");
            // No two threads want different words of a bank at once, except where elements are copied to other lines.
            let (bytes, moved) = (counters.shared, 128 * counters.shared_rounds);
            assert!(
                if is_of_matrices { moved == bytes } else { moved <= bytes * 104 / 100 },
                "{at}: {moved}"
            );
            // Whole sectors are read and written if lines begin with one.
            if cols % 64 == 0 {
                let sectors = (counters.load_sectors * 32, counters.store_sectors * 32);
                assert_eq!(sectors, (counters.loaded, counters.stored), "{at}");
            }
        }
    }
}

type Product = fn(usize, usize, usize) -> cases::Case;
