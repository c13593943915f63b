// value / 2^(a + b) in two exact steps and one rounding, since the power may be beyond float32. Sums of products of
// scaled rows are below 2^60, so that nothing is left of them below 2^-252. Without meaning, and without harm, where a
// or b is NOT_FINITE.
__device__ __forceinline__ float scale_back(const float value, const int a, const int b) {
    const int whole = max(static_cast<int>(0u - static_cast<unsigned>(a) - static_cast<unsigned>(b)), -252);
    const int half = whole >> 1;
    return value * power_of_two(half) * power_of_two(whole - half);
}
