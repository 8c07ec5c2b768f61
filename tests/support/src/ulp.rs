//! Distances between `f32` results, and the angles for which trigonometric functions are hardest to compute.

/// Returns the number of `f32` steps between two values. Infinity follows the largest number. Two NaN have
/// distance 0. A NaN and a number have the largest distance, and zeros of different signs do too.
pub fn distance(x: f32, y: f32) -> u64 {
    match (x.is_nan(), y.is_nan()) {
        (true, true) => 0,
        (false, false) if x == 0.0 && y == 0.0 => u64::from(x.to_bits() != y.to_bits()) * u64::MAX,
        (false, false) => position(x).abs_diff(position(y)),
        (true, false) | (false, true) => u64::MAX,
    }
}

/// Returns the number of `f32` between 0 and `x`, with the sign of `x`.
fn position(x: f32) -> i64 {
    let size = i64::from(x.to_bits() & 0x7fff_ffff);
    if x.is_sign_negative() { -size } else { size }
}

/// Bits of the `f32` nearest to a whole number of quarter turns, for each exponent from 0 to 127. The nearest
/// of all, 7.7·10²⁸, is 2⁻²⁹·⁹ quarter turns off.
#[rustfmt::skip]
pub const NEAR_QUARTER_TURNS: [u32; 128] = [
    0x3fc9_0fdb, 0x4049_0fdb, 0x4096_cbe4, 0x4116_cbe4, 0x4196_cbe4, 0x4216_cbe4, 0x4296_cbe4, 0x437c_e5f1,
    0x43fc_e5f1, 0x447c_e5f1, 0x44fc_e5f1, 0x450b_e628, 0x458b_e628, 0x460b_e628, 0x468b_e628, 0x474d_246f,
    0x47cd_246f, 0x484d_246f, 0x4882_665e, 0x4902_665e, 0x4982_665e, 0x4a25_62ae, 0x4aa5_62ae, 0x4b25_62ae,
    0x4bf3_b47b, 0x4c23_32e9, 0x4ca3_32e9, 0x4d23_32e9, 0x4d84_7661, 0x4e13_d4a5, 0x4e93_d4a5, 0x4f0f_fd14,
    0x4fdb_d32f, 0x507f_d274, 0x50a3_e87f, 0x5123_e87f, 0x51a3_e87f, 0x5223_e87f, 0x52a3_e87f, 0x5323_e87f,
    0x53b1_46a6, 0x5431_46a6, 0x54b1_46a6, 0x5531_46a6, 0x55b1_46a6, 0x5678_7577, 0x56f8_7577, 0x5778_7577,
    0x57b8_2989, 0x5838_2989, 0x58dc_36c9, 0x596e_3d69, 0x59f7_40b9, 0x5a7b_c261, 0x5afe_0335, 0x5b7f_239f,
    0x5bff_b3d4, 0x5c07_bcd0, 0x5c87_bcd0, 0x5d07_bcd0, 0x5d87_bcd0, 0x5e07_bcd0, 0x5e87_bcd0, 0x5f07_bcd0,
    0x5fe4_112c, 0x6064_112c, 0x60ab_0ce1, 0x617c_556b, 0x61d3_b126, 0x6253_b126, 0x62ec_1b4a, 0x636c_1b4a,
    0x63e6_00c1, 0x642e_0733, 0x64ae_0733, 0x652e_0733, 0x6589_8498, 0x6609_8498, 0x6689_8498, 0x6709_8498,
    0x6789_8498, 0x6809_8498, 0x6889_8498, 0x6946_e3bb, 0x69c6_e3bb, 0x6a19_76f1, 0x6a99_76f1, 0x6b19_76f1,
    0x6b99_76f1, 0x6c55_da58, 0x6cd5_da58, 0x6d20_63c2, 0x6d85_a877, 0x6e05_a877, 0x6e85_a877, 0x6f79_be45,
    0x6ff9_be45, 0x7079_be45, 0x70f9_be45, 0x7179_be45, 0x71f9_be45, 0x723f_a09a, 0x72bf_a09a, 0x733f_a09a,
    0x73e6_1c18, 0x7452_de59, 0x74d2_de59, 0x756f_a1dc, 0x7594_9471, 0x7650_7ce8, 0x76a4_26eb, 0x7758_4625,
    0x77d8_4625, 0x7858_4625, 0x78a8_b883, 0x7940_7f54, 0x79c0_7f54, 0x7a10_5f7f, 0x7afc_cbab, 0x7b16_75c0,
    0x7b96_75c0, 0x7c6c_3305, 0x7cff_01bd, 0x7d7f_01bd, 0x7dff_01bd, 0x7e7f_01bd, 0x7ebd_cda0, 0x7f3d_cda0,
];
