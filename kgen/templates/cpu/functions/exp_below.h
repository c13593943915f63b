// e^x of a value less its maximum, as exp has it; 0 below e^-87, where a softmax or a sum of exponentials sees no
// difference. An infinity, whose maximum counts as 0, stays one. One factor 2^n is enough there: adding 1.5 * 2^23 +
// 127 leaves n + 127, the exponent of 2^n, in the low bits.
__attribute__((always_inline)) inline float exp_below(float x) {
    x = x > 89.0f ? 89.0f : x;
    const float shifted = __builtin_fmaf(x, 1.44269504f, 12583039.0f);
    const float n = shifted - 12583039.0f;
    const float p = exp_of_rest(x, n);
    const float scale = __builtin_bit_cast(float, __builtin_bit_cast(std::uint32_t, shifted) << 23);
    return x < -87.0f ? 0.0f : p * scale;
}
