//! The workloads: their inputs, which `peers.py` also makes, and the candidates of this program.

use std::cell::RefCell;
use std::rc::Rc;

use fusion::optim::{AdamW, Arena, Optimizer};
use fusion::prelude::*;
use rayon::prelude::*;

use crate::{Candidate, attention, hand, products, roofline, windows};

fuse! {
    pub(crate) fn gate(a: f32[N], b: f32[N], c: f32[N]) -> f32[N] { relu(a + b) * c }

    pub(crate) fn chain(x: f32[N], y: f32[N]) -> f32[N] {
        let t = tanh(x * 0.5 + y);
        let s = sqrt(t * t + 1.0);
        tanh(exp(-s) * y + x) * s
    }

    pub(crate) fn gelu_of(x: f32[N]) -> f32[N] { gelu_tanh(x) }

    pub(crate) fn swiglu(x: f32[N], y: f32[N]) -> f32[N] { silu(x) * y }

    pub(crate) fn softmax_of(x: f32[N, D]) -> f32[N, D] { softmax(x, D) }

    pub(crate) fn layer_norm_of(x: f32[N, D], g: f32[D], b: f32[D]) -> f32[N, D] { layer_norm(x, D) * g + b }

    pub(crate) fn rms_norm_of(x: f32[N, D], g: f32[D]) -> f32[N, D] { rms_norm(x, D, 1e-5) * g }

    pub(crate) fn loss(x: f32[N, V], t: i32[N]) -> f32[] { mean(cross_entropy(x, V, t)) }

    pub(crate) fn sum_of_rows(x: f32[N, 8]) -> f32[N] { sum(x, 8) }

    pub(crate) fn sum_of_squares(x: f32[N]) -> f32[] { sum(x * x) }
}

pub(crate) type Candidates = Result<Vec<Candidate>>;

/// A result that a candidate and its check share.
type Shared<T> = Rc<RefCell<T>>;

/// Returns the candidates of a workload. Fusion is first, so that nothing is prepared for its first call.
pub(crate) fn candidates(workload: &str, size: &str, device: &Device) -> Candidates {
    let line = line(size);
    let of_factors = products::candidates(workload, size, device);
    let of_factors = of_factors.or_else(|| windows::candidates(workload, size, device));
    if let Some(product) = of_factors.or_else(|| attention::candidates(workload, size, device)) {
        return product;
    }
    match workload {
        "gate" => gate_candidates(device, line),
        "chain" => two(device, line, chain::into, hand::chain),
        "gelu" => one(device, line),
        "swiglu" => two(device, line, swiglu::into, hand::swiglu),
        "cross_entropy" => loss_candidates(device, if size == "small" { [8, 8192] } else { [2048, 50_257] }),
        "sum_of_squares" => sum_candidates(device, line),
        "adamw" => adamw_candidates(device, size != "small"),
        rows => row_workload(device, rows, size),
    }
}

/// Returns the number of elements of a tensor: beyond the caches of a GPU, beyond the caches of a CPU, or
/// small.
fn line(size: &str) -> usize {
    match size {
        "huge" => 1 << 26,
        "large" => 1 << 24,
        _ => 1 << 16,
    }
}

/// Returns the candidates of a workload on rows. The workload's name ends with the length of a row.
fn row_workload(device: &Device, workload: &str, size: &str) -> Candidates {
    let split = workload.rsplit_once('_').and_then(|(name, width)| Some((name, width.parse().ok()?)));
    let (name, width): (&str, usize) = split.unwrap_or_else(|| panic!("no workload is called {workload}"));
    let rows = match (size, width) {
        ("large", 768) => 8192,
        ("large", 1024) => 4096,
        ("large", 50_257) => 32,
        _ => line(size) / width,
    };
    match name {
        "softmax" => softmax_candidates(device, [rows, width]),
        "layer_norm" => layer_norm_candidates(device, [rows, width]),
        "rms_norm" => rms_norm_candidates(device, [rows, width]),
        "sum" => row_sum_candidates(device, [rows, width]),
        _ => panic!("no workload is called {workload}"),
    }
}

/// Returns multiples of 2⁻¹⁴ from −2 to 2, which are the same in any language.
pub(crate) fn input(len: usize, salt: usize) -> Vec<f32> {
    (0..len).map(|i| ((i * 7919 + salt * 104_729) % 65_536) as f32 / 16_384.0 - 2.0).collect()
}

fn sum(values: &[f32]) -> f64 {
    values.iter().copied().map(f64::from).sum()
}

