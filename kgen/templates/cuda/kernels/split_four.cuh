// Scales four elements and splits each into two float16 terms, in pairs.
__device__ __forceinline__ void split_four(const float (&v)[4], const float (&scales)[4], uint2& high, uint2& low) {
    alignas(8) __half2 terms[2][2];
    #pragma unroll
    for (int pair = 0; pair < 2; ++pair) {
        const float first = v[2 * pair] * scales[2 * pair], second = v[2 * pair + 1] * scales[2 * pair + 1];
        terms[0][pair] = __floats2half2_rn(first, second);
        const float2 taken = __half22float2(terms[0][pair]);
        terms[1][pair] = __floats2half2_rn(first - taken.x, second - taken.y);
    }
    high = *reinterpret_cast<const uint2*>(terms[0]);
    low = *reinterpret_cast<const uint2*>(terms[1]);
}
