//! Tests of arenas beyond 32-bit counts.

use fusion_compiler::ir::kernel::IndexWidth;
use fusion_compiler::ir::plan::Slot;

use super::update;
use crate::LaunchConfig;
use crate::device::Region;
use crate::device::ends::{End, gpu, launches, run_from};
use crate::error::Result;

/// Elements of arenas around the limits of 32-bit byte counts, signed and unsigned.
const SIZES: [usize; 5] =
    [(1 << 30) - 256, (1 << 30) + 256, (1 << 31) - 256, (1 << 31) + 256, (1 << 32) + 256];

fn element(i: usize) -> f32 {
    (i * 7919 % 1999) as f32 / 1000.0 - 0.9993
}

/// Learning rate.
const LR: f32 = 0.1;

/// Returns the parameter and both moments after Adam's first step, with β of 0.9 and 0.999.
fn stepped(p: f32, g: f32) -> [f64; 3] {
    let g = f64::from(g);
    [f64::from(p) - f64::from(LR) * g / (g.abs() + 1e-8), 0.1 * g, 0.001 * g * g]
}

const NUMBERS: [f32; 8] = [0.1, -0.105_360_52, 0.001, -0.001_000_5, 1e-8, 1.0, 0.0, 0.0];

fn check(got: [Vec<f32>; 3], g: &[f32], first: usize, what: &str) {
    for i in 0..g.len() {
        let expected =
            if i < first { [f64::from(element(i + 1)), 0.0, 0.0] } else { stepped(element(i + 1), g[i]) };
        for (kind, expected) in expected.into_iter().enumerate() {
            let got = f64::from(got[kind][i]);
            assert!(
                (got - expected).abs() <= 1e-6,
                "{what}: element {i} of the end, {kind}: {got}, not {expected}"
            );
        }
    }
}

#[test]
fn adam_reaches_the_end_of_large_arenas() -> Result<()> {
    let Some(device) = gpu() else { return Ok(()) };
    for len in SIZES {
        let symbols = [len as i64];
        let [launch] = launches(&device, &update::adam::PLAN, &symbols)[..] else { panic!("one launch") };
        assert_eq!(launch.index == IndexWidth::Bits64, len >= 1 << 31, "{len}");
        // The end covers one iteration of all threads, and a second one of some.
        let facts = device.facts();
        let LaunchConfig { block, grid, .. } =
            LaunchConfig::new(facts, len as u64, launch.space.grain).resident(facts, 1);
        let stride = block as usize * grid as usize * launch.space.grain as usize;
        let (end, before) = (stride + 1024, 64);
        let elements = |shift| (0..end + before).map(|i| element(i + shift)).collect::<Vec<f32>>();
        let (p, g, zeros) = (elements(1), elements(5), vec![0_f32; end + before]);
        let ends = [&p, &zeros, &zeros, &g].map(|elements| End::new(&device, len, elements));
        let ends = ends.into_iter().collect::<Result<Vec<End>>>()?;
        let numbers = [1.0, 0.0, LR].map(|number| End::new(&device, 1, &[number]));
        let numbers = numbers.into_iter().collect::<Result<Vec<End>>>()?;
        let buffers: Vec<Region<'_>> = ends.iter().chain(&numbers).map(End::region).collect();
        let options = [&[1.0], &NUMBERS[..]].concat();
        run_from(&device, &update::adam::PLAN, launch, &symbols, len - end, &options, &buffers)?;
        let [p, m, v] = [0, 1, 2].map(|i| ends[i].read::<f32>(&device));
        check([p?, m?, v?], &g, before, &format!("{len} elements"));
    }
    Ok(())
}

