//! Splits of one dim into several, and merges of several into one.

use fusion::fuse;

fuse! {
    pub fn no_arrow(x: f32[N, C]) -> f32[N] { sum(split(x, C)) }
    pub fn one_part(x: f32[C]) -> f32[H] { split(x, C -> H) }
    pub fn number(x: f32[C]) -> f32[H] { sum(split(x, C -> (H, 0)), D) }
    pub fn merged_to_none(x: f32[H, D]) -> f32[C] { merge(x, (H, D)) }
    pub fn merged_to_two(x: f32[H, D]) -> f32[C] { merge(x, H -> (C, D)) }
    pub fn two_new(x: f32[N, C]) -> f32[N] { sum(split(x, C -> (H, D)), (H, D)) }
    pub fn absent(x: f32[N], _y: f32[C, H]) -> f32[N] { sum(split(x, C -> (H, D)), D) }
    pub fn merged_absent(x: f32[N, H], _y: f32[D]) -> f32[N] { sum(merge(x, (H, D) -> C), C) }
    pub fn two_ways(x: f32[C], H: dim) -> f32[C] {
        x + merge(split(x, C -> (H, D)) + split(x, C -> (E, H)), (H, D) -> C)
    }
    pub fn two_groups(x: f32[N, C, H], G: dim, K: dim) -> f32[N, C, H] {
        group_norm(x, C, G, H) + group_norm(x, C, K, H)
    }
    pub fn of_a_value(x: f32[N, C], g: f32) -> f32[N] { sum(split(x, C -> (g, K)), K) }
    pub fn beside(x: f32[C], w: f32[H]) -> f32[C, H] { x * w + merge(split(x, C -> (H, D)), (H, D) -> C) }
    pub fn part_in_common(a: f32[A, B], b: f32[A, D]) -> f32[P, Q] {
        merge(a, (A, B) -> P) * merge(b, (A, D) -> Q)
    }
    pub fn summed_in_common(a: f32[A, B], b: f32[A, D]) -> f32[P] {
        sum(merge(a, (A, B) -> P) * merge(b, (A, D) -> Q), Q)
    }
    pub fn uneven(x: f32[N, C = 8, H]) -> f32[N, C, H] { group_norm(x, C, 3, H) }
    pub fn too_few(x: f32[A = 2, B = 3]) -> f32[C = 8] { merge(x, (A, B) -> C) }
    pub fn larger_than_two(x: f32[N, C]) -> f32[N] { sum(max(split(x, C -> (G, 2)), 2), G) }
    pub fn less_than_two(x: f32[N, C]) -> f32[N] { sum(min(rename(split(x, C -> (G, 2)), 2 -> R), 3), (G, R)) }
    pub fn pooled(x: f32[B, H, W]) -> f32[B, PH, PW] {
        mean(split(split(x, H -> (PH, 2)), W -> (PW, 2)), 2)
    }
    pub fn two_extents(x: f32[N, C], w: f32[R = 3]) -> f32[N, G] { sum(split(x, C -> (G, R = 2)) * w, R) }
    pub fn any_extent(x: f32[N, C], R: dim) -> f32[N, G] { sum(split(x, C -> (G, R = 2)), R) }
    pub fn sized_value(x: f32[N, C], r: f32) -> f32[N, G] { sum(split(x, C -> (G, r = 2)), r) }
    pub fn no_number(x: f32[N, C]) -> f32[N, G] { sum(split(x, C -> (G, R = 2.0)), R) }
    pub fn sized_elsewhere(x: f32[N, C]) -> f32[N] { sum(x, (C = 2, N)) }
    pub fn part_twice(x: f32[N, C]) -> f32[N, G] { sum(split(x, C -> (G, G = 2)), G) }
    pub fn same_parts(x: f32[C = 4]) -> f32[] { sum(split(x, C -> (2, 2))) }
    pub fn beyond_memory(x: f32[N, C]) -> f32[N, G] { sum(split(x, C -> (G, P = 18446744073709551615)), P) }
    pub fn assigned(x: f32[N]) -> f32[N] { if (x = 2) { x } else { -x } }
    pub fn integers(x: i32[N, 3]) -> i32[N] { max(x, 3) }
    pub fn gone(x: f32[N, C], H: dim) -> f32[N, C] { split(x, C -> (H, D)) }
}

fn main() {}
