// ln x = e ln 2 + ln m with x = m 2^e and m = 1 + f in [sqrt(1/2), sqrt(2)];
// ln (1 + f) = f - f^2 / 2 + f^3 p(f), p a minimax polynomial of degree 7 (kgen's benchmarks/fit_vector_math.py).
// Largest error over all floats: 0.94 ulp.
__attribute__((always_inline)) inline float log(float x) {
    const bool subnormal = x < 1.17549435e-38f;
    const float normal = subnormal ? x * 8388608.0f : x;
    const std::int32_t bits = __builtin_bit_cast(std::int32_t, normal);
    const std::int32_t exponent = (bits - 0x3f3504f3) >> 23;  // 0x3f3504f3 is sqrt(1/2)
    const float e = static_cast<float>(exponent) - (subnormal ? 23.0f : 0.0f);
    const float f = __builtin_bit_cast(float, bits - (exponent << 23)) - 1.0f;
    float p = -7.635884732e-2f;
    p = __builtin_fmaf(p, f, 1.276211441e-1f);
    p = __builtin_fmaf(p, f, -1.315975487e-1f);
    p = __builtin_fmaf(p, f, 1.420160979e-1f);
    p = __builtin_fmaf(p, f, -1.662340164e-1f);
    p = __builtin_fmaf(p, f, 2.000124007e-1f);
    p = __builtin_fmaf(p, f, -2.500081956e-1f);
    p = __builtin_fmaf(p, f, 3.333333135e-1f);
    p = __builtin_fmaf(p, f, -0.5f);
    float result = __builtin_fmaf(e, 6.93147182e-1f, __builtin_fmaf(f * f, p, f));
    result = x < __builtin_inff() ? result : x;  // infinity and NaN
    result = x < 0.0f ? __builtin_nanf("") : result;
    return x == 0.0f ? -__builtin_inff() : result;
}
