// A float32 rounded to BITS bits of its significand, to even where it lies between two. Ties would come often if it
// were rounded twice, and away from zero they would add up.
template <int BITS>
__device__ __forceinline__ float rounded_to(const float value) {
    if constexpr (BITS == 24) return value;
    constexpr uint32_t UNIT = 1u << (24 - BITS);
    const uint32_t bits = __float_as_uint(value);
    return __uint_as_float((bits + UNIT / 2 - 1 + (bits / UNIT & 1)) & ~(UNIT - 1));
}
