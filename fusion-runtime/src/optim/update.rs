//! The update formulas, as functions of `fuse!`. Each function is one pass over all parameters of a group, or
//! over its blocks.
//!
//! Each function is one launch. A negative `factor` of the gradients skips the step, and `measure` returns a
//! negative factor for gradients or a norm that are not finite. A `…_followed` function also writes the
//! shadow copy of the parameters. Values that only the device knows are tensors of one element: `factor`, the
//! number `skipped` of the `calls`, and the learning rate `lr`. Formulas are those of PyTorch's
//! documentation, and `t` counts steps from 1.

use crate::fuse;

/// Defines the formulas, and then two functions per rule from a formula, its states and its options.
macro_rules! updates {
    (
        { $($formulas:tt)* }
        $(
            [$plain:ident $followed:ident]
            ($($s:ident: $state:ident),*) ($($option:ident: $number:ident),*) = $of:ident$(, $place:tt)?;
        )*
    ) => {
        fuse! {
            $($formulas)*

            $(
                pub(super) fn $plain(
                    p: &mut f32[N], $($s: &mut $state[N],)* g: f32[N], factor: f32[], calls: f32, skipped: f32[], lr: f32[],
                    $($option: $number),*
                ) {
                    (p, $($s),*) = if factor >= 0.0 {
                        $of(p, $($s,)* factor * g, calls - skipped, lr, $($option,)* $($place)?)
                    } else {
                        (p, $($s),*)
                    };
                }
                pub(super) fn $followed<T>(
                    p: &mut f32[N], $($s: &mut $state[N],)* q: &mut T[N], g: f32[N], taken: f32, factor: f32[], calls: f32,
                    skipped: f32[], lr: f32[], $($option: $number),*
                ) {
                    (p, $($s),*) = if factor >= 0.0 {
                        $of(p, $($s,)* factor * g, calls - skipped, lr, $($option,)* $($place)?)
                    } else {
                        (p, $($s),*)
                    };
                    q = if factor >= 0.0 { following(q as f32, p, taken) } else { q as f32 };
                }
            )*
        }
    };
}

