// The sine of x + quarters pi / 2, for any float x.
// With y = x 2 / pi = n + f, n = round(y), it is the sine or cosine of f pi / 2, by the last two bits of n + quarters.
// Only y modulo 4 counts, so of 2 / pi only those bits are kept that make a difference, by the size of x: entry b of
// the tables is for |x| in [2^(17+8b), 2^(25+8b)), the first for all below too. The head has 29 bits, so that its
// product with x is exact in double (M. Payne and R. Hanek, "Radian reduction for trigonometric functions", 1983).
// sine = r + r^3 p(r^2) and cosine = 1 - r^2 / 2 + r^4 q(r^2), with minimax polynomials of degree 3 and 2
// (kgen's benchmarks/fit_vector_math.py, which prints the tables too).
__attribute__((always_inline)) inline float sin_shifted(float x, std::int32_t quarters) {
    static constexpr double head[14] = {
        0x1.45f306dp-1,  0x1.45f306dp-1,  0x1.f306dc9p-9,  0x1.06dc9c8p-17, 0x1.b939104p-26,
        0x1.391054ap-34, 0x1.1054a7ep-42, 0x1.529fc2p-52,  0x1.4fe13a8p-59, 0x1.f84eafap-65,
        0x1.3abe8f8p-75, 0x1.5f47d4cp-82, 0x1.a3ea69bp-89, 0x1.ea69bb8p-97};
    static constexpr double tail[14] = {
        0x1.9391054a7f09dp-30,  0x1.9391054a7f09dp-30,  0x1.91054a7f09d5fp-38, 0x1.054a7f09d5f48p-46,
        0x1.4a7f09d5f47d5p-54,  0x1.fc2757d1f534ep-64,  0x1.09d5f47d4d377p-70, 0x1.d5f47d4d37703p-78,
        0x1.f47d4d377036ep-86,  0x1.f534ddc0db629p-96,  0x1.4d377036d8a56p-102, 0x1.377036d8a5665p-110,
        0x1.7036d8a5664f1p-118, 0x1.b6c52b3278872p-129};
    const std::int32_t biased = (__builtin_bit_cast(std::int32_t, x) >> 23) & 255;
    const std::int32_t above = biased - 144;
    const std::int32_t entry = (above < 0 ? 0 : above) >> 3;
    const double wide = x;
    const double y = wide * head[entry];
    // Adding 1.5 * 2^52 rounds to an integer, which then stands in the low bits of the sum.
    const double shifted = __builtin_fma(wide, tail[entry], y) + 0x1.8p52;
    const double f = __builtin_fma(wide, tail[entry], y - (shifted - 0x1.8p52));
    const float r = static_cast<float>(f * 1.5707963267948966);
    const std::int32_t n = static_cast<std::int32_t>(__builtin_bit_cast(std::int64_t, shifted)) + quarters;

    const float s = r * r;
    float p = 2.832510063e-6f;
    p = __builtin_fmaf(p, s, -1.985306444e-4f);
    p = __builtin_fmaf(p, s, 8.333379403e-3f);
    p = __builtin_fmaf(p, s, -1.666666716e-1f);
    const float sine = __builtin_fmaf(r * s, p, r);
    float q = 2.443232734e-5f;
    q = __builtin_fmaf(q, s, -1.388730947e-3f);
    q = __builtin_fmaf(q, s, 4.166664556e-2f);
    q = __builtin_fmaf(q, s, -0.5f);
    const float cosine = __builtin_fmaf(q, s, 1.0f);
    const float result = (n & 1) != 0 ? cosine : sine;
    return (n & 2) != 0 ? -result : result;
}
