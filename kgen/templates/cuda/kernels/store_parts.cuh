// Scales eight columns, in two steps where 2^exponent is beyond float32, and stores the float16 parts of each.
template <int PARTS>
__device__ __forceinline__ void store_parts(
    __half* __restrict__ high_row, __half* __restrict__ low_row, const int col, const float* v, const int exponent
) {
    const float first = power_of_two(min(exponent, 100));
    float scaled[8];
    #pragma unroll
    for (int j = 0; j < 8; ++j) scaled[j] = v[j] * first;
    if (exponent > 100) {
        const float second = power_of_two(exponent - 100);
        #pragma unroll
        for (int j = 0; j < 8; ++j) scaled[j] *= second;
    }
    __half2 high[4], low[4];
    #pragma unroll
    for (int j = 0; j < 4; ++j) {
        high[j] = __floats2half2_rn(scaled[2 * j], scaled[2 * j + 1]);
        const float2 taken = __half22float2(high[j]);
        low[j] = __floats2half2_rn(scaled[2 * j] - taken.x, scaled[2 * j + 1] - taken.y);
    }
    *reinterpret_cast<uint4*>(high_row + col) = *reinterpret_cast<const uint4*>(high);
    if constexpr (PARTS == 2) *reinterpret_cast<uint4*>(low_row + col) = *reinterpret_cast<const uint4*>(low);
}
