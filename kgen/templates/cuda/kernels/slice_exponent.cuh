// Slices of a row with elements from 2^105 on, whose sums could overflow before they are scaled back, count as not
// finite.
constexpr unsigned LARGEST_SLICE = 0x74000000;

// The exponent that takes the largest element of a slice of a row, given by the bits of its magnitude, to [2^14, 2^15),
// or towards it: no more than 126, so that its powers are normal numbers. Unlike row_exponent(), it has no meaning from
// LARGEST_SLICE on.
__device__ __forceinline__ int slice_exponent(const unsigned largest) {
    return 141 - max(static_cast<int>(largest >> 23), 15);
}
