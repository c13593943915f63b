// Scales eight elements by 2^exponent, in two steps where that is beyond float32, and splits each into two float16
// terms. These have 11 bits each, or 9 each where they are ROUNDED.
template <bool ROUNDED = false>
__device__ __forceinline__ void split_group(
    const float (&v)[8], const int exponent, __half2 (&high)[4], __half2 (&low)[4]
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
    constexpr int BITS = ROUNDED ? 9 : 24;
    #pragma unroll
    for (int j = 0; j < 8; j += 2) {
        high[j / 2] = __floats2half2_rn(rounded_to<BITS>(scaled[j]), rounded_to<BITS>(scaled[j + 1]));
        const float2 taken = __half22float2(high[j / 2]);
        low[j / 2] = __floats2half2_rn(
            rounded_to<BITS>(scaled[j] - taken.x), rounded_to<BITS>(scaled[j + 1] - taken.y)
        );
    }
}
