//! Extents that do not fit an operation along a dim give errors in the words of the source, with extents that
//! would fit.

use fusion::{Device, Result, Tensor};

fusion::fuse! {
    pub fn fifth(x: f32[T]) -> f32[] { at(x, T, 5) }
    pub fn fifth_last(x: f32[T]) -> f32[] { at(x, T, T - 5) }
    pub fn one_of(x: f32[T], y: f32[S]) -> f32[T] { x + at(y, S, T) }
    pub fn middle(x: f32[N, T]) -> f32[N, K] { slice(x, T -> K, 2..8) }
    pub fn inner(x: f32[T]) -> f32[K] { slice(x, T -> K, T / 2..T - 2) }
    pub fn gate(x: f32[N, D]) -> f32[N, H] { slice(x, D -> H, 0..D / 2) * slice(x, D -> H, D / 2..) }
    pub fn longer(x: f32[T]) -> f32[P] { pad(x, T -> P, 1, T - 4) }
    pub fn padded_to(x: f32[T], y: f32[P]) -> f32[P] { y + pad(x, T -> P, 1, 2) }
    pub fn joined(x: f32[A], y: f32[B], z: f32[D]) -> f32[D] { z + concat((x, A), (y, B) -> D) }
    pub fn square(x: f32[N, D], w: f32[D, E]) -> f32[N, D] { x + rename(sum(x * w, D), E -> D) }
    pub fn halves(x: f32[N, D]) -> f32[N, H] { sum(split(x, D -> (2, H)), 2) }
    pub fn grouped(x: f32[N, C]) -> f32[N, C] { group_norm(x, C, 4) }
    pub fn grouped_along(x: f32[N, C, H]) -> f32[N, C, H] { group_norm(x, C, 4, H) }
    pub fn grouped_by(x: f32[N, C], Groups: dim) -> f32[N, C] { group_norm(x, C, Groups) }
    pub fn grouped_and_split(x: f32[N, C], Groups: dim) -> f32[N, C] {
        group_norm(x, C, Groups) + sum(split(index(Groups) as f32, Groups -> (2, Half)), (2, Half))
    }
    pub fn flipped(x: f32[N, D]) -> f32[N, D] { flip(x, D) + x }
    pub fn rolled(x: f32[N, D], by: i32) -> f32[N, D] { roll(x, D, by) + x }
    pub fn gathered(x: f32[N, D], ids: i32[M]) -> f32[N, M] { take(x, D, ids) }
    pub fn largest(x: f32[N, D]) -> i32[N] { argmax(x, D) }
}

fn zeros<const R: usize>(shape: [usize; R]) -> Result<Tensor<f32>> {
    Tensor::zeros(&Device::cpu(), shape)
}

/// Asserts that a call is refused with this error.
fn refused<T>(result: Result<T>, expect: &str) {
    assert_eq!(result.map(drop).expect_err("extents do not fit").to_string(), expect);
}

#[test]
fn positions() -> Result<()> {
    refused(
        fifth(&zeros([3])?),
        "`fifth`: the position 5 is outside of `T`, which has 3 elements, from 0; `T` of 6 would fit",
    );
    assert_eq!(fifth(&zeros([6])?)?.item()?, 0.0);
    refused(
        fifth_last(&zeros([3])?),
        "`fifth_last`: the position `T - 5` = -2 is outside of `T`, which has 3 elements, from 0; `T` of 5 would fit",
    );
    assert_eq!(fifth_last(&zeros([5])?)?.item()?, 0.0);
    refused(
        one_of(&zeros([4])?, &zeros([4])?),
        "`one_of`: the position `T` = 4 is outside of `S`, which has 4 elements, from 0; `S` of 5 would fit",
    );
    Ok(())
}

#[test]
fn ranges() -> Result<()> {
    refused(middle(&zeros([2, 5])?), "`middle`: `2..8` is no part of `T`, which is 0..5; `T` of 8 would fit");
    assert_eq!(*middle(&zeros([2, 8])?)?.shape(), [2, 6]);
    refused(
        inner(&zeros([1])?),
        "`inner`: `T/2..T - 2` = 0..-1 is no part of `T`, which is 0..1; `T` of 3 would fit",
    );
    refused(
        gate(&zeros([2, 5])?),
        "`gate`: `slice` makes `H` of extent 3, which is `D/2..D` = 2..5 of `D`, but it has 2 here: give what it makes a \
         name of its own, or pass tensors that agree; `D` of 4 or 6 would fit",
    );
    assert_eq!(*gate(&zeros([2, 6])?)?.shape(), [2, 3]);
    Ok(())
}

