// e^x = 2^n e^r with n = round(x / ln 2) and r = x - n ln 2 (exp_of_rest). Largest error over all floats: 1.02 ulp.
__attribute__((always_inline)) inline float exp(float x) {
    // Beyond these bounds the result is 0 or infinity anyway; a NaN fails both comparisons and stays.
    x = x < -104.0f ? -104.0f : x;
    x = x > 89.0f ? 89.0f : x;
    // Adding 1.5 * 2^23 rounds to an integer, which then stands in the low bits of the sum.
    const float shifted = __builtin_fmaf(x, 1.44269504f, 12582912.0f);
    const float n = shifted - 12582912.0f;
    const float p = exp_of_rest(x, n);
    // 2^n as two factors, since n goes from -150 to 128: subnormal results are rounded once, by the last product.
    const std::int32_t exponent = __builtin_bit_cast(std::int32_t, shifted) - 0x4b400000;
    const std::int32_t half = exponent >> 1;
    const float scale1 = __builtin_bit_cast(float, (half + 127) << 23);
    const float scale2 = __builtin_bit_cast(float, (exponent - half + 127) << 23);
    return p * scale1 * scale2;
}
