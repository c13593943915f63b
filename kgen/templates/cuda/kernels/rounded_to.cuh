// A pair of float16 with BITS bits of each significand, of 11: rounded, ties away from zero.
template <int BITS>
__device__ __forceinline__ __half2 rounded_to(const __half2 pair) {
    constexpr uint32_t BOTH = 0x00010001, UNIT = 1u << (11 - BITS);
    const uint32_t bits = (*reinterpret_cast<const uint32_t*>(&pair) + BOTH * (UNIT / 2)) & ~(BOTH * (UNIT - 1));
    return *reinterpret_cast<const __half2*>(&bits);
}
