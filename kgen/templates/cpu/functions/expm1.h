// e^x - 1 = 2^n (e^r - 1) + (2^n - 1) with n = round(x / ln 2) and r = x - n ln 2;
// e^r - 1 = r + r^2 q(r), q a minimax polynomial of degree 5 (kgen's benchmarks/fit_vector_math.py).
// Largest error over all floats: 1.44 ulp.
__attribute__((always_inline)) inline float expm1(float x) {
    const float sign = x;
    // Beyond these bounds the result is -1 or infinity anyway; a NaN fails both comparisons and stays.
    x = x < -20.0f ? -20.0f : x;
    x = x > 89.0f ? 89.0f : x;
    // Adding 1.5 * 2^23 + 126 rounds to an integer, and leaves n + 126, the exponent of 2^(n-1), in the low bits.
    const float shifted = __builtin_fmaf(x, 1.44269504f, 12583038.0f);
    const float n = shifted - 12583038.0f;
    float r = __builtin_fmaf(n, -6.93147182e-1f, x);
    r = __builtin_fmaf(n, 1.90465430e-9f, r);
    float q = 1.976066560e-4f;
    q = __builtin_fmaf(q, r, 1.393232378e-3f);
    q = __builtin_fmaf(q, r, 8.333547041e-3f);
    q = __builtin_fmaf(q, r, 4.166649282e-2f);
    q = __builtin_fmaf(q, r, 1.666666567e-1f);
    q = __builtin_fmaf(q, r, 0.5f);
    const float p = __builtin_fmaf(r * r, q, r);
    // Half of the result, because 2^n overflows before expm1 does.
    const float scale = __builtin_bit_cast(float, __builtin_bit_cast(std::uint32_t, shifted) << 23);
    const float half = __builtin_fmaf(scale, p, scale - 0.5f);
    return __builtin_copysignf(half + half, sign);
}
