// The exponent that takes numbers of a row, given the bits of the largest magnitude, to [2^14, 2^15), at most 60: zeros
// and very small numbers lie below. NOT_FINITE for a NaN or an infinity.
__device__ __forceinline__ int split_exponent(const unsigned largest) {
    return min(row_exponent(largest), 60);
}

// What a row is multiplied with in front of the split.
__device__ __forceinline__ float split_scale(const int exponent) {
    return exponent == NOT_FINITE ? 1.0f : power_of_two(exponent);
}
