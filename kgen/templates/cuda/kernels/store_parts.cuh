// Scales eight columns in two steps, since 2^exponent may be beyond float32, and stores the float16 parts of each.
template <int PARTS>
__device__ __forceinline__ void store_parts(
    __half* __restrict__ high_row, __half* __restrict__ low_row, const int col, const float* v, const int exponent
) {
    const float first = power_of_two(min(exponent, 100)), second = power_of_two(max(exponent - 100, 0));
    __half high[8], low[8];
    #pragma unroll
    for (int j = 0; j < 8; ++j) {
        const float scaled = v[j] * first * second;
        high[j] = __float2half_rn(scaled);
        low[j] = __float2half_rn(scaled - __half2float(high[j]));
    }
    *reinterpret_cast<uint4*>(high_row + col) = *reinterpret_cast<const uint4*>(high);
    if constexpr (PARTS == 2) *reinterpret_cast<uint4*>(low_row + col) = *reinterpret_cast<const uint4*>(low);
}
