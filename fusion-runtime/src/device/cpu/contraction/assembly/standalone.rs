//! The microkernels as a crate of their own, with what their file imports as far as it uses that.

extern crate self as fusion_compiler;
extern crate self as half;

pub mod ir {
    pub mod dtype {
        #[derive(PartialEq)]
        pub enum DType {
            F32,
            F16,
            BF16,
            F64,
            I32,
            U32,
            I16,
            U16,
            I8,
            U8,
        }
    }

    pub mod plan {
        pub const DEPTH: usize = 256;
    }
}

pub struct f16;
pub struct bf16;

pub mod isa {
    pub enum Isa {
        Base,
        Avx2,
        Avx512,
        Avx512DoublePumped,
    }
}

pub mod pack {
    pub trait Widen {
        type Wide;
    }

    macro_rules! widen {
        ($($wide:ty: $($narrow:ty)*;)*) => { $($(
            impl Widen for $narrow {
                type Wide = $wide;
            }
        )*)* };
    }

    widen! {
        f32: f32 crate::f16 crate::bf16;
        f64: f64;
        std::num::Wrapping<i32>: i32 i16 u16 i8 u8;
    }

    pub struct Packer<T>(T);

    impl<T: Default> Packer<T> {
        pub fn of<E: Widen<Wide = T>>() -> Packer<T> {
            Packer(T::default())
        }
    }
}

#[path = "../microkernel.rs"]
mod microkernel;

use microkernel::Accumulate;

/// Keeps all microkernels in the crate.
#[unsafe(no_mangle)]
pub fn all([one, two, three]: [isa::Isa; 3]) -> [usize; 3] {
    [
        f32::microkernels(one) as *const _ as usize,
        f64::microkernels(two) as *const _ as usize,
        std::num::Wrapping::<i32>::microkernels(three) as *const _ as usize,
    ]
}
