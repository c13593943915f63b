// tanh x = x + x^3 p(x^2) for |x| < 0.625, and sign(x) (1 - 2 / (1 + e^(2 |x|))) beyond;
// both are computed and one is selected. e^(2 |x|) = 2^n (1 + r q(r)) with n + r = 2 |x| / ln 2, n the integer next to
// it. p and q are minimax polynomials of degree 4 and 5 (kgen's benchmarks/fit_vector_math.py).
// Largest error over all floats: 1.46 ulp.
__attribute__((always_inline)) inline float tanh(float x) {
    const float magnitude = __builtin_fabsf(x);
    const float t = magnitude > 10.0f ? 10.0f : magnitude;  // tanh(10) rounds to 1; a NaN stays
    const float s = t * t;
    float p = -5.692296661e-3f;
    p = __builtin_fmaf(p, s, 2.062816732e-2f);
    p = __builtin_fmaf(p, s, -5.373651534e-2f);
    p = __builtin_fmaf(p, s, 1.333140582e-1f);
    p = __builtin_fmaf(p, s, -3.333328068e-1f);
    const float small = __builtin_fmaf(t * s, p, t);

    // Adding 1.5 * 2^23 + 127 rounds to an integer, and leaves n + 127, the exponent of 2^n, in the low bits.
    const float shifted = __builtin_fmaf(t, 2.88539008f, 12583039.0f);
    const float r = __builtin_fmaf(t, 2.88539008f, 12583039.0f - shifted);
    float q = 1.532647584e-4f;
    q = __builtin_fmaf(q, r, 1.339080976e-3f);
    q = __builtin_fmaf(q, r, 9.618505836e-3f);
    q = __builtin_fmaf(q, r, 5.550359935e-2f);
    q = __builtin_fmaf(q, r, 2.402264774e-1f);
    q = __builtin_fmaf(q, r, 6.931471825e-1f);
    const float power = __builtin_fmaf(q, r, 1.0f);
    const float scale = __builtin_bit_cast(float, __builtin_bit_cast(std::uint32_t, shifted) << 23);
    const float large = 1.0f - 2.0f / __builtin_fmaf(power, scale, 1.0f);
    return __builtin_copysignf(t < 0.625f ? small : large, x);
}