updates! {
  {
    // Returns the gradient, negated for maximisation, plus weight decay.
    fn toward(p, g, sign, l2) { fma(l2, p, sign * g) }
    // Returns 1 − βᵗ, from the logarithm of β.
    fn bias(t, log_beta) { -expm1(t * log_beta) }
    // A weight `fresh` of 1 leaves nothing of the old mean, not even its rounding. No square exceeds its
    // share of the mean, since `fresh * x` is computed first.
    fn mean_of(mean, x, fresh) { fma(fresh, x, (1.0 - fresh) * mean) }
    fn mean_of_squares(mean, x, fresh) { fma(fresh * x, x, (1.0 - fresh) * mean) }
    // The sign is folded into the coefficients, which saves an operation per element.
    fn means_of(m, v, p, g, fresh1, fresh2, sign, l2) {
        let g = fma(sign * l2, p, g);
        (fma(sign * fresh1, g, (1.0 - fresh1) * m), mean_of_squares(v, g, fresh2))
    }
    fn decayed(p, lr, decay) { fma(-lr * decay, p, p) }
    // Returns the variance, which rounding does not make negative.
    fn spread(v, a) { max(v - a * a, 0.0) }

    // The rules return the new parameters and states.
    fn sgd_of(p, g, _t, lr, sign, l2) { (fma(-lr, toward(p, g, sign, l2), p),) }
    fn sgd_momentum_of(p, b, g, t, lr, momentum, fresh, ahead, sign, l2) {
        let g = toward(p, g, sign, l2);
        let b = if t < 1.5 { g } else { fma(momentum, b, fresh * g) };
        (fma(-lr, if ahead { fma(momentum, b, g) } else { b }, p), b)
    }
    fn moved(p, m, v, t, lr, log_beta1, log_beta2, eps, decay) {
        let size = fma(sqrt(v), 1.0 / sqrt(bias(t, log_beta2)), eps);
        fma(-lr / bias(t, log_beta1), m / size, decayed(p, lr, decay))
    }
    fn adam_of(p, m, v, g, t, lr, fresh1, log_beta1, fresh2, log_beta2, eps, sign, l2, decay) {
        let (m, v) = means_of(m, v, p, g, fresh1, fresh2, sign, l2);
        (moved(p, m, v, t, lr, log_beta1, log_beta2, eps, decay), m, v)
    }
    fn amsgrad_of(p, m, v, w, g, t, lr, fresh1, log_beta1, fresh2, log_beta2, eps, sign, l2, decay) {
        let (m, v) = means_of(m, v, p, g, fresh1, fresh2, sign, l2);
        let w = max(w, v);
        (moved(p, m, w, t, lr, log_beta1, log_beta2, eps, decay), m, v, w)
    }
    fn rmsprop_of(p, v, g, _t, lr, fresh, eps, sign, l2) {
        let g = toward(p, g, sign, l2);
        let v = mean_of_squares(v, g, fresh);
        (fma(-lr, g / (sqrt(v) + eps), p), v)
    }
    fn rmsprop_momentum_of(p, v, b, g, _t, lr, momentum, fresh, eps, sign, l2) {
        let g = toward(p, g, sign, l2);
        let v = mean_of_squares(v, g, fresh);
        let b = fma(momentum, b, g / (sqrt(v) + eps));
        (fma(-lr, b, p), v, b)
    }
    fn rmsprop_centered_of(p, v, a, g, _t, lr, fresh, eps, sign, l2) {
        let g = toward(p, g, sign, l2);
        let v = mean_of_squares(v, g, fresh);
        let a = mean_of(a, g, fresh);
        (fma(-lr, g / (sqrt(spread(v, a)) + eps), p), v, a)
    }
    fn rmsprop_centered_momentum_of(p, v, a, b, g, _t, lr, momentum, fresh, eps, sign, l2) {
        let g = toward(p, g, sign, l2);
        let v = mean_of_squares(v, g, fresh);
        let a = mean_of(a, g, fresh);
        let b = fma(momentum, b, g / (sqrt(spread(v, a)) + eps));
        (fma(-lr, b, p), v, a, b)
    }
    fn adagrad_of(p, s, g, t, lr, lr_decay, eps, sign, l2) {
        let g = toward(p, g, sign, l2);
        let s = fma(g, g, s);
        (fma(-lr / fma(t - 1.0, lr_decay, 1.0), g / (sqrt(s) + eps), p), s)
    }
    fn lion_of(p, m, g, _t, lr, fresh1, fresh2, up, decay) {
        let g = up * g;
        (fma(-lr, sign(mean_of(m, g, fresh1)), decayed(p, lr, decay)), mean_of(m, g, fresh2))
    }

    // Returns the new value of a shadow copy: the parameter for a copy, else a moving average. A weight of 0
    // changes nothing.
    fn following(q, p, taken) {
        if taken == 1.0 { p } else { if taken == 0.0 { q } else { fma(p - q, taken, q) } }
    }

    // Returns the factor for gradients of this scale that limits their norm to `most`. If the norm or the
    // factor is not finite, counts a skipped step and returns a negative factor.
    pub(super) fn measure(g: f32[N], scale: f32[], most: f32, skipped: &mut f32[]) -> f32[] {
        let length = norm(g, N) / scale;
        let factor = min(1.0, most / (length + 1e-6)) / scale;
        let finite = isfinite(length) && isfinite(factor);
        skipped = if finite { skipped } else { skipped + 1.0 };
        if finite { factor } else { -1.0 }
    }

    // Tests gradients after a skipped step, to distinguish them from their norm.
    pub(super) fn all_finite(g: f32[N]) -> bool[] { all(isfinite(g), N) }

    // Stochastic rounding adds random bits before digits are cut off. A value is rounded up in proportion to
    // its lost digits, so stored values are right on average. Rounding to nearest would lose every change
    // below half of the last digit. The elements of a step get different and evenly distributed bits: the
    // multiplier is near 2³² over the golden ratio (Knuth 6.4).
    fn chance(place, seed) { place * 0x9e3779b1 + seed }
    fn mixed(seed) {
        let mixed = seed * 0x9e3779b9;
        let mixed = (mixed ^ mixed >> 15) * 0xc2b2ae35;
        mixed ^ mixed >> 13
    }

    // A code consists of the exponent and the three bits after the leading one of a number from 2 on, and
    // encodes this number minus 2. Code 0 encodes 0. The largest codes encode 122878 and 8053063680. Encoded
    // values below 2 are evenly spaced, and larger ones at most an eighth of their value apart. The unit is
    // slightly less than the largest code encodes, so rounding and 20 random bits do not overflow the code.
    fn of_code(code) { from_bits(0x40000000 + (code << 20)) }
    fn to_code(x, chance) { (to_bits(x) + chance) >> 20 & 0xff }

    // Codes of means cover fifteen powers of two and have a sign. Code 0 decodes to 0.
    fn mean_of_code(code, unit) {
        let part = unit / 122877.9;
        let size = fma(of_code(code & 127), part, -2.0 * part);
        if code > 127 { -size } else { size }
    }
    fn code_of_mean(x, unit, chance) {
        to_code(fma(abs(x), 122877.9 / unit, 2.0), chance) | (to_bits(x) >> 24 & 128)
    }
    // Codes of means of squares cover thirty-one powers of two. No code decodes to 0, since an update divided
    // by its root would be far too large.
    fn squares_of_code(code, unit) {
        let part = unit / 8053061632.0;
        fma(of_code(code), part, -1.875 * part)
    }
    fn code_of_squares(x, unit, chance) { to_code(fma(x, 8053061632.0 / unit, 2.0), chance) }
    // Returns the bits of the largest size, rounded up to a bf16 and large enough to have an inverse. The
    // bits of sizes have the order of the numbers, with NaN at the end.
    fn unit_of(sizes, K: dim) {
        let most = max(max(to_bits(sizes), K), 0x10fd87b6);
        (min(most, 0x7fff0000) + 0xffff) & 0xffff0000
    }

    // Rows are blocks, with the codes of both moments in one word, and the units of both in another.
    fn adam_8bit_of(
        p, codes, units, g, t, lr, fresh1, log_beta1, fresh2, log_beta2, eps, sign, l2, decay, seed, B: dim, K: dim,
    ) {
        let m = mean_of_code(codes as u32 & 0xff, from_bits(units & 0xffff0000));
        let v = squares_of_code(codes as u32 >> 8, from_bits(units << 16));
        let (p, m, v) = adam_of(p, m, v, g, t, lr, fresh1, log_beta1, fresh2, log_beta2, eps, sign, l2, decay);
        let (m_most, v_most) = (unit_of(abs(m), K), unit_of(v, K));
        let chance = chance(index(K) as u32, chance(256 * index(B) as u32, mixed(seed))) >> 12;
        (
            p,
            (code_of_mean(m, from_bits(m_most), chance) | code_of_squares(v, from_bits(v_most), chance) << 8) as u16,
            m_most | v_most >> 16,
        )
    }
    pub(super) fn adam_8bit(
        p: &mut f32[B, K = 256], codes: &mut u16[B, K], units: &mut u32[B], g: f32[B, K], factor: f32[], calls: f32,
        skipped: f32[], lr: f32[], fresh1: f32, log_beta1: f32, fresh2: f32, log_beta2: f32, eps: f32, sign: f32,
        l2: f32, decay: f32, seed: u32,
    ) {
        (p, codes, units) = if factor >= 0.0 {
            adam_8bit_of(
                p, codes, units, factor * g, calls - skipped, lr, fresh1, log_beta1, fresh2, log_beta2, eps, sign, l2,
                decay, seed, B, K,
            )
        } else {
            (p, codes, units)
        };
    }
    pub(super) fn adam_8bit_followed<T>(
        p: &mut f32[B, K = 256], codes: &mut u16[B, K], units: &mut u32[B], q: &mut T[B, K], g: f32[B, K],
        taken: f32, factor: f32[], calls: f32, skipped: f32[], lr: f32[], fresh1: f32, log_beta1: f32, fresh2: f32,
        log_beta2: f32, eps: f32, sign: f32, l2: f32, decay: f32, seed: u32,
    ) {
        (p, codes, units) = if factor >= 0.0 {
            adam_8bit_of(
                p, codes, units, factor * g, calls - skipped, lr, fresh1, log_beta1, fresh2, log_beta2, eps, sign, l2,
                decay, seed, B, K,
            )
        } else {
            (p, codes, units)
        };
        q = if factor >= 0.0 { following(q as f32, p, taken) } else { q as f32 };
    }

    // Returns both means in one word, as bits of bf16: the mean of gradients in the high half, the mean of
    // squares in the low half.
    fn means(m, v, chance) {
        let (m, v) = (to_bits(m) + (chance & 0xffff), to_bits(v) + (chance >> 16));
        m & 0xffff0000 | v >> 16
    }

    // Random bits added to the bits of NaN could turn NaN into a number.
    fn kept_means(p, m, v, chance) { if p == p { means(m, v, chance) } else { 0x7fc07fc0 } }
    fn adam_bf16_of(p, both, g, t, lr, fresh1, log_beta1, fresh2, log_beta2, eps, sign, l2, decay, seed, place) {
        let (m, v) = (from_bits(both & 0xffff0000), from_bits(both << 16));
        let (p, m, v) = adam_of(p, m, v, g, t, lr, fresh1, log_beta1, fresh2, log_beta2, eps, sign, l2, decay);
        (p, kept_means(p, m, v, chance(place, mixed(seed))))
    }

    // Updates a shadow copy after a step that was not skipped.
    pub(super) fn follow<T>(q: &mut T[N], p: f32[N], before: f32[], skipped: f32[], taken: f32) {
        q = if before == skipped { following(q as f32, p, taken) } else { q as f32 };
    }
  }
  [sgd sgd_followed]
    () (sign: f32, l2: f32) = sgd_of;
  [sgd_momentum sgd_momentum_followed]
    (b: f32) (momentum: f32, fresh: f32, ahead: bool, sign: f32, l2: f32) = sgd_momentum_of;
  [adam adam_followed]
    (m: f32, v: f32) (fresh1: f32, log_beta1: f32, fresh2: f32, log_beta2: f32, eps: f32, sign: f32, l2: f32, decay: f32) = adam_of;
  [amsgrad amsgrad_followed]
    (m: f32, v: f32, w: f32) (fresh1: f32, log_beta1: f32, fresh2: f32, log_beta2: f32, eps: f32, sign: f32, l2: f32, decay: f32) = amsgrad_of;
  [adam_bf16 adam_bf16_followed]
    (both: u32) (fresh1: f32, log_beta1: f32, fresh2: f32, log_beta2: f32, eps: f32, sign: f32, l2: f32, decay: f32, seed: u32)
    = adam_bf16_of, (index(N) as u32);
  [rmsprop rmsprop_followed]
    (v: f32) (fresh: f32, eps: f32, sign: f32, l2: f32) = rmsprop_of;
  [rmsprop_momentum rmsprop_momentum_followed]
    (v: f32, b: f32) (momentum: f32, fresh: f32, eps: f32, sign: f32, l2: f32) = rmsprop_momentum_of;
  [rmsprop_centered rmsprop_centered_followed]
    (v: f32, a: f32) (fresh: f32, eps: f32, sign: f32, l2: f32) = rmsprop_centered_of;
  [rmsprop_centered_momentum rmsprop_centered_momentum_followed]
    (v: f32, a: f32, b: f32) (momentum: f32, fresh: f32, eps: f32, sign: f32, l2: f32) = rmsprop_centered_momentum_of;
  [adagrad adagrad_followed]
    (s: f32) (lr_decay: f32, eps: f32, sign: f32, l2: f32) = adagrad_of;
  [lion lion_followed]
    (m: f32) (fresh1: f32, fresh2: f32, up: f32, decay: f32) = lion_of;
}