/// Returns the candidate of Fusion, which writes into an existing tensor.
pub(crate) fn ours(
    out: Tensor<f32>,
    mut call: impl FnMut(&mut Tensor<f32>) -> Result<()> + 'static,
) -> Candidate {
    let device = out.device().clone();
    let out = Rc::new(RefCell::new(out));
    let written = Rc::clone(&out);
    Candidate {
        name: "fusion",
        call: Box::new(move || call(&mut out.borrow_mut()).expect("the arguments fit")),
        wait: Some(Box::new(move || device.synchronize().expect("the device works"))),
        check: Some(Box::new(move || sum(&written.borrow().to_vec().expect("it can be read")))),
    }
}

/// Returns a handwritten candidate, which writes into an existing slice.
fn by_hand(
    name: &'static str,
    out: &Shared<Vec<f32>>,
    mut call: impl FnMut(&mut [f32]) + 'static,
) -> Candidate {
    let (out, written) = (Rc::clone(out), Rc::clone(out));
    Candidate {
        name,
        call: Box::new(move || call(&mut out.borrow_mut())),
        wait: None,
        check: Some(Box::new(move || sum(&written.borrow()))),
    }
}

/// Returns the rooflines for this many reads and writes. Three writes are updates in place.
fn rooflines(elements: usize, reads: usize, writes: usize) -> impl Iterator<Item = Candidate> {
    let of = move |(name, around_caches)| {
        let from: Vec<Vec<f32>> = (0..reads).map(|_| vec![1.0; elements]).collect();
        let mut to: Vec<Vec<f32>> = (0..writes).map(|_| vec![0.0; elements]).collect();
        let call = move || {
            std::hint::black_box(roofline::run(&from, &mut to, around_caches));
        };
        Candidate { name, call: Box::new(call), wait: None, check: None }
    };
    [("roofline", false), ("roofline_nt", true)].into_iter().take(1 + writes.min(1)).map(of)
}

/// Returns a tensor with memory of its own. The first write to a clone would copy it.
fn zeros_like(x: &Tensor<f32>) -> Result<Tensor<f32>> {
    Tensor::zeros(x.device(), x.shape().clone())
}

fn fresh(len: usize) -> Shared<Vec<f32>> {
    Rc::new(RefCell::new(vec![0.0; len]))
}

fn gate_candidates(device: &Device, len: usize) -> Candidates {
    let [a, b, c] = [1, 2, 3].map(|salt| Rc::new(input(len, salt)));
    let (x, y, z) = (
        Tensor::from_slice(device, &a, [len])?,
        Tensor::from_slice(device, &b, [len])?,
        Tensor::from_slice(device, &c, [len])?,
    );
    let mut candidates = vec![ours(zeros_like(&x)?, move |out| gate::into(out, &x, &y, &z))];
    let out = fresh(len);
    for (name, function) in
        [("rust", hand::gate as fn(&mut [f32], &[f32], &[f32], &[f32])), ("rust_nt", hand::gate_around)]
    {
        let (a, b, c) = (Rc::clone(&a), Rc::clone(&b), Rc::clone(&c));
        candidates.push(by_hand(name, &out, move |out| {
            let (a, b, c) = (&a[..], &b[..], &c[..]);
            hand::chunks(out, hand::CHUNK, |out, start| {
                let at = start..start + out.len();
                function(out, &a[at.clone()], &b[at.clone()], &c[at]);
            });
        }));
    }
    candidates.extend(rooflines(len, 3, 1));
    Ok(candidates)
}

type Into2 = fn(&mut Tensor<f32>, &Tensor<f32>, &Tensor<f32>) -> Result<()>;

fn two(device: &Device, len: usize, into: Into2, function: fn(&mut [f32], &[f32], &[f32])) -> Candidates {
    let [a, b] = [1, 2].map(|salt| input(len, salt));
    let (x, y) = (Tensor::from_slice(device, &a, [len])?, Tensor::from_slice(device, &b, [len])?);
    let mut candidates = vec![ours(zeros_like(&x)?, move |out| into(out, &x, &y))];
    candidates.extend(hands(len, hand::CHUNK, 0, move |out, start| {
        let at = start..start + out.len();
        function(out, &a[at.clone()], &b[at]);
    }));
    candidates.extend(rooflines(len, 2, 1));
    Ok(candidates)
}

fn one(device: &Device, len: usize) -> Candidates {
    let a = input(len, 1);
    let x = Tensor::from_slice(device, &a, [len])?;
    let mut candidates = vec![ours(zeros_like(&x)?, move |out| gelu_of::into(out, &x))];
    candidates
        .extend(hands(len, hand::CHUNK, 0, move |out, start| hand::gelu(out, &a[start..start + out.len()])));
    candidates.extend(rooflines(len, 1, 1));
    Ok(candidates)
}

