// 2^exponent, for the exponents of normal numbers.
__device__ __forceinline__ float power_of_two(const int exponent) {
    return __int_as_float((exponent + 127) << 23);
}
