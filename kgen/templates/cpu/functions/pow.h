// x^y = 2^(y log2 |x|), in double, with the signs and special values of C's pow.
// |x| = m 2^e with m in [sqrt(1/2), sqrt(2)]; log2 m = z p(z^2) with z = (m - 1) / (m + 1);
// 2^v = 2^n (1 + r q(r)) with n = round(v) and r = v - n.
// p and q are minimax polynomials of degree 4 and 6 (kgen's benchmarks/fit_vector_math.py).
// Largest error found: 0.51 ulp.
__attribute__((always_inline)) inline float pow(float x, float y) {
    const float magnitude = __builtin_fabsf(x);
    const bool subnormal = magnitude < 1.17549435e-38f;
    const float normal = subnormal ? magnitude * 8388608.0f : magnitude;
    const std::int32_t bits = __builtin_bit_cast(std::int32_t, normal);
    const std::int32_t exponent = (bits - 0x3f3504f3) >> 23;  // 0x3f3504f3 is sqrt(1/2)
    const double e = exponent - (subnormal ? 23 : 0);
    const double m = __builtin_bit_cast(float, bits - (exponent << 23));
    const double z = (m - 1.0) / (m + 1.0);
    const double s = z * z;
    double p = 3.4073222753744881e-01;
    p = __builtin_fma(p, s, 4.1167260941620587e-01);
    p = __builtin_fma(p, s, 5.7708358669820958e-01);
    p = __builtin_fma(p, s, 9.6179667333328533e-01);
    p = __builtin_fma(p, s, 2.8853900817900926e+00);
    // Zero has the logarithm -infinity; infinity and NaN have themselves.
    double logarithm = __builtin_fma(p, z, e);
    logarithm = magnitude == 0.0f ? -__builtin_inf() : logarithm;
    logarithm = magnitude < __builtin_inff() ? logarithm : static_cast<double>(magnitude);

    // Beyond these bounds the result is 0 or infinity in float anyway; a NaN fails both comparisons and stays.
    double v = y * logarithm;
    v = v < -160.0 ? -160.0 : v;
    v = v > 160.0 ? 160.0 : v;
    v = magnitude == 1.0f ? 0.0 : v;
    v = y == 0.0f ? 0.0 : v;
    // Adding 1.5 * 2^52 + 1023 rounds to an integer, and leaves n + 1023, the exponent of 2^n, in the low bits.
    const double shifted = v + (0x1.8p52 + 1023.0);
    const double r = v - (shifted - (0x1.8p52 + 1023.0));
    double q = 1.5196147149354781e-05;
    q = __builtin_fma(q, r, 1.5466768955388926e-04);
    q = __builtin_fma(q, r, 1.3333935200110722e-03);
    q = __builtin_fma(q, r, 9.6180380956317549e-03);
    q = __builtin_fma(q, r, 5.5504103656949987e-02);
    q = __builtin_fma(q, r, 2.4022651066784517e-01);
    q = __builtin_fma(q, r, 6.9314718070464643e-01);
    q = __builtin_fma(q, r, 1.0);
    const double scale = __builtin_bit_cast(double, __builtin_bit_cast(std::uint64_t, shifted) << 52);
    float result = static_cast<float>(q * scale);

    // Bit masks made from y alone: g++ vectorises no select by both x and a y that is the same for all elements.
    const bool integer = __builtin_rintf(y) == y;
    const bool odd = integer && __builtin_rintf(y * 0.5f) != y * 0.5f;
    const std::int32_t sign_mask = odd ? INT32_MIN : 0;
    const std::int32_t domain_mask = integer ? 0 : -1;
    const std::int32_t x_bits = __builtin_bit_cast(std::int32_t, x);
    result = __builtin_bit_cast(float, __builtin_bit_cast(std::int32_t, result) | (x_bits & sign_mask));
    const float base = __builtin_bit_cast(float, x_bits & domain_mask);
    result = base < 0.0f && base > -__builtin_inff() ? __builtin_nanf("") : result;
    result = y == 0.0f ? 1.0f : result;
    return x == 1.0f ? 1.0f : result;
}