/// Returns handwritten candidates with plain and with non-temporal stores. A tile of 0 stands for the default
/// size.
fn hands(
    len: usize,
    chunk: usize,
    tile: usize,
    f: impl Fn(&mut [f32], usize) + Sync + 'static,
) -> [Candidate; 2] {
    let (out, f) = (fresh(len), Rc::new(f));
    let around = Rc::clone(&f);
    [
        by_hand("rust", &out, move |out| hand::chunks(out, chunk, &*f)),
        by_hand("rust_nt", &out, move |out| hand::chunks_around(out, chunk, tile, &*around)),
    ]
}

/// Returns handwritten candidates that iterate over rows.
fn row_candidates(
    [rows, width]: [usize; 2],
    f: impl Fn(&mut [f32], usize) + Sync + 'static,
) -> [Candidate; 2] {
    let chunk = (hand::CHUNK / width).max(1) * width;
    hands(rows * width, chunk, width, move |out, start| {
        out.chunks_mut(width).enumerate().for_each(|(i, out)| f(out, start + i * width));
    })
}

fn softmax_candidates(device: &Device, [rows, width]: [usize; 2]) -> Candidates {
    let a = input(rows * width, 1);
    let x = Tensor::from_slice(device, &a, [rows, width])?;
    let mut candidates = vec![ours(zeros_like(&x)?, move |out| softmax_of::into(out, &x))];
    candidates.extend(row_candidates([rows, width], move |out, at| hand::softmax(out, &a[at..at + width])));
    candidates.extend(rooflines(rows * width, 1, 1));
    Ok(candidates)
}

fn layer_norm_candidates(device: &Device, [rows, width]: [usize; 2]) -> Candidates {
    let (a, gamma, beta) = (input(rows * width, 1), input(width, 2), input(width, 3));
    let (x, g, b) = (
        Tensor::from_slice(device, &a, [rows, width])?,
        Tensor::from_slice(device, &gamma, [width])?,
        Tensor::from_slice(device, &beta, [width])?,
    );
    let mut candidates = vec![ours(zeros_like(&x)?, move |out| layer_norm_of::into(out, &x, &g, &b))];
    let row = move |out: &mut [f32], at| hand::layer_norm(out, &a[at..at + width], &gamma, &beta);
    candidates.extend(row_candidates([rows, width], row));
    candidates.extend(rooflines(rows * width, 1, 1));
    Ok(candidates)
}

fn rms_norm_candidates(device: &Device, [rows, width]: [usize; 2]) -> Candidates {
    let (a, gamma) = (input(rows * width, 1), input(width, 2));
    let (x, g) =
        (Tensor::from_slice(device, &a, [rows, width])?, Tensor::from_slice(device, &gamma, [width])?);
    let mut candidates = vec![ours(zeros_like(&x)?, move |out| rms_norm_of::into(out, &x, &g))];
    candidates.extend(row_candidates([rows, width], move |out, at| {
        hand::rms_norm(out, &a[at..at + width], &gamma)
    }));
    candidates.extend(rooflines(rows * width, 1, 1));
    Ok(candidates)
}

fn loss_candidates(device: &Device, [rows, width]: [usize; 2]) -> Candidates {
    let a = input(rows * width, 1);
    let classes: Vec<i32> = (0..rows).map(|i| (i * 31 % width) as i32).collect();
    let (x, t) =
        (Tensor::from_slice(device, &a, [rows, width])?, Tensor::from_slice(device, &classes, [rows])?);
    let mut candidates =
        vec![ours(Tensor::from_slice(device, &[0.0], [])?, move |out| loss::into(out, &x, &t))];
    candidates.push(by_hand("rust", &fresh(1), move |out| {
        let row = |i: usize| hand::cross_entropy(&a[i * width..][..width], classes[i] as usize);
        out[0] = total(rows, row) / rows as f32;
    }));
    candidates.extend(rooflines(rows * width, 1, 0));
    Ok(candidates)
}

fn sum_candidates(device: &Device, len: usize) -> Candidates {
    let a = input(len, 1);
    let x = Tensor::from_slice(device, &a, [len])?;
    let mut candidates =
        vec![ours(Tensor::from_slice(device, &[0.0], [])?, move |out| sum_of_squares::into(out, &x))];
    candidates.push(by_hand("rust", &fresh(1), move |out| {
        let chunk = |i: usize| hand::sum_of_squares(&a[i * hand::CHUNK..][..hand::CHUNK]);
        out[0] = total(len / hand::CHUNK, chunk);
    }));
    candidates.extend(rooflines(len, 1, 0));
    Ok(candidates)
}

