// value * 2^exponent in two exact steps and one rounding, since 2^exponent may be beyond float32. Sums of products of
// scaled rows are below 2^60, so that nothing is left of them below 2^-252.
__device__ __forceinline__ float scale_by(const float value, const int exponent) {
    const int whole = max(exponent, -252);
    const int half = whole >> 1;
    return value * power_of_two(half) * power_of_two(whole - half);
}
