// How many of TAPS positions from `start` on lie from LOW up to HIGH.
template <int TAPS, int LOW, int HIGH>
__device__ __forceinline__ int covered(const int start) {
    return min(start + TAPS, HIGH) - max(start, LOW);
}