fn row_sum_candidates(device: &Device, [rows, width]: [usize; 2]) -> Candidates {
    let a = input(rows * width, 1);
    let x = Tensor::from_slice(device, &a, [rows, width])?;
    let mut candidates = vec![ours(Tensor::zeros(device, [rows])?, move |out| sum_of_rows::into(out, &x))];
    candidates.extend(hands(rows, hand::CHUNK / width, 0, move |out, start| {
        hand::sums_of_8(out, a[start * width..][..out.len() * width].as_chunks().0);
    }));
    candidates.extend(rooflines(rows * width, 1, 0));
    Ok(candidates)
}

/// Returns the sum of all parts, computed on all threads.
fn total(parts: usize, f: impl Fn(usize) -> f32 + Sync + Send) -> f32 {
    if rayon::current_num_threads() == 1 {
        (0..parts).map(f).sum()
    } else {
        (0..parts).into_par_iter().map(f).sum()
    }
}

/// Returns the lengths of the 148 parameters of GPT-2 with this width.
fn parameters(large: bool) -> Vec<usize> {
    let (width, words, context) = if large { (272, 50_257, 1024) } else { (16, 512, 64) };
    let linear = |n: usize, m: usize| [n * m, m];
    let layer = [[width; 2], linear(width, 3 * width), linear(width, width)];
    let layer = layer.into_iter().chain([[width; 2], linear(width, 4 * width), linear(4 * width, width)]);
    let layer: Vec<usize> = layer.flatten().collect();
    [words * width, context * width].into_iter().chain(layer.repeat(12)).chain([width; 2]).collect()
}

fn adamw_candidates(device: &Device, large: bool) -> Candidates {
    let lengths = parameters(large);
    let elements = lengths.iter().sum();
    let tensors: Vec<Tensor<f32>> = lengths
        .iter()
        .map(|&len| Tensor::from_slice(device, &input(len, 1), [len]))
        .collect::<Result<_>>()?;
    let named = tensors.iter().enumerate().map(|(i, tensor)| (i.to_string(), tensor));
    let params = Arena::new(device, named)?;
    let mut grads = params.zeros_like()?;
    for (i, &len) in lengths.iter().enumerate() {
        grads.set(&i.to_string(), &Tensor::from_slice(device, &input(len, 2), [len])?)?;
    }
    let mut optimizer = Optimizer::new(AdamW::default(), &params)?;
    let device = device.clone();
    let params = Rc::new(RefCell::new(params));
    let updated = Rc::clone(&params);
    let ours = Candidate {
        name: "fusion",
        call: Box::new(move || optimizer.step(&mut params.borrow_mut(), &grads).expect("they fit")),
        wait: Some(Box::new(move || device.synchronize().expect("the device works"))),
        check: Some(Box::new(move || {
            let params = updated.borrow();
            let first = params.get("0").expect("it is there");
            sum(&first.to_vec().expect("it can be read"))
        })),
    };
    Ok([ours, adamw_by_hand(lengths)].into_iter().chain(rooflines(elements, 1, 3)).collect())
}

fn adamw_by_hand(lengths: Vec<usize>) -> Candidate {
    let of = |salt| lengths.iter().map(|&len| input(len, salt)).collect::<Vec<_>>();
    let zeros = || lengths.iter().map(|&len| vec![0f32; len]).collect::<Vec<_>>();
    let (g, mut m, mut v, p) = (of(2), zeros(), zeros(), Rc::new(RefCell::new(of(1))));
    let updated = Rc::clone(&p);
    let mut step = 0;
    let call = move || {
        step += 1;
        let corrections = [1e-3 / (1.0 - 0.9f32.powi(step)), 1.0 / (1.0 - 0.999f32.powi(step))];
        let mut p = p.borrow_mut();
        for (((p, m), v), g) in p.iter_mut().zip(&mut m).zip(&mut v).zip(&g) {
            if rayon::current_num_threads() == 1 || p.len() <= hand::CHUNK {
                hand::adamw(p, m, v, g, corrections);
            } else {
                let parts = p.par_chunks_mut(hand::CHUNK).zip(m.par_chunks_mut(hand::CHUNK));
                let parts = parts.zip(v.par_chunks_mut(hand::CHUNK)).zip(g.par_chunks(hand::CHUNK));
                parts.for_each(|(((p, m), v), g)| hand::adamw(p, m, v, g, corrections));
            }
        }
    };
    Candidate {
        name: "rust",
        call: Box::new(call),
        wait: None,
        check: Some(Box::new(move || sum(&updated.borrow()[0]))),
    }
}
