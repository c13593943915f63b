// Instead of an exponent: the row holds a NaN or an infinity.
constexpr int NOT_FINITE = -2147483647 - 1;

// The exponent that takes the largest element of a row, given by the bits of its magnitude, to [2^14, 2^15).
__device__ __forceinline__ int row_exponent(const unsigned largest) {
    if (largest >= 0x7f800000u) return NOT_FINITE;
    if (largest == 0) return 0;
    return 14 - ilogbf(__uint_as_float(largest));
}
