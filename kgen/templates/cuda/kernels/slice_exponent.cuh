// The exponent that takes the largest element of a slice of a row, given by the bits of its magnitude, to [2^14, 2^15), or towards
// it: no more than 126, so that its powers are normal numbers. Slices with elements from 2^105 on, whose sums could
// overflow before they are scaled back, count as not finite.
__device__ __forceinline__ int slice_exponent(const unsigned largest) {
    const int exponent = row_exponent(largest);
    return exponent < -90 ? NOT_FINITE : min(exponent, 126);
}