#[test]
fn longer_dims() -> Result<()> {
    refused(
        longer(&zeros([3])?),
        "`longer`: `pad` adds `T - 4` = -1 elements to `T`, and can add 0 or more: `slice` leaves some out; \
         `T` of 4 would fit",
    );
    refused(
        padded_to(&zeros([3])?, &zeros([5])?),
        "`padded_to`: `pad` makes `P` of extent 1 + 3 + 2 = 6, but it has 5 here: give what it makes a name of its own, \
         or pass tensors that agree; `P` of 6 would fit",
    );
    refused(
        joined(&zeros([2])?, &zeros([3])?, &zeros([4])?),
        "`joined`: `concat` makes `D` of extent 2 + 3 = 5, but it has 4 here: give what it makes a name of its own, \
         or pass tensors that agree; `D` of 5 would fit",
    );
    Ok(())
}

#[test]
fn known_dims() -> Result<()> {
    refused(
        square(&zeros([2, 3])?, &zeros([3, 4])?),
        "`square`: `rename` makes `D` of extent 4, but it has 3 here: give what it makes a name of its own, \
         or pass tensors that agree; `D` of 4 would fit",
    );
    Ok(())
}

#[test]
fn parts_of_dims() -> Result<()> {
    refused(
        halves(&zeros([2, 5])?),
        "`halves`: dim `D` is 5, but it is [2, H] together, which come to 2 × 2: their product must be 5; \
         `D` of 4 or 6 would fit",
    );
    Ok(())
}

/// Errors in library functions name the dims that users pass.
#[test]
fn groups() -> Result<()> {
    let expect = |function: &str, groups: &str, fits: &str| {
        format!(
            "`{function}`: `group_norm` makes {groups} groups of `C`, which has 6 elements: groups have equally many, \
             so take {fits}"
        )
    };
    let counts = "1, 2, 3 or 6 of them";
    let fits = format!("{counts}; `C` of 4 or 8 would fit");
    refused(grouped(&zeros([2, 6])?), &expect("grouped", "4", &fits));
    refused(grouped_along(&zeros([2, 6, 3])?), &expect("grouped_along", "4", &fits));
    // The number that the caller passes is the one to change.
    for groups in [0, 4, 7] {
        let passed = expect("grouped_by", &format!("`Groups` = {groups}"), counts);
        refused(grouped_by(&zeros([2, 6])?, groups), &passed);
    }
    for groups in [1, 2, 3, 6] {
        assert_eq!(*grouped_by(&zeros([2, 6])?, groups)?.shape(), [2, 6]);
    }
    // Other parts of the function need two groups or six of them.
    refused(
        grouped_and_split(&zeros([2, 6])?, 4),
        &expect("grouped_and_split", "`Groups` = 4", "2 or 6 of them"),
    );
    let many = grouped_by(&zeros([1, 720])?, 7).expect_err("720 / 7 is no whole number").to_string();
    assert!(many.ends_with("so take 1, 2, 3, 4, 5, 6, 8, 9, 10, 12, 15, 16, … of them"), "{many}");
    let huge = grouped_by(&zeros([0, 1 << 20])?, 3).expect_err("3 is odd").to_string();
    assert!(huge.ends_with("512, 1024, 2048, … of them"), "{huge}");
    refused(
        grouped_by(&zeros([2, 0])?, 0),
        "`grouped_by`: `group_norm` makes `Groups` = 0 groups of `C`, which has 0 elements: groups have equally many, \
         and of no elements there is any number of them from 1",
    );
    Ok(())
}

/// Every operation that computes with coordinates reports their limit, under the name that the user calls.
#[test]
fn coordinates_beyond_i32() -> Result<()> {
    let x = zeros([0, 1 << 31])?;
    let ids = Tensor::zeros(&Device::cpu(), [1])?;
    let expect = |function: &str, by: &str| {
        format!(
            "`{function}`: `{by}` along `D`, which has 2147483648 elements, computes with their places in `i32`: \
             a dim that it goes along has at most 2147483647"
        )
    };
    refused(flipped(&x), &expect("flipped", "flip"));
    refused(rolled(&x, 1), &expect("rolled", "roll"));
    refused(gathered(&x, &ids), &expect("gathered", "take"));
    refused(largest(&x), &expect("largest", "argmax"));
    assert_eq!(flipped(&zeros([0, (1 << 31) - 1])?)?.len(), 0);
    Ok(())
}
