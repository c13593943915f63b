// ln (1 + x) = e ln 2 + ln (1 + f) with 1 + x = (1 + f) 2^e and 1 + f in [sqrt(1/2), sqrt(2)];
// x is scaled by itself, so that nothing of it is lost in 1 + x.
// ln (1 + f) = f - f^2 / 2 + f^3 p(f), p a minimax polynomial of degree 7 (kgen's benchmarks/fit_vector_math.py).
// Largest error over all floats: 1.48 ulp.
__attribute__((always_inline)) inline float log1p(float x) {
    const float sum = 1.0f + x;
    const std::int32_t exponent = (__builtin_bit_cast(std::int32_t, sum) - 0x3f3504f3) >> 23;  // 0x3f3504f3: sqrt(1/2)
    const std::int32_t shift = exponent << 23;
    // x 2^-e and 4 * 2^-e: the factor 4 keeps 2^-e out of the subnormal range.
    const float scaled = __builtin_bit_cast(float, __builtin_bit_cast(std::int32_t, x) - shift);
    const float scale4 = __builtin_bit_cast(float, 0x40800000 - shift);
    const float f = scaled + __builtin_fmaf(0.25f, scale4, -1.0f);
    float p = -7.635884732e-2f;
    p = __builtin_fmaf(p, f, 1.276211441e-1f);
    p = __builtin_fmaf(p, f, -1.315975487e-1f);
    p = __builtin_fmaf(p, f, 1.420160979e-1f);
    p = __builtin_fmaf(p, f, -1.662340164e-1f);
    p = __builtin_fmaf(p, f, 2.000124007e-1f);
    p = __builtin_fmaf(p, f, -2.500081956e-1f);
    p = __builtin_fmaf(p, f, 3.333333135e-1f);
    p = __builtin_fmaf(p, f, -0.5f);
    const float e = static_cast<float>(exponent);
    float result = __builtin_fmaf(e, 6.93147182e-1f, __builtin_fmaf(f * f, p, f));
    result = x < __builtin_inff() ? result : x;  // infinity and NaN
    result = x < -1.0f ? __builtin_nanf("") : result;
    result = x == -1.0f ? -__builtin_inff() : result;
    return x == 0.0f ? x : result;  // keeps the sign of zero
}
