//! Damaged files are refused, and options are saved in files.

use std::fs;

use fusion::optim::{Adam, AdamW, Arena, Optimizer, Precision, RmsProp, Rule, Sgd};
use fusion::prelude::*;

use super::devices::on_devices;
use super::state::fresh_path;
use super::{bits, of_points, rules};

const LEN: usize = 9;

fn params(number: usize) -> Result<Arena> {
    let device = Device::cpu();
    Arena::new(&device, [("weight", &of_points(&device, LEN, number, 1.0)?)])
}

/// Returns the bytes of a rule's file after two steps, one of which was skipped.
fn saved(rule: Rule) -> Result<Vec<u8>> {
    let (path, mut params) = (fresh_path(), params(0)?);
    let mut optimizer = Optimizer::new(rule, &params)?.with_max_norm(10.0);
    let mut grads = params.zeros_like()?;
    for bad in [false, true] {
        let gradient = if bad {
            Tensor::full(&Device::cpu(), f32::NAN, [LEN])?
        } else {
            of_points(&Device::cpu(), LEN, 1, 1.0)?
        };
        grads.set("weight", &gradient)?;
        optimizer.step(&mut params, &grads)?;
    }
    optimizer.save(&path, &params)?;
    let bytes = fs::read(&path).expect("it was written");
    fs::remove_file(&path).expect("it was written");
    Ok(bytes)
}

/// Loads bytes into an optimizer of this rule and returns the rule that it then has. A refused load changes
/// nothing.
fn load(rule: Rule, bytes: &[u8]) -> Result<Rule> {
    let (path, mut params) = (fresh_path(), params(5)?);
    let mut optimizer = Optimizer::new(rule, &params)?;
    let before = bits(&params)?;
    fs::write(&path, bytes).expect("there is room");
    let loaded = optimizer.load(&path, &mut params);
    fs::remove_file(&path).expect("it was written");
    if loaded.is_err() {
        assert_eq!((bits(&params)?, *optimizer.rule(), optimizer.steps()?), (before, rule, 0));
    }
    // The optimizer continues, whether the load was accepted or not.
    let grads = params.zeros_like()?;
    optimizer.step(&mut params, &grads)?;
    optimizer.steps()?;
    loaded.map(|()| *optimizer.rule())
}

/// Returns the file with a replaced text in its header, and the header's length adjusted.
fn replaced(file: &[u8], from: &str, to: &str) -> Vec<u8> {
    let len = u64::from_le_bytes(file[..8].try_into().expect("eight")) as usize;
    let header = std::str::from_utf8(&file[8..8 + len]).expect("it is JSON");
    assert!(header.contains(from), "{header}");
    let header = header.replace(from, to);
    [&(header.len() as u64).to_le_bytes(), header.as_bytes(), &file[8 + len..]].concat()
}

fn refusal(rule: impl Into<Rule>, bytes: &[u8]) -> String {
    load(rule.into(), bytes).expect_err("it is wrong").to_string()
}

/// The longest name that file systems allow leaves no room for a suffix.
#[test]
fn long_names_are_saved() -> Result<()> {
    let (path, mut params) = (fresh_path(), params(0)?);
    for name in ["x".repeat(255), "é".repeat(127)] {
        let path = path.with_file_name(name);
        let mut optimizer = Optimizer::new(AdamW::default(), &params)?;
        optimizer.save(&path, &params)?;
        optimizer.load(&path, &mut params)?;
        fs::remove_file(&path).expect("it was written");
    }
    Ok(())
}

/// A loaded optimizer has the saved options to the last digit, whatever options it was created with.
#[test]
fn options_are_saved() -> Result<()> {
    for rule in rules() {
        assert_eq!(load(rule, &saved(rule)?)?, rule);
    }
    let third = 1.0 / 3.0;
    let odd = AdamW {
        lr: third,
        betas: [third, 0.1 + 0.2],
        eps: f64::MIN_POSITIVE,
        weight_decay: -0.0,
        ..AdamW::default()
    };
    let odd = AdamW { maximize: true, ..odd };
    assert_eq!(load(AdamW::default().into(), &saved(odd.into())?)?, odd.into());
    for state in [Precision::Bf16, Precision::Bits8] {
        let rule = Rule::from(Adam { state, lr: third, ..Adam::default() });
        assert_eq!(load(Adam { state, ..Adam::default() }.into(), &saved(rule)?)?, rule);
    }
    Ok(())
}

