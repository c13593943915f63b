// e^r of the rest r = x - n ln 2 in [-ln 2 / 2, ln 2 / 2], for n = round(x / ln 2);
// e^r = 1 + r + r^2 q(r), q a minimax polynomial of degree 4 (kgen's benchmarks/fit_vector_math.py).
__attribute__((always_inline)) inline float exp_of_rest(const float x, const float n) {
    float r = __builtin_fmaf(n, -6.93147182e-1f, x);
    r = __builtin_fmaf(n, 1.90465430e-9f, r);
    float q = 1.382146846e-3f;
    q = __builtin_fmaf(q, r, 8.368662558e-3f);
    q = __builtin_fmaf(q, r, 4.166825488e-2f);
    q = __builtin_fmaf(q, r, 1.666652113e-1f);
    q = __builtin_fmaf(q, r, 4.999999404e-1f);
    return __builtin_fmaf(r * r, q, r) + 1.0f;
}
