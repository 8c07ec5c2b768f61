//! The update formulas, in the language itself: each goes once over all parameters of a group.
//!
//! A function is one launch. Its twin `…_clipped` first takes the norm of all gradients, of which `scale` is a factor, which
//! makes two; where that is not finite it leaves everything as it was but `skipped`, which counts these steps.
//! Formulas are those of PyTorch's documentation; `t` counts steps from 1.

use crate::fuse;

fuse! {
    // Gradients of what is to grow or to shrink, with the decay of weights that is a part of them.
    fn toward(p, g, sign, l2) { fma(l2, p, sign * g) }
    // 1 − βᵗ, of the logarithm of β.
    fn bias(t, log_beta) { -expm1(t * log_beta) }
    fn mean_of(mean, x, fresh) { fma(x - mean, fresh, mean) }
    fn decayed(p, lr, decay) { fma(-lr * decay, p, p) }
    fn momentum_of(b, g, t, momentum, fresh) { if t < 1.5 { g } else { fma(momentum, b, fresh * g) } }
    fn adam_of(p, m, v, t, lr, log_beta1, log_beta2, eps, decay) {
        let size = sqrt(v / bias(t, log_beta2)) + eps;
        fma(-lr / bias(t, log_beta1), m / size, decayed(p, lr, decay))
    }
    // What a centred mean of squares is larger than the square of the mean; rounding does not make it less.
    fn spread(v, a) { max(v - a * a, 0.0) }

    // Gradients without their factor, of a norm of at most `most`, and whether they are finite.
    fn clip(g, N: dim, scale, most) {
        let length = norm(g, N) / scale;
        (g * (min(1.0, most / (length + 1e-6)) / scale), isfinite(length))
    }

    pub(super) fn sgd(
        p: &mut f32[N], g: f32[N],
        lr: f32, sign: f32, l2: f32,
    ) {
        let p1 = fma(-lr, toward(p, g, sign, l2), p);
        p = p1;
    }
    pub(super) fn sgd_clipped(
        p: &mut f32[N], skipped: &mut f32[], g: f32[N], scale: f32[],
        most: f32, lr: f32, sign: f32, l2: f32,
    ) {
        let (g, finite) = clip(g, N, scale, most);
        let p1 = fma(-lr, toward(p, g, sign, l2), p);
        p = if finite { p1 } else { p };
        skipped = if finite { skipped } else { skipped + 1.0 };
    }

    pub(super) fn sgd_momentum(
        p: &mut f32[N], b: &mut f32[N], g: f32[N],
        t: f32, lr: f32, momentum: f32, fresh: f32, ahead: bool, sign: f32, l2: f32,
    ) {
        let g = toward(p, g, sign, l2);
        let b1 = momentum_of(b, g, t, momentum, fresh);
        let p1 = fma(-lr, if ahead { fma(momentum, b1, g) } else { b1 }, p);
        p = p1;
        b = b1;
    }
    pub(super) fn sgd_momentum_clipped(
        p: &mut f32[N], b: &mut f32[N], skipped: &mut f32[], g: f32[N], scale: f32[],
        most: f32, calls: f32, lr: f32, momentum: f32, fresh: f32, ahead: bool, sign: f32, l2: f32,
    ) {
        let (g, finite) = clip(g, N, scale, most);
        let t = calls - skipped;
        let g = toward(p, g, sign, l2);
        let b1 = momentum_of(b, g, t, momentum, fresh);
        let p1 = fma(-lr, if ahead { fma(momentum, b1, g) } else { b1 }, p);
        p = if finite { p1 } else { p };
        b = if finite { b1 } else { b };
        skipped = if finite { skipped } else { skipped + 1.0 };
    }

    pub(super) fn adam(
        p: &mut f32[N], m: &mut f32[N], v: &mut f32[N], g: f32[N],
        t: f32, lr: f32, fresh1: f32, log_beta1: f32, fresh2: f32, log_beta2: f32, eps: f32, sign: f32, l2: f32, decay: f32,
    ) {
        let g = toward(p, g, sign, l2);
        let m1 = mean_of(m, g, fresh1);
        let v1 = mean_of(v, g * g, fresh2);
        let p1 = adam_of(p, m1, v1, t, lr, log_beta1, log_beta2, eps, decay);
        p = p1;
        m = m1;
        v = v1;
    }
    pub(super) fn adam_clipped(
        p: &mut f32[N], m: &mut f32[N], v: &mut f32[N], skipped: &mut f32[], g: f32[N], scale: f32[],
        most: f32, calls: f32, lr: f32, fresh1: f32, log_beta1: f32, fresh2: f32, log_beta2: f32, eps: f32, sign: f32, l2: f32, decay: f32,
    ) {
        let (g, finite) = clip(g, N, scale, most);
        let t = calls - skipped;
        let g = toward(p, g, sign, l2);
        let m1 = mean_of(m, g, fresh1);
        let v1 = mean_of(v, g * g, fresh2);
        let p1 = adam_of(p, m1, v1, t, lr, log_beta1, log_beta2, eps, decay);
        p = if finite { p1 } else { p };
        m = if finite { m1 } else { m };
        v = if finite { v1 } else { v };
        skipped = if finite { skipped } else { skipped + 1.0 };
    }

    pub(super) fn amsgrad(
        p: &mut f32[N], m: &mut f32[N], v: &mut f32[N], w: &mut f32[N], g: f32[N],
        t: f32, lr: f32, fresh1: f32, log_beta1: f32, fresh2: f32, log_beta2: f32, eps: f32, sign: f32, l2: f32, decay: f32,
    ) {
        let g = toward(p, g, sign, l2);
        let m1 = mean_of(m, g, fresh1);
        let v1 = mean_of(v, g * g, fresh2);
        let w1 = max(w, v1);
        let p1 = adam_of(p, m1, w1, t, lr, log_beta1, log_beta2, eps, decay);
        p = p1;
        m = m1;
        v = v1;
        w = w1;
    }
    pub(super) fn amsgrad_clipped(
        p: &mut f32[N], m: &mut f32[N], v: &mut f32[N], w: &mut f32[N], skipped: &mut f32[], g: f32[N], scale: f32[],
        most: f32, calls: f32, lr: f32, fresh1: f32, log_beta1: f32, fresh2: f32, log_beta2: f32, eps: f32, sign: f32, l2: f32, decay: f32,
    ) {
        let (g, finite) = clip(g, N, scale, most);
        let t = calls - skipped;
        let g = toward(p, g, sign, l2);
        let m1 = mean_of(m, g, fresh1);
        let v1 = mean_of(v, g * g, fresh2);
        let w1 = max(w, v1);
        let p1 = adam_of(p, m1, w1, t, lr, log_beta1, log_beta2, eps, decay);
        p = if finite { p1 } else { p };
        m = if finite { m1 } else { m };
        v = if finite { v1 } else { v };
        w = if finite { w1 } else { w };
        skipped = if finite { skipped } else { skipped + 1.0 };
    }

    pub(super) fn rmsprop(
        p: &mut f32[N], v: &mut f32[N], g: f32[N],
        lr: f32, fresh: f32, eps: f32, sign: f32, l2: f32,
    ) {
        let g = toward(p, g, sign, l2);
        let v1 = mean_of(v, g * g, fresh);
        let p1 = fma(-lr, g / (sqrt(v1) + eps), p);
        p = p1;
        v = v1;
    }
    pub(super) fn rmsprop_clipped(
        p: &mut f32[N], v: &mut f32[N], skipped: &mut f32[], g: f32[N], scale: f32[],
        most: f32, lr: f32, fresh: f32, eps: f32, sign: f32, l2: f32,
    ) {
        let (g, finite) = clip(g, N, scale, most);
        let g = toward(p, g, sign, l2);
        let v1 = mean_of(v, g * g, fresh);
        let p1 = fma(-lr, g / (sqrt(v1) + eps), p);
        p = if finite { p1 } else { p };
        v = if finite { v1 } else { v };
        skipped = if finite { skipped } else { skipped + 1.0 };
    }

    pub(super) fn rmsprop_momentum(
        p: &mut f32[N], v: &mut f32[N], b: &mut f32[N], g: f32[N],
        momentum: f32, lr: f32, fresh: f32, eps: f32, sign: f32, l2: f32,
    ) {
        let g = toward(p, g, sign, l2);
        let v1 = mean_of(v, g * g, fresh);
        let b1 = fma(momentum, b, g / (sqrt(v1) + eps));
        let p1 = fma(-lr, b1, p);
        p = p1;
        v = v1;
        b = b1;
    }
    pub(super) fn rmsprop_momentum_clipped(
        p: &mut f32[N], v: &mut f32[N], b: &mut f32[N], skipped: &mut f32[], g: f32[N], scale: f32[],
        most: f32, momentum: f32, lr: f32, fresh: f32, eps: f32, sign: f32, l2: f32,
    ) {
        let (g, finite) = clip(g, N, scale, most);
        let g = toward(p, g, sign, l2);
        let v1 = mean_of(v, g * g, fresh);
        let b1 = fma(momentum, b, g / (sqrt(v1) + eps));
        let p1 = fma(-lr, b1, p);
        p = if finite { p1 } else { p };
        v = if finite { v1 } else { v };
        b = if finite { b1 } else { b };
        skipped = if finite { skipped } else { skipped + 1.0 };
    }

    pub(super) fn rmsprop_centered(
        p: &mut f32[N], v: &mut f32[N], a: &mut f32[N], g: f32[N],
        lr: f32, fresh: f32, eps: f32, sign: f32, l2: f32,
    ) {
        let g = toward(p, g, sign, l2);
        let v1 = mean_of(v, g * g, fresh);
        let a1 = mean_of(a, g, fresh);
        let p1 = fma(-lr, g / (sqrt(spread(v1, a1)) + eps), p);
        p = p1;
        v = v1;
        a = a1;
    }
    pub(super) fn rmsprop_centered_clipped(
        p: &mut f32[N], v: &mut f32[N], a: &mut f32[N], skipped: &mut f32[], g: f32[N], scale: f32[],
        most: f32, lr: f32, fresh: f32, eps: f32, sign: f32, l2: f32,
    ) {
        let (g, finite) = clip(g, N, scale, most);
        let g = toward(p, g, sign, l2);
        let v1 = mean_of(v, g * g, fresh);
        let a1 = mean_of(a, g, fresh);
        let p1 = fma(-lr, g / (sqrt(spread(v1, a1)) + eps), p);
        p = if finite { p1 } else { p };
        v = if finite { v1 } else { v };
        a = if finite { a1 } else { a };
        skipped = if finite { skipped } else { skipped + 1.0 };
    }

    pub(super) fn rmsprop_centered_momentum(
        p: &mut f32[N], v: &mut f32[N], a: &mut f32[N], b: &mut f32[N], g: f32[N],
        momentum: f32, lr: f32, fresh: f32, eps: f32, sign: f32, l2: f32,
    ) {
        let g = toward(p, g, sign, l2);
        let v1 = mean_of(v, g * g, fresh);
        let a1 = mean_of(a, g, fresh);
        let b1 = fma(momentum, b, g / (sqrt(spread(v1, a1)) + eps));
        let p1 = fma(-lr, b1, p);
        p = p1;
        v = v1;
        a = a1;
        b = b1;
    }
    pub(super) fn rmsprop_centered_momentum_clipped(
        p: &mut f32[N], v: &mut f32[N], a: &mut f32[N], b: &mut f32[N], skipped: &mut f32[], g: f32[N], scale: f32[],
        most: f32, momentum: f32, lr: f32, fresh: f32, eps: f32, sign: f32, l2: f32,
    ) {
        let (g, finite) = clip(g, N, scale, most);
        let g = toward(p, g, sign, l2);
        let v1 = mean_of(v, g * g, fresh);
        let a1 = mean_of(a, g, fresh);
        let b1 = fma(momentum, b, g / (sqrt(spread(v1, a1)) + eps));
        let p1 = fma(-lr, b1, p);
        p = if finite { p1 } else { p };
        v = if finite { v1 } else { v };
        a = if finite { a1 } else { a };
        b = if finite { b1 } else { b };
        skipped = if finite { skipped } else { skipped + 1.0 };
    }

    pub(super) fn adagrad(
        p: &mut f32[N], s: &mut f32[N], g: f32[N],
        t: f32, lr: f32, lr_decay: f32, eps: f32, sign: f32, l2: f32,
    ) {
        let g = toward(p, g, sign, l2);
        let s1 = fma(g, g, s);
        let p1 = fma(-lr / fma(t - 1.0, lr_decay, 1.0), g / (sqrt(s1) + eps), p);
        p = p1;
        s = s1;
    }
    pub(super) fn adagrad_clipped(
        p: &mut f32[N], s: &mut f32[N], skipped: &mut f32[], g: f32[N], scale: f32[],
        most: f32, calls: f32, lr: f32, lr_decay: f32, eps: f32, sign: f32, l2: f32,
    ) {
        let (g, finite) = clip(g, N, scale, most);
        let t = calls - skipped;
        let g = toward(p, g, sign, l2);
        let s1 = fma(g, g, s);
        let p1 = fma(-lr / fma(t - 1.0, lr_decay, 1.0), g / (sqrt(s1) + eps), p);
        p = if finite { p1 } else { p };
        s = if finite { s1 } else { s };
        skipped = if finite { skipped } else { skipped + 1.0 };
    }

    pub(super) fn lion(
        p: &mut f32[N], m: &mut f32[N], g: f32[N],
        lr: f32, fresh1: f32, fresh2: f32, up: f32, decay: f32,
    ) {
        let g = up * g;
        let p1 = fma(-lr, sign(mean_of(m, g, fresh1)), decayed(p, lr, decay));
        let m1 = mean_of(m, g, fresh2);
        p = p1;
        m = m1;
    }
    pub(super) fn lion_clipped(
        p: &mut f32[N], m: &mut f32[N], skipped: &mut f32[], g: f32[N], scale: f32[],
        most: f32, lr: f32, fresh1: f32, fresh2: f32, up: f32, decay: f32,
    ) {
        let (g, finite) = clip(g, N, scale, most);
        let g = up * g;
        let p1 = fma(-lr, sign(mean_of(m, g, fresh1)), decayed(p, lr, decay));
        let m1 = mean_of(m, g, fresh2);
        p = if finite { p1 } else { p };
        m = if finite { m1 } else { m };
        skipped = if finite { skipped } else { skipped + 1.0 };
    }
}
