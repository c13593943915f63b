// Scales two numbers and splits each into two float16 terms.
__device__ __forceinline__ void split_pair(const float2 v, const float scale, uint32_t& high, uint32_t& low) {
    alignas(4) __half2 terms[2];
    terms[0] = __floats2half2_rn(v.x * scale, v.y * scale);
    const float2 taken = __half22float2(terms[0]);
    terms[1] = __floats2half2_rn(v.x * scale - taken.x, v.y * scale - taken.y);
    high = *reinterpret_cast<const uint32_t*>(&terms[0]);
    low = *reinterpret_cast<const uint32_t*>(&terms[1]);
}