/// Checks the last part of the norm, and the combination of all parts.
#[test]
fn norms_reach_the_end_of_large_arenas() -> Result<()> {
    let Some(device) = gpu() else { return Ok(()) };
    for len in SIZES {
        let (symbols, plan) = ([len as i64], &update::measure::PLAN);
        let [norm, all] = launches(&device, plan, &symbols)[..] else { panic!("two launches") };
        let parts = norm.space.elements(&symbols).map_or(0, |parts| parts as usize);
        let part = len.div_ceil(parts).next_multiple_of(8192);
        let end: Vec<f32> = (0..len - (parts - 1) * part).map(element).collect();
        let g = End::new(&device, len, &end)?;
        let numbers = [(1, 0_f32), (1, 4.0), (parts, 0.0), (1, 0.0), (1, 0.0)];
        let numbers = numbers.map(|(count, number)| End::new(&device, count, &vec![number; count]));
        let [skipped, scale, squares, first, second] =
            &numbers.into_iter().collect::<Result<Vec<End>>>()?[..]
        else {
            unreachable!("five of them")
        };
        let slot = |slot: Slot| match slot {
            Slot::Param(0) => g.region(),
            Slot::Param(1) => scale.region(),
            Slot::Param(_) => skipped.region(),
            Slot::Temp(_) => squares.region(),
            Slot::Output(0) => first.region(),
            Slot::Output(_) => second.region(),
        };
        for (launch, start) in [(norm, parts - 1), (all, 0)] {
            let buffers: Vec<Region<'_>> = launch.buffers.iter().map(|buffer| slot(buffer.slot)).collect();
            // The requested norm is 2.
            run_from(&device, plan, launch, &symbols, start, &[2.0], &buffers)?;
        }
        let length = end.iter().map(|&g| f64::from(g).powi(2)).sum::<f64>().sqrt() / 4.0;
        let (expected, got) = (2.0 / (length + 1e-6) / 4.0, f64::from(second.read::<f32>(&device)?[0]));
        assert!((got - expected).abs() <= 1e-6 * expected, "{len} elements: {got}, not {expected}");
    }
    Ok(())
}

/// Checks the last blocks, which count their scales separately.
#[test]
fn codes_reach_the_end_of_large_arenas() -> Result<()> {
    const BLOCKS: usize = 24;
    let Some(device) = gpu() else { return Ok(()) };
    for len in SIZES {
        let (blocks, plan) = (len / 256, &update::adam_8bit::PLAN);
        let symbols = [blocks as i64];
        let [launch] = launches(&device, plan, &symbols)[..] else { panic!("one launch") };
        assert_eq!(plan.outputs.len(), 0, "all is written in place");
        let count = 256 * BLOCKS;
        let elements = |shift| (0..count).map(|i| element(i + shift)).collect::<Vec<f32>>();
        let (p, g) = (elements(1), elements(5));
        let tensors = [
            End::new(&device, len, &p)?,
            End::new(&device, len, &vec![0_u16; count])?,
            End::new(&device, blocks, &[0_u32; BLOCKS])?,
            End::new(&device, len, &g)?,
        ];
        let [factor, skipped, lr] = [1.0, 0.0, LR].map(|number| End::new(&device, 1, &[number]));
        let (factor, skipped, lr) = (factor?, skipped?, lr?);
        let slot = |slot: Slot| match slot {
            Slot::Param(i @ 0..4) => tensors[usize::from(i)].region(),
            Slot::Param(4) => factor.region(),
            Slot::Param(6) => skipped.region(),
            Slot::Param(_) => lr.region(),
            Slot::Output(_) | Slot::Temp(_) => unreachable!("one launch in place has none"),
        };
        let buffers: Vec<Region<'_>> = launch.buffers.iter().map(|buffer| slot(buffer.slot)).collect();
        let options = [&[1.0], &NUMBERS[..]].concat();
        run_from(&device, plan, launch, &symbols, blocks - BLOCKS, &options, &buffers)?;
        let (p, codes) = (tensors[0].read::<f32>(&device)?, tensors[1].read::<u16>(&device)?);
        let units = tensors[2].read::<u32>(&device)?;
        for i in 0..count {
            let [expected, mean, squares] = stepped(element(i + 1), g[i]);
            let what = format!("{len} elements: element {i} of the end");
            assert!((f64::from(p[i]) - expected).abs() <= 1e-6, "{what}: {}, not {expected}", p[i]);
            // A code has three bits after the leading one, so its value is within an eighth of the encoded
            // value.
            let of_code = |code: u8| f64::from(8 + code % 8) / 4.0 * f64::from(code / 8).exp2();
            let is_near = |code: u8, largest: u8, size: f64, unit: u32| {
                let exact = 2.0 + size / f64::from(f32::from_bits(unit)) * (of_code(largest) - 2.0);
                (of_code(code) / exact - 1.0).abs() <= 0.126
            };
            let ([m, v], unit) = (codes[i].to_le_bytes(), units[i / 256]);
            assert!(is_near(m & 127, 127, mean.abs(), unit & 0xffff_0000), "{what}: {m}, not {mean}");
            assert_eq!(m > 127, mean < 0.0, "{what}");
            assert!(is_near(v, 255, squares, unit << 16), "{what}: {v}, not {squares}");
        }
    }
    Ok(())
}
