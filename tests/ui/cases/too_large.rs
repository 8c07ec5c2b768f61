//! Functions that are too large.

use fusion::fuse;

fuse! {
    fn f0(x) { x + 1.0 }
    fn f1(x) { f0(x) + f0(x) }
    fn f2(x) { f1(x) + f1(x) }
    fn f3(x) { f2(x) + f2(x) }
    fn f4(x) { f3(x) + f3(x) }
    fn f5(x) { f4(x) + f4(x) }
    fn f6(x) { f5(x) + f5(x) }
    fn f7(x) { f6(x) + f6(x) }
    fn f8(x) { f7(x) + f7(x) }
    fn f9(x) { f8(x) + f8(x) }
    fn f10(x) { f9(x) + f9(x) }
    fn f11(x) { f10(x) + f10(x) }
    fn f12(x) { f11(x) + f11(x) }
    fn f13(x) { f12(x) + f12(x) }
    fn f14(x) { f13(x) + f13(x) }
    fn f15(x) { f14(x) + f14(x) }
    pub fn doubled(x: f32[N]) -> f32[N] { f15(x) }
    fn n0(x) { x + 1 }
    fn n1(x) { n0(n0(x)) }
    fn n2(x) { n1(n1(x)) }
    fn n3(x) { n2(n2(x)) }
    fn n4(x) { n3(n3(x)) }
    fn n5(x) { n4(n4(x)) }
    fn n6(x) { n5(n5(x)) }
    fn n7(x) { n6(n6(x)) }
    fn n8(x) { n7(n7(x)) }
    fn n9(x) { n8(n8(x)) }
    fn n10(x) { n9(n9(x)) }
    pub fn numbers(x: f32[N]) -> f32[N] { x + n10(1) }
    pub fn nested(x: f32[N]) -> f32[N] {
        ((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((
        ((((((((((((((((((((x)))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))
        )))))))))))))))))))))))))))))))))))))))))
    }
}

fn main() {}
