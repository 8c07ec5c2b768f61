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
    // What a centred mean of squares is larger than the square of the mean; rounding does not make it less.
    fn spread(v, a) { max(v - a * a, 0.0) }

    // Each rule: what parameters and states become.
    fn sgd_of(p, g, lr, sign, l2) { fma(-lr, toward(p, g, sign, l2), p) }
    fn sgd_momentum_of(p, b, g, t, lr, momentum, fresh, ahead, sign, l2) {
        let g = toward(p, g, sign, l2);
        let b = if t < 1.5 { g } else { fma(momentum, b, fresh * g) };
        (fma(-lr, if ahead { fma(momentum, b, g) } else { b }, p), b)
    }
    fn moved(p, m, v, t, lr, log_beta1, log_beta2, eps, decay) {
        // One division for all elements: dividers are what a processor has fewest of.
        let size = sqrt(v * (1.0 / bias(t, log_beta2))) + eps;
        fma(-lr / bias(t, log_beta1), m / size, decayed(p, lr, decay))
    }
    fn adam_of(p, m, v, g, t, lr, fresh1, log_beta1, fresh2, log_beta2, eps, sign, l2, decay) {
        let g = toward(p, g, sign, l2);
        let m = mean_of(m, g, fresh1);
        let v = mean_of(v, g * g, fresh2);
        (moved(p, m, v, t, lr, log_beta1, log_beta2, eps, decay), m, v)
    }
    fn amsgrad_of(p, m, v, w, g, t, lr, fresh1, log_beta1, fresh2, log_beta2, eps, sign, l2, decay) {
        let g = toward(p, g, sign, l2);
        let m = mean_of(m, g, fresh1);
        let v = mean_of(v, g * g, fresh2);
        let w = max(w, v);
        (moved(p, m, w, t, lr, log_beta1, log_beta2, eps, decay), m, v, w)
    }
    fn rmsprop_of(p, v, g, lr, fresh, eps, sign, l2) {
        let g = toward(p, g, sign, l2);
        let v = mean_of(v, g * g, fresh);
        (fma(-lr, g / (sqrt(v) + eps), p), v)
    }
    fn rmsprop_momentum_of(p, v, b, g, momentum, lr, fresh, eps, sign, l2) {
        let g = toward(p, g, sign, l2);
        let v = mean_of(v, g * g, fresh);
        let b = fma(momentum, b, g / (sqrt(v) + eps));
        (fma(-lr, b, p), v, b)
    }
    fn rmsprop_centered_of(p, v, a, g, lr, fresh, eps, sign, l2) {
        let g = toward(p, g, sign, l2);
        let v = mean_of(v, g * g, fresh);
        let a = mean_of(a, g, fresh);
        (fma(-lr, g / (sqrt(spread(v, a)) + eps), p), v, a)
    }
    fn rmsprop_centered_momentum_of(p, v, a, b, g, momentum, lr, fresh, eps, sign, l2) {
        let g = toward(p, g, sign, l2);
        let v = mean_of(v, g * g, fresh);
        let a = mean_of(a, g, fresh);
        let b = fma(momentum, b, g / (sqrt(spread(v, a)) + eps));
        (fma(-lr, b, p), v, a, b)
    }
    fn adagrad_of(p, s, g, t, lr, lr_decay, eps, sign, l2) {
        let g = toward(p, g, sign, l2);
        let s = fma(g, g, s);
        (fma(-lr / fma(t - 1.0, lr_decay, 1.0), g / (sqrt(s) + eps), p), s)
    }
    fn lion_of(p, m, g, lr, fresh1, fresh2, up, decay) {
        let g = up * g;
        (fma(-lr, sign(mean_of(m, g, fresh1)), decayed(p, lr, decay)), mean_of(m, g, fresh2))
    }

    // Gradients without their factor, of a norm of at most `most`, and whether they are finite.
    fn clip(g, N: dim, scale, most) {
        let length = norm(g, N) / scale;
        (g * (min(1.0, most / (length + 1e-6)) / scale), isfinite(length))
    }

    pub(super) fn sgd(
        p: &mut f32[N], g: f32[N], lr: f32, sign: f32, l2: f32,
    ) {
        p = sgd_of(p, g, lr, sign, l2);
    }
    pub(super) fn sgd_clipped(
        p: &mut f32[N], skipped: &mut f32[], g: f32[N], scale: f32[], most: f32, lr: f32, sign: f32, l2: f32,
    ) {
        let (g, finite) = clip(g, N, scale, most);
        p = if finite { sgd_of(p, g, lr, sign, l2) } else { p };
        skipped = if finite { skipped } else { skipped + 1.0 };
    }

    pub(super) fn sgd_momentum(
        p: &mut f32[N], b: &mut f32[N], g: f32[N], t: f32, lr: f32, momentum: f32, fresh: f32, ahead: bool,
        sign: f32, l2: f32,
    ) {
        let (p1, b1) = sgd_momentum_of(p, b, g, t, lr, momentum, fresh, ahead, sign, l2);
        p = p1;
        b = b1;
    }
    pub(super) fn sgd_momentum_clipped(
        p: &mut f32[N], b: &mut f32[N], skipped: &mut f32[], g: f32[N], scale: f32[], most: f32, calls: f32, lr: f32,
        momentum: f32, fresh: f32, ahead: bool, sign: f32, l2: f32,
    ) {
        let (g, finite) = clip(g, N, scale, most);
        let (p1, b1) = sgd_momentum_of(p, b, g, calls - skipped, lr, momentum, fresh, ahead, sign, l2);
        p = if finite { p1 } else { p };
        b = if finite { b1 } else { b };
        skipped = if finite { skipped } else { skipped + 1.0 };
    }

    pub(super) fn adam(
        p: &mut f32[N], m: &mut f32[N], v: &mut f32[N], g: f32[N], t: f32, lr: f32, fresh1: f32, log_beta1: f32,
        fresh2: f32, log_beta2: f32, eps: f32, sign: f32, l2: f32, decay: f32,
    ) {
        let (p1, m1, v1) = adam_of(p, m, v, g, t, lr, fresh1, log_beta1, fresh2, log_beta2, eps, sign, l2, decay);
        p = p1;
        m = m1;
        v = v1;
    }
    pub(super) fn adam_clipped(
        p: &mut f32[N], m: &mut f32[N], v: &mut f32[N], skipped: &mut f32[], g: f32[N], scale: f32[], most: f32,
        calls: f32, lr: f32, fresh1: f32, log_beta1: f32, fresh2: f32, log_beta2: f32, eps: f32, sign: f32, l2: f32,
        decay: f32,
    ) {
        let (g, finite) = clip(g, N, scale, most);
        let (p1, m1, v1) = adam_of(p, m, v, g, calls - skipped, lr, fresh1, log_beta1, fresh2, log_beta2, eps, sign, l2, decay);
        p = if finite { p1 } else { p };
        m = if finite { m1 } else { m };
        v = if finite { v1 } else { v };
        skipped = if finite { skipped } else { skipped + 1.0 };
    }

    pub(super) fn amsgrad(
        p: &mut f32[N], m: &mut f32[N], v: &mut f32[N], w: &mut f32[N], g: f32[N], t: f32, lr: f32, fresh1: f32,
        log_beta1: f32, fresh2: f32, log_beta2: f32, eps: f32, sign: f32, l2: f32, decay: f32,
    ) {
        let (p1, m1, v1, w1) = amsgrad_of(p, m, v, w, g, t, lr, fresh1, log_beta1, fresh2, log_beta2, eps, sign, l2, decay);
        p = p1;
        m = m1;
        v = v1;
        w = w1;
    }
    pub(super) fn amsgrad_clipped(
        p: &mut f32[N], m: &mut f32[N], v: &mut f32[N], w: &mut f32[N], skipped: &mut f32[], g: f32[N], scale: f32[],
        most: f32, calls: f32, lr: f32, fresh1: f32, log_beta1: f32, fresh2: f32, log_beta2: f32, eps: f32,
        sign: f32, l2: f32, decay: f32,
    ) {
        let (g, finite) = clip(g, N, scale, most);
        let (p1, m1, v1, w1) = amsgrad_of(p, m, v, w, g, calls - skipped, lr, fresh1, log_beta1, fresh2, log_beta2, eps, sign, l2, decay);
        p = if finite { p1 } else { p };
        m = if finite { m1 } else { m };
        v = if finite { v1 } else { v };
        w = if finite { w1 } else { w };
        skipped = if finite { skipped } else { skipped + 1.0 };
    }

    pub(super) fn rmsprop(
        p: &mut f32[N], v: &mut f32[N], g: f32[N], lr: f32, fresh: f32, eps: f32, sign: f32, l2: f32,
    ) {
        let (p1, v1) = rmsprop_of(p, v, g, lr, fresh, eps, sign, l2);
        p = p1;
        v = v1;
    }
    pub(super) fn rmsprop_clipped(
        p: &mut f32[N], v: &mut f32[N], skipped: &mut f32[], g: f32[N], scale: f32[], most: f32, lr: f32, fresh: f32,
        eps: f32, sign: f32, l2: f32,
    ) {
        let (g, finite) = clip(g, N, scale, most);
        let (p1, v1) = rmsprop_of(p, v, g, lr, fresh, eps, sign, l2);
        p = if finite { p1 } else { p };
        v = if finite { v1 } else { v };
        skipped = if finite { skipped } else { skipped + 1.0 };
    }

    pub(super) fn rmsprop_momentum(
        p: &mut f32[N], v: &mut f32[N], b: &mut f32[N], g: f32[N], momentum: f32, lr: f32, fresh: f32, eps: f32,
        sign: f32, l2: f32,
    ) {
        let (p1, v1, b1) = rmsprop_momentum_of(p, v, b, g, momentum, lr, fresh, eps, sign, l2);
        p = p1;
        v = v1;
        b = b1;
    }
    pub(super) fn rmsprop_momentum_clipped(
        p: &mut f32[N], v: &mut f32[N], b: &mut f32[N], skipped: &mut f32[], g: f32[N], scale: f32[], most: f32,
        momentum: f32, lr: f32, fresh: f32, eps: f32, sign: f32, l2: f32,
    ) {
        let (g, finite) = clip(g, N, scale, most);
        let (p1, v1, b1) = rmsprop_momentum_of(p, v, b, g, momentum, lr, fresh, eps, sign, l2);
        p = if finite { p1 } else { p };
        v = if finite { v1 } else { v };
        b = if finite { b1 } else { b };
        skipped = if finite { skipped } else { skipped + 1.0 };
    }

    pub(super) fn rmsprop_centered(
        p: &mut f32[N], v: &mut f32[N], a: &mut f32[N], g: f32[N], lr: f32, fresh: f32, eps: f32, sign: f32, l2: f32,
    ) {
        let (p1, v1, a1) = rmsprop_centered_of(p, v, a, g, lr, fresh, eps, sign, l2);
        p = p1;
        v = v1;
        a = a1;
    }
    pub(super) fn rmsprop_centered_clipped(
        p: &mut f32[N], v: &mut f32[N], a: &mut f32[N], skipped: &mut f32[], g: f32[N], scale: f32[], most: f32,
        lr: f32, fresh: f32, eps: f32, sign: f32, l2: f32,
    ) {
        let (g, finite) = clip(g, N, scale, most);
        let (p1, v1, a1) = rmsprop_centered_of(p, v, a, g, lr, fresh, eps, sign, l2);
        p = if finite { p1 } else { p };
        v = if finite { v1 } else { v };
        a = if finite { a1 } else { a };
        skipped = if finite { skipped } else { skipped + 1.0 };
    }

    pub(super) fn rmsprop_centered_momentum(
        p: &mut f32[N], v: &mut f32[N], a: &mut f32[N], b: &mut f32[N], g: f32[N], momentum: f32, lr: f32,
        fresh: f32, eps: f32, sign: f32, l2: f32,
    ) {
        let (p1, v1, a1, b1) = rmsprop_centered_momentum_of(p, v, a, b, g, momentum, lr, fresh, eps, sign, l2);
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
        let (p1, v1, a1, b1) = rmsprop_centered_momentum_of(p, v, a, b, g, momentum, lr, fresh, eps, sign, l2);
        p = if finite { p1 } else { p };
        v = if finite { v1 } else { v };
        a = if finite { a1 } else { a };
        b = if finite { b1 } else { b };
        skipped = if finite { skipped } else { skipped + 1.0 };
    }

    pub(super) fn adagrad(
        p: &mut f32[N], s: &mut f32[N], g: f32[N], t: f32, lr: f32, lr_decay: f32, eps: f32, sign: f32, l2: f32,
    ) {
        let (p1, s1) = adagrad_of(p, s, g, t, lr, lr_decay, eps, sign, l2);
        p = p1;
        s = s1;
    }
    pub(super) fn adagrad_clipped(
        p: &mut f32[N], s: &mut f32[N], skipped: &mut f32[], g: f32[N], scale: f32[], most: f32, calls: f32, lr: f32,
        lr_decay: f32, eps: f32, sign: f32, l2: f32,
    ) {
        let (g, finite) = clip(g, N, scale, most);
        let (p1, s1) = adagrad_of(p, s, g, calls - skipped, lr, lr_decay, eps, sign, l2);
        p = if finite { p1 } else { p };
        s = if finite { s1 } else { s };
        skipped = if finite { skipped } else { skipped + 1.0 };
    }

    pub(super) fn lion(
        p: &mut f32[N], m: &mut f32[N], g: f32[N], lr: f32, fresh1: f32, fresh2: f32, up: f32, decay: f32,
    ) {
        let (p1, m1) = lion_of(p, m, g, lr, fresh1, fresh2, up, decay);
        p = p1;
        m = m1;
    }
    pub(super) fn lion_clipped(
        p: &mut f32[N], m: &mut f32[N], skipped: &mut f32[], g: f32[N], scale: f32[], most: f32, lr: f32,
        fresh1: f32, fresh2: f32, up: f32, decay: f32,
    ) {
        let (g, finite) = clip(g, N, scale, most);
        let (p1, m1) = lion_of(p, m, g, lr, fresh1, fresh2, up, decay);
        p = if finite { p1 } else { p };
        m = if finite { m1 } else { m };
        skipped = if finite { skipped } else { skipped + 1.0 };
    }
}
