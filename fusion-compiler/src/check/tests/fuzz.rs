//! Fuzz tests: no tokens make the compiler panic, and every refusal has a message.

use std::str::FromStr;

use proc_macro2::{Delimiter, Group, Ident, Span, TokenStream, TokenTree};

use super::super::session::{ParamType, Returned, Session};
use super::super::{Source, front_end};
use crate::ir::dtype::DType;
use crate::ir::plan::Target;
use crate::ir::verify;

/// Sources that cover every part of the language, as seeds for mutations.
const SEEDS: [&str; 9] = [
    "/// doc
     #[fuse(off, targets(ptx, cpu))] pub fn f(x: f32[N, D], p: &mut f32[C = 3, 3], lr: f32, k: i32[], H: dim)
        -> (f32[N, D], f32[]) { let (a, b) = g(x, D, eps = 1e-5); p = 1.0; p *= lr; (a + b, k as f32) }
     fn g(x, D: dim, eps = 1e-6) { (x.relu() * rsqrt(D), if x < eps && !isnan(x) { x } else { -INF }) }",
    "pub(crate) fn h<E>(x: u32[T, S]) -> u32[S, T] { if index(S) <= index(T) { x >> 2 ^ x & 1 } else { 0u32 } }",
    "f32: gelu(x[N, D] + self.bias[D]) * scalar(1.0 / temperature) => [D, N]",
    "relu(a + {b.c()}) * c - max(a, 2) % 3.0 / PI as f32",
    "sum(x[H, W, C = 3], (C)) + at(x[H, W, C = 3], C, 0) + mean(x[H, W, C = 3], C)",
    "pub fn s(x: f32[N, C = 4]) -> f32[N] { slice(x, C -> K, 0..C / 2) + select(x > 0, x, max(x, C)) }
     pub fn t(y: f32[N, C = 4]) -> f32[N] { s(y) + s(x = y) }",
    "fn g(x: f32[N], y, eps: f32 = 1e-5, D: dim) { x * y + eps } fn h(a, b = 2) -> f32[N] { a ** b }
     pub fn f(x: f32[N, M], y: f32[N]) -> f32[M, N] { g(y, h(y), D = M) * x }",
    "pub(in crate::a) const unsafe fn f<'a, const N: f32>(x: &'a mut Tensor<f32>, y: &[i32], const C: f32) -> (Vec<f32>,)
        { (x.0, vec![y]) } const EPS: f32 = 1e-5; pub(self) fn h(r#type: f32[N]) -> (f32[N],) { f(r#type, EPS) }
     pub fn i(p: &mut f32[N]) -> () { p = [1.0]; } pub fn j(x: f32[N]) -> f32[N], f32[N] { |x| x[N] }",
    "xs[0] + a.b[i + 1][N, D] - x.clone() * self.c(1)[N] + vec![1.0][2].d + load(a)[..]",
];

/// Marsaglia's xorshift, a pseudo-random generator with the same numbers in every run.
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % end.max(1) as u64) as usize
    }
}

/// Drops, duplicates, swaps or replaces tokens, at this level or inside a group.
fn mutate(tokens: TokenStream, pool: &[TokenTree], random: &mut Random) -> TokenStream {
    let mut trees: Vec<TokenTree> = tokens.into_iter().collect();
    if trees.is_empty() {
        return pool[random.below(pool.len())].clone().into();
    }
    let at = random.below(trees.len());
    if let (TokenTree::Group(group), 0..=5) = (&trees[at], random.below(8)) {
        let inner = mutate(group.stream(), pool, random);
        trees[at] = Group::new(group.delimiter(), inner).into();
        return trees.into_iter().collect();
    }
    let other = random.below(trees.len());
    match random.below(7) {
        0 => drop(trees.remove(at)),
        1 => trees.insert(at, trees[other].clone()),
        2 => trees.swap(at, other),
        3 => trees[at] = pool[random.below(pool.len())].clone(),
        4 => trees.insert(at, pool[random.below(pool.len())].clone()),
        5 => trees.truncate(at),
        _ => {
            let kinds = [Delimiter::Parenthesis, Delimiter::Brace, Delimiter::Bracket, Delimiter::None];
            let taken: TokenStream = trees.drain(at.min(other)..=at.max(other)).collect();
            trees.insert(at.min(other), Group::new(kinds[random.below(4)], taken).into());
        }
    }
    trees.into_iter().collect()
}

/// Returns all tokens of the seeds and some additional ones.
fn pool() -> Vec<TokenTree> {
    fn flatten(tokens: TokenStream, pool: &mut Vec<TokenTree>) {
        for tree in tokens {
            if let TokenTree::Group(group) = &tree {
                flatten(group.stream(), pool);
            }
            pool.push(tree);
        }
    }
    let mut pool = Vec::new();
    for seed in SEEDS {
        flatten(TokenStream::from_str(seed).unwrap(), &mut pool);
    }
    let strange = "'a \"text\" b'x' 99999999999999999999999 1e999 0x1f32 match _ self Self r#type :: ? @ $ ... \
        f16 bool u8 fuse grad () {} [] true 3.5i32 -2147483648 4294967295 1__0f64";
    flatten(TokenStream::from_str(strange).unwrap(), &mut pool);
    pool
}

