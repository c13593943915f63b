// Scales two numbers and rounds each to float16.
__device__ __forceinline__ uint32_t round_pair(const float2 v, const float scale) {
    const __half2 rounded = __floats2half2_rn(v.x * scale, v.y * scale);
    return *reinterpret_cast<const uint32_t*>(&rounded);
}
