// Takes a value from a place behind all before into the largest so far: a larger one, or the first NaN.
__device__ __forceinline__ void take_argmax(float& max, long long& at, const float other, const long long place) {
    if (!(other <= max) && max == max) {
        max = other;
        at = place;
    }
}
