// Stores four pairs of float16 at once, or one.
template <int PAIRS>
__device__ __forceinline__ void store_pairs(void* to, const __half2* pairs) {
    static_assert(PAIRS == 4 || PAIRS == 1, "16 bytes or 4");
    if constexpr (PAIRS == 4) *reinterpret_cast<uint4*>(to) = *reinterpret_cast<const uint4*>(pairs);
    else *reinterpret_cast<__half2*>(to) = pairs[0];
}
