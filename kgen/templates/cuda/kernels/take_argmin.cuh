// Takes a value from a place behind all before into the smallest so far: a smaller one, or the first NaN.
__device__ __forceinline__ void take_argmin(float& min, long long& at, const float other, const long long place) {
    if (!(other >= min) && min == min) {
        min = other;
        at = place;
    }
}
