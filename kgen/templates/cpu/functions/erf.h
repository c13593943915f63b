// erf x = x + x p(x^2) for |x| < 0.8, and sign(x) (1 - 2^g(|x|)) beyond, where 2^g is erfc;
// both are computed and one is selected. 2^g = 2^n (1 + r q(r)) with n = round(g) and r = g - n.
// p, g and q are minimax polynomials of degree 5, 6 and 5 (kgen's benchmarks/fit_vector_math.py).
// Largest error over all floats: 1.34 ulp.
__attribute__((always_inline)) inline float erf(float x) {
    const float magnitude = __builtin_fabsf(x);
    const float s = x * x;
    float p = -6.542248884e-4f;
    p = __builtin_fmaf(p, s, 5.086865742e-3f);
    p = __builtin_fmaf(p, s, -2.682224289e-2f);
    p = __builtin_fmaf(p, s, 1.128316224e-1f);
    p = __builtin_fmaf(p, s, -3.761260808e-1f);
    p = __builtin_fmaf(p, s, 1.283791661e-1f);
    const float small = __builtin_fmaf(p, x, x);

    const float t = magnitude > 4.0f ? 4.0f : magnitude;  // erf(4) rounds to 1; a NaN stays
    float g = 3.010853543e-4f;
    g = __builtin_fmaf(g, t, -4.565949086e-3f);
    g = __builtin_fmaf(g, t, 3.274534270e-2f);
    g = __builtin_fmaf(g, t, -1.513045877e-1f);
    g = __builtin_fmaf(g, t, -9.177591205e-1f);
    g = __builtin_fmaf(g, t, -1.627751470f);
    g = __builtin_fmaf(g, t, -8.201691526e-5f);
    // Adding 1.5 * 2^23 + 127 rounds to an integer, and leaves n + 127, the exponent of 2^n, in the low bits.
    const float shifted = g + 12583039.0f;
    const float r = g - (shifted - 12583039.0f);
    float q = 1.532647584e-4f;
    q = __builtin_fmaf(q, r, 1.339080976e-3f);
    q = __builtin_fmaf(q, r, 9.618505836e-3f);
    q = __builtin_fmaf(q, r, 5.550359935e-2f);
    q = __builtin_fmaf(q, r, 2.402264774e-1f);
    q = __builtin_fmaf(q, r, 6.931471825e-1f);
    const float power = __builtin_fmaf(q, r, 1.0f);
    const float scale = __builtin_bit_cast(float, __builtin_bit_cast(std::uint32_t, shifted) << 23);
    const float large = __builtin_fmaf(-power, scale, 1.0f);
    return magnitude < 0.8f ? small : __builtin_copysignf(large, x);
}
