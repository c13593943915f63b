// Takes a value from a place behind all before into the smallest so far: a smaller one, or the first NaN. Neither of
// two zeros is smaller.
template <typename Place>
__device__ __forceinline__ void take_argmin(float& min, Place& at, const float other, const long long place) {
    const float found = min_or_nan(min, other + 0.0f);  // zeros lose their signs
    if (__float_as_int(found) != __float_as_int(min)) at = static_cast<Place>(place);
    min = found;
}
