//! Tests of values of tiles, their products, and stores of their elements.

use super::*;
use crate::ir::kernel::{Carried, ThreadMap};

// The values of `product`, in the order of their numbers.
const ROW: Value = Value(4);
const LEFT: Value = Value(6);
const RIGHT: Value = Value(7);
const NEXT: Value = Value(11);
const PLACE: Value = Value(13);

const fn tile(dtype: DType, rows: u16, cols: u16) -> Type {
    Type { dtype, lanes: Lanes::Tile(rows, cols) }
}

/// Returns a kernel that multiplies tiles of 8 × 4 and 4 × 16 elements and stores some of the product.
fn product() -> Kernel {
    let (mut types, mut uniforms, mut top, mut body) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let mut b = Builder { types: &mut types, uniforms: &mut uniforms, body: &mut top };
    let n = b.uniform(Uniform { name: String::from("n"), dtype: DType::Index, arg: UniformArg::End });
    let (zero, half) = (b.index(0), b.f32(0.5));
    let number = b.declare(INDEX);
    let mut b = Builder { types: &mut types, uniforms: &mut uniforms, body: &mut body };
    let row = b.bind(tile(DType::Index, 8, 1), Expr::Builtin(Builtin::TileRow));
    let col = b.bind(tile(DType::Index, 1, 16), Expr::Builtin(Builtin::TileCol));
    let left = b.bind(tile(DType::F32, 8, 4), Expr::Splat(half));
    let right = b.bind(tile(DType::F32, 4, 16), Expr::Splat(half));
    let start = b.bind(tile(DType::F32, 8, 16), Expr::Splat(half));
    let step = b.declare(INDEX);
    let [var, next, out] = [(); 3].map(|()| b.declare(tile(DType::F32, 8, 16)));
    let inside = vec![Stmt::Let(next, Expr::Product(var, left, right))];
    let carried = vec![Carried { start, var, next, out }];
    let kind = LoopKind::Serial;
    body.push(Stmt::Loop { var: step, kind, start: zero, end: n, step: n, carried, body: inside });
    let mut b = Builder { types: &mut types, uniforms: &mut uniforms, body: &mut body };
    let place = b.apply(Op::Add, &[row, col]);
    let within = b.apply(Op::Lt, &[place, n]);
    body.push(Stmt::If { cond: within, body: vec![Stmt::Store(Address::new(OUT, place), out)] });
    let kind = LoopKind::Team;
    top.push(Stmt::Loop { var: number, kind, start: zero, end: n, step: n, carried: vec![], body });
    let buffer = |name: &str, access| Buffer::new(name, DType::F32, access);
    let buffers = vec![buffer("a", Access::Read), buffer("out", Access::Write)];
    let threads = ThreadMap { team: 32, ..ThreadMap::ALONE };
    Kernel { buffers, uniforms, types, body: top, threads, ..Kernel::new("sample", IndexWidth::Bits32) }
}

/// Returns the body of the loop over tiles.
fn inside(kernel: &mut Kernel) -> &mut Vec<Stmt> {
    match kernel.body.last_mut() {
        Some(Stmt::Loop { body, .. }) => body,
        other => panic!("{other:?} is no loop"),
    }
}

#[test]
fn refuses_tiles_that_do_not_fit() {
    check_of(
        product,
        &[
            (
                |k| k.types[LEFT.0 as usize] = tile(DType::F32, 8, 8),
                "%6 and %7 have no product of f32[8, 16]",
            ),
            (
                |k| k.types[RIGHT.0 as usize] = tile(DType::F32, 4, 8),
                "%6 and %7 have no product of f32[8, 16]",
            ),
            (
                |k| k.types[ROW.0 as usize] = tile(DType::Index, 8, 4),
                "%4 is index[8, 4], which are no numbers of rows or columns",
            ),
            (
                |k| k.types[PLACE.0 as usize] = tile(DType::Index, 8, 8),
                "Add of [Index, Index] does not give index[8, 8]",
            ),
            (|k| k.types[NEXT.0 as usize] = tile(DType::F32, 8, 8), "%11 is f32[8, 8], not f32[8, 16]"),
        ],
    );
}

#[test]
fn refuses_conditions_of_elements_around_other_statements() {
    check_of(
        product,
        &[
            (
                |k| match inside(k).last_mut() {
                    Some(Stmt::If { body, .. }) => body.push(Stmt::Barrier(Scope::Team)),
                    other => panic!("{other:?} is no condition"),
                },
                "elements of a tile are stored only",
            ),
            (
                |k| match inside(k).last_mut() {
                    Some(Stmt::If { cond, .. }) => *cond = PLACE,
                    other => panic!("{other:?} is no condition"),
                },
                "%13 is index[8, 16], not bool[8, 16]",
            ),
        ],
    );
}
