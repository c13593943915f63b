// Takes a value from a place behind all before into the largest so far: a larger one, or the first NaN. Neither of two
// zeros is larger.
template <typename Place>
__device__ __forceinline__ void take_argmax(float& max, Place& at, const float other, const long long place) {
    const float found = max_or_nan(max, other + 0.0f);  // zeros lose their signs
    if (__float_as_int(found) != __float_as_int(max)) at = static_cast<Place>(place);
    max = found;
}