/// Options that decide on the states must match those of the optimizer.
#[test]
fn options_that_decide_on_states_have_to_fit() -> Result<()> {
    let adam = Adam::default();
    let refused = refusal(adam, &saved(Adam { amsgrad: true, lr: 0.5, ..adam }.into())?);
    assert!(refused.contains("`amsgrad` is true, not false: make the optimizer so"), "{refused}");
    let refused = refusal(
        Adam { state: Precision::Bits8, ..adam },
        &saved(Adam { state: Precision::Bf16, ..adam }.into())?,
    );
    assert!(refused.contains("`state` is Bf16, not Bits8"), "{refused}");
    let centered = RmsProp { centered: true, momentum: 0.5, ..RmsProp::default() };
    let refused = refusal(RmsProp::default(), &saved(centered.into())?);
    assert!(refused.contains("`momentum` is 0.5, not 0.0, `centered` is true, not false"), "{refused}");
    let momentum = |momentum| Rule::from(Sgd { momentum, ..Sgd::default() });
    assert_eq!(load(momentum(0.5), &saved(momentum(0.9))?)?, momentum(0.9));
    Ok(())
}

/// Errors name the false statement of a header.
#[test]
fn headers_that_lie_are_refused() -> Result<()> {
    let rule = AdamW::default();
    let file = saved(rule.into())?;
    for (from, to, expect) in [
        ("\"version\":\"6\"", "\"version\":\"5\"", "is of version `5`, and this reads version `6`"),
        ("\"version\":\"6\"", "\"edition\":\"6\"", "is of version ``"),
        ("\"calls\":\"2\"", "\"calls\":\"-2\"", "`calls`: invalid digit"),
        ("\"calls\":\"2\"", "\"calls\":\"0\"", "0 steps, of which 1 were skipped"),
        ("\"calls\":\"2\"", "\"calls\":\"18446744073709551615\"", "18446744073709551615 steps"),
        ("\"skipped\":\"1\"", "\"skipped\":\"NaN\"", "`skipped`: invalid digit"),
        ("\"option.lr\":\"0.001\"", "\"option.lr\":\"fast\"", "the option `lr` cannot be `fast`"),
        ("\"option.lr\"", "\"option.rate\"", "the option `lr` is missing"),
        ("\"option.betas\":\"0.9, 0.999\"", "\"option.betas\":\"0.9\"", "the option `betas` cannot be `0.9`"),
        ("\"option.state\":\"F32\"", "\"option.state\":\"F64\"", "the option `state` cannot be `F64`"),
        ("\"weight\"", "\"weights\"", "`weight` is missing; `weights` is none of the parameters"),
        ("[9]", "[3,3]", "`weight` has shape [3, 3], not [9]"),
        ("[9]", "[18446744073709551615,9]", "no whole file"),
        ("[9]", "[10]", "no whole file"),
        ("\"F32\",\"shape\"", "\"I32\",\"shape\"", "`weight` is I32, not F32"),
        ("\"F32\",\"shape\"", "\"F64\",\"shape\"", "no whole file"),
    ] {
        let refused = refusal(rule, &replaced(&file, from, to));
        assert!(refused.contains(expect), "{from} → {to}: {refused}");
    }
    // A count above the largest that the device counter distinguishes.
    let many = replaced(&file, "\"calls\":\"2\"", "\"calls\":\"16777219\"");
    load(rule.into(), &replaced(&many, "\"skipped\":\"1\"", "\"skipped\":\"16777219\""))?;
    for len in [0, 1, (file.len() as u64) << 1, 1 << 40, u64::MAX] {
        let refused = refusal(rule, &[&len.to_le_bytes(), &file[8..]].concat());
        assert!(refused.contains("no whole file"), "{len}: {refused}");
    }
    Ok(())
}

