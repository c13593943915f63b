// 2^exponent, for the exponents of normal numbers.
__device__ __forceinline__ float power_of_two(const int exponent) {
    return __int_as_float((exponent + 127) << 23);
}

// Whether 2^exponent, times or divided by another such power, is a normal number.
__device__ __forceinline__ bool is_moderate(const int exponent) {
    return exponent >= -60 && exponent <= 60;
}