#[test]
fn no_tokens_make_it_panic() {
    let (pool, mut random) = (pool(), Random(0x9e37_79b9_7f4a_7c15));
    let mut accepted = 0;
    for round in 0..6000 {
        let mut tokens = TokenStream::from_str(SEEDS[round % SEEDS.len()]).unwrap();
        for _ in 0..=random.below(4) {
            tokens = mutate(tokens, &pool, &mut random);
        }
        let graphs = match front_end(tokens.clone()) {
            Ok(Source::Items(functions, _)) => functions.into_iter().map(|function| function.graph).collect(),
            Ok(Source::Inline(inline)) => vec![inline.graph],
            Err(failure) => {
                assert!(!failure.errors.is_empty(), "refused without a message: {tokens}");
                failure.errors.to_compile_errors();
                continue;
            }
        };
        accepted += 1;
        for graph in graphs {
            assert_eq!(verify::graph(&graph), Ok(()), "{tokens}\n{graph}");
            assert!(!graph.outputs.is_empty(), "{tokens}\n{graph}");
        }
        crate::expand(&Ident::new("fusion", Span::call_site()), tokens, &Target::ALL);
    }
    // Some mutations must be accepted, or the checks above never ran.
    assert!(accepted > 100, "{accepted} accepted");
}

/// Every text that a session refuses has a mistake, and none of them makes it panic.
#[test]
fn no_texts_make_a_session_panic() {
    const TEXTS: [&str; 6] = [
        "let a = rename(x, N -> M); let b = split(x, D -> (A = 2, B)); sum(a * b, A) + x",
        "let (v, i) = (max(x, D), argmax(x, D)); (v, i as f32)",
        "concat((x, N), (x, N) -> Twice) + flip(x, D)",
        "if index(N) <= index(D) { softmax(x, D) } else { -INF }",
        "group_norm(x, D, 2, N) * take(x, D, index(N)) + at(x, N, 0)",
        "let s = slice(x, N -> K, 1..); layer_norm(pad(s, K -> P, 1, 1), D) + mean(x)",
    ];
    let (pool, mut random) = (pool(), Random(0x2545_f491_4f6c_dd1d));
    let (mut accepted, mut refused) = (0, 0);
    for round in 0..1200 {
        let mut session = Session::new("f");
        let x = session.param("x", ParamType::Tensor(DType::F32, "N, D = 6")).expect("the dims are right");
        let x = x.expect("a tensor has a value");
        let mut tokens = TokenStream::from_str(TEXTS[round % TEXTS.len()]).unwrap();
        for _ in 0..=random.below(3) {
            tokens = mutate(tokens, &pool, &mut random);
        }
        let text = tokens.to_string();
        let result = session.text(&text, &[("x", x)], None).and_then(|values| {
            let results = values.iter().map(|&value| Returned { value, dims: None });
            session.returning(&results.collect::<Vec<_>>()).map_err(|(_, mistakes)| mistakes)
        });
        match result {
            Ok(graph) => {
                accepted += 1;
                assert_eq!(verify::graph(&graph), Ok(()), "{text}\n{graph}");
            }
            Err(mistakes) => {
                refused += 1;
                assert!(!mistakes.is_empty(), "refused without a mistake: {text}");
                assert!(!mistakes[0].message.contains("has 0 values"), "{text}: {}", mistakes[0].message);
            }
        }
    }
    assert!(accepted > 20 && refused > 20, "{accepted} accepted, {refused} refused");
}

#[test]
fn calls_that_multiply_end() {
    let mut source = String::from("fn f0(x) { x + x }");
    for i in 1..40 {
        source += &format!("fn f{i}(x) {{ f{j}(x) + f{j}(x) }}", j = i - 1);
    }
    source += "pub fn f(x: f32[N]) -> f32[N] { f39(x) }";
    let errors = super::text(&source).unwrap_err();
    assert!(errors.starts_with("this function grows too large"), "{errors}");
    let lets: String = (1..60).map(|i| format!("let a{i} = a{j} + a{j};", j = i - 1)).collect();
    let source = format!("pub fn f(x: f32[N]) -> f32[N] {{ let a0 = 1; {lets} x + a59 }}");
    let errors = super::text(&source).unwrap_err();
    assert!(errors.starts_with("too many operations on numbers alone"), "{errors}");
    let source =
        format!("pub fn f(x: f32[N]) -> f32[K] {{ let a0 = N; {lets} slice(x, N -> K, a59 - a59 + 1..) }}");
    let errors = super::text(&source).unwrap_err();
    assert!(errors.starts_with("too many operations on numbers alone"), "{errors}");
}