/// No proper prefix of a file loads, and no changed byte of its header does harm.
#[test]
fn files_with_any_damage_do_no_harm() -> Result<()> {
    let rule = Rule::from(Adam::default());
    let file = saved(rule)?;
    for len in 0..file.len() {
        assert!(load(rule, &file[..len]).is_err(), "{len} bytes");
    }
    assert!(load(rule, &[&file[..], &[0]].concat()).is_err(), "a byte more");
    let header = 8 + u64::from_le_bytes(file[..8].try_into().expect("eight")) as usize;
    for at in 0..header {
        for byte in [0, b'0', b'9', b'"', b'-', b'{', 0xff, file[at] ^ 1] {
            let mut damaged = file.clone();
            damaged[at] = byte;
            // The damaged file is refused or valid by chance. `load` checks the rest.
            let _ = load(rule, &damaged);
        }
    }
    Ok(())
}

/// Parameters are saved and loaded without an optimizer. They also load from a file that has states.
#[test]
fn parameters_alone() {
    on_devices(|device| {
        let none = Tensor::zeros(device, [0])?;
        let (weight, bias) = (of_points(device, 5000, 2, 1.0)?, of_points(device, LEN, 1, 1.0)?);
        let params = Arena::new(device, [("weight", &weight), ("bias", &bias), ("none", &none)])?;
        let path = fresh_path();
        params.save(&path)?;
        let mut loaded = params.zeros_like()?;
        loaded.load(&path)?;
        assert_eq!(bits(&loaded)?, bits(&params)?, "{device}");
        Optimizer::new(AdamW::default(), &params)?.save(&path, &params)?;
        let mut fewer = Arena::new(device, [("bias", &Tensor::zeros(device, [LEN])?)])?;
        fewer.load(&path)?;
        assert_eq!(fewer["bias"].to_vec()?, bias.to_vec()?, "{device}");
        fs::remove_file(&path).expect("it was written");
        Ok(())
    });
}

#[test]
fn parameters_of_other_types_and_shapes() -> Result<()> {
    use safetensors::{Dtype, serialize, tensor::TensorView};

    let file = |tensors: &[(&'static str, Dtype, &[usize], &'static [u8])]| -> std::path::PathBuf {
        let view = |&(name, dtype, shape, bytes): &(&'static str, Dtype, &[usize], &'static [u8])| {
            (name, TensorView::new(dtype, shape.to_vec(), bytes).expect("as many bytes"))
        };
        let path = fresh_path();
        fs::write(&path, serialize(tensors.iter().map(view), None).expect("it is right"))
            .expect("there is room");
        path
    };
    let zeros = Tensor::zeros(&Device::cpu(), [2])?;
    let mut params = Arena::new(&Device::cpu(), [("a", &zeros), ("b", &zeros)])?;
    // 1.5 and -2 in both types.
    let halves = file(&[
        ("a", Dtype::F16, &[2], &[0x00, 0x3e, 0x00, 0xc0]),
        ("b", Dtype::BF16, &[2], &[0xc0, 0x3f, 0x00, 0xc0]),
        ("c", Dtype::I32, &[1], &[0; 4]),
    ]);
    params.load(&halves)?;
    assert_eq!((params["a"].to_vec()?, params["b"].to_vec()?), (vec![1.5, -2.0], vec![1.5, -2.0]));
    let wrong = file(&[("a", Dtype::F32, &[2, 1], &[0; 8])]);
    let refused = params.load(&wrong).expect_err("neither fits").to_string();
    assert!(refused.ends_with("`a` has shape [2, 1], not [2]; `b` is missing"), "{refused}");
    let whole = file(&[("a", Dtype::F32, &[2], &[0; 8]), ("b", Dtype::I32, &[2], &[0; 8])]);
    let refused = params.load(&whole).expect_err("no floats").to_string();
    assert!(refused.ends_with("`b` is I32, not F32"), "{refused}");
    assert_eq!(params["a"].to_vec()?, [1.5, -2.0], "nothing has changed");
    [halves, wrong, whole].iter().for_each(|path| fs::remove_file(path).expect("it was written"));
    Ok(())
}
